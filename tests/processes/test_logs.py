"""What the log says of requests, and what it must never say."""

import re
import socket
from contextlib import closing

import httpx2
import pytest

from service.core.header_names import CI_TOKEN_HEADER
from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN, binding_body, bindings_path
from tests.other_programs import execute
from tests.processes.homes import Home, Server, eventually

pytestmark = pytest.mark.slow

SECRET_KEY = "a-secret-key-that-must-not-be-logged"
AUDIT = "/api/v1/admin/orgs/acme/audit"


@pytest.fixture
def secrets(home) -> dict[str, str]:
    """One of each: what signs people and machines in, and what signs cursors."""
    home.settings["secret_key"] = SECRET_KEY
    home.ask(
        "member", "add", "--org", "acme", "ada@acme.example", "--idp", "github", "--role", "owner"
    )
    return {
        "admin_token": ADMIN_TOKEN,
        "wrong_admin_token": "wrong-admin-token",
        "secret_key": SECRET_KEY,
    }


def sign_in(home: Home, server: Server) -> dict[str, str]:
    """A cookie, a fresh sign-in token and an API key of acme, made for this `server`."""
    issued = home.ask(
        *("session", "issue", "--org", "acme", "--member", "ada@acme.example", "--cookie"),
        base_url=server.url,
    )
    key = home.ask("apikey", "issue", "--org", "acme", "--name", "proxy", "--scope", "audit:ingest")
    return {
        "cookie": issued["cookie"],
        "sign_in_token": issued["link"].partition("token=")[2],
        "api_key": key["secret"],
    }


def use_everywhere(server: Server, secrets: dict[str, str]) -> list[httpx2.Response]:
    """Every secret in every place a client might put it, rightly or wrongly."""
    answers = []
    with server.client(headers={}) as client:
        for name, value in secrets.items():
            for path in (
                bindings_path(),
                AUDIT,
                "/sign-in",
                "/",
                "/nowhere",
                "/admin/ui/orgs/acme/audit",
            ):
                answers.append(client.get(path, params={"token": value, name: value}))
                answers += [
                    client.get(path, headers={header: value})
                    for header in ("x-service-admin-token", "x-service-api-key", "authorization")
                ]
                cookie = {"cookie": f"admin_session={value}"}
                answers.append(client.get(path, params={"actor": value}, headers=cookie))
            answers.append(client.post("/sign-in", data={"token": value}))
            answers.append(client.post("/sign-out", data={"csrf": value}))
            answers.append(
                client.get(
                    AUDIT, params={"cursor": value}, headers={"x-service-admin-token": ADMIN_TOKEN}
                )
            )
        answers.append(
            client.post(
                "/sign-in", data={"token": secrets["sign_in_token"]}, headers={"origin": server.url}
            )
        )
    return answers


def check_log(server: Server, answers: list[httpx2.Response], secrets: dict[str, str]) -> None:
    """One request line for each answer, under its request id, and no secret in any line."""
    lines = server.log_lines()
    requests = {line["request_id"]: line for line in lines if line["event"] == "request"}
    for answer in answers:
        line = requests[answer.headers["x-request-id"]]
        assert (line["method"], line["status"]) == (answer.request.method, answer.status_code)
        assert line["path"] == answer.request.url.path
    text = server.logged()
    for name, value in secrets.items():
        assert value not in text, name


def test_every_line_is_json_and_no_secret_is_in_any(home, secrets):
    """Logs are shipped and searched by many: a secret in them is a secret lost."""
    server = home.serve()
    secrets |= sign_in(home, server)
    answers = use_everywhere(server, secrets)

    codes = {answer.status_code for answer in answers}
    assert {200, 303, 400, 401, 403, 404} <= codes
    check_log(server, answers, secrets)
    assert server.stop() == 0
    assert server.log_lines()[-1]["event"] == "stopped"


@only_full
def test_a_fault_is_logged_under_its_request_id_and_without_secrets(home, secrets):
    server = home.serve()
    secrets |= sign_in(home, server)
    execute(home.data_dir, "UPDATE organisations SET tier = 'no such tier'")
    with server.client() as client:
        broken = client.get(AUDIT, params={"actor": secrets["api_key"]})
        assert (broken.status_code, broken.json()) == (500, {"error": "internal error"})
        answers = [broken, *use_everywhere(server, secrets)]
        execute(home.data_dir, "ALTER TABLE sessions RENAME TO elsewhere")
        execute(home.data_dir, "ALTER TABLE sign_in_links RENAME TO elsewhere_too")
        faults = use_everywhere(server, secrets)

    assert {500, 503} <= {answer.status_code for answer in [*answers, *faults]}
    check_log(server, [*answers, *faults], secrets)
    logged = {
        line["request_id"]: line for line in server.log_lines() if line["event"] == "internal_error"
    }
    assert "no such tier" in logged[broken.headers["x-request-id"]]["exception"]
    for answer in answers + faults:
        assert "Traceback" not in answer.text
        assert not {"sqlite", "asyncpg", "postgres"} & set(answer.text.lower().split())


def test_not_even_at_debug_are_credentials_logged(home, secrets):
    server = home.serve(log_level="debug")
    secrets |= sign_in(home, server) | {"ci_token": "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"}
    with server.client(headers={}) as client:
        for headers in (
            {"x-service-admin-token": ADMIN_TOKEN},
            {"x-service-api-key": secrets["api_key"]},
            {"cookie": f"admin_session={secrets['cookie']}"},
        ):
            token = {CI_TOKEN_HEADER: secrets["ci_token"]}
            events = client.post(f"{AUDIT}/events", headers=headers | token, json=[])
            answers = [client.get(bindings_path(), headers=headers | token), events]
            assert 200 in {answer.status_code for answer in answers}

    assert '"level": "debug"' in server.logged()
    for name, value in secrets.items():
        assert value not in server.logged(), name


def test_a_request_id_is_the_servers_own(home):
    """A client that could choose it could hide among the lines of others."""
    server = home.serve()
    with server.client() as client:
        ids = {
            client.post(
                bindings_path(),
                json=binding_body(repository_id=str(n + 1)),
                headers={"x-request-id": "req_chosen"},
            ).headers["x-request-id"]
            for n in range(5)
        }
        rows = client.get(AUDIT, params={"event": "oidc_binding_created"}).json()["entries"]
    assert len(ids) == 5
    assert all(re.fullmatch(r"req_[0-9a-f]{24}", one) for one in ids)
    assert {row["request_id"] for row in rows} == ids
    eventually(lambda: ids <= {line.get("request_id") for line in server.log_lines()}, "logged")


def test_garbage_on_the_wire_leaves_the_log_readable(home):
    server = home.serve()
    for garbage in (
        b"\x16\x03\x01\x00\xa5",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"x" * 200_000,
        b"\r\n",
    ):
        with closing(_connect(server)) as connection:
            connection.sendall(garbage)
    with server.client() as client:
        long = client.get("/" + "x" * 5_000)
        odd = client.get("/a%0ab%22%5c%00%1b[31m")
        assert (long.status_code, odd.status_code) == (404, 404)
    check_log(server, [odd], {})


def _connect(server: Server):
    return socket.create_connection(("127.0.0.1", server.port), 5)
