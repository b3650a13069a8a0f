"""CI tokens over real HTTP: real servers, a real issuer, and what the log keeps of it all."""

import asyncio
import json
from collections.abc import Iterator

import httpx2
import pytest

from service.core.header_names import CI_TOKEN_HEADER
from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN, binding_body, bindings_path
from tests.issuers.fixtures import IssuerProcess, issuer_process
from tests.processes.homes import DEADLINE_S, Home, Server, eventually

__all__ = ["issuer_process"]  # a fixture

pytestmark = pytest.mark.slow

EVENTS = "/api/v1/admin/orgs/acme/audit/events"
INSTALL = {"event": "install_allowed", "packageName": "left-pad"}
JOBS = 8


@pytest.fixture
def trusting(home: Home, issuer_process: IssuerProcess) -> Iterator[Home]:
    """Acme, which accepts the issuer and trusts its usual job."""
    home.settings["issuers_file"] = str(issuer_process.file(home.folder))
    with home.serve().client() as client:
        body = binding_body(issuer=issuer_process.url)
        assert client.post(bindings_path(), json=body).status_code == 201
    return home


def send(server: Server, *tokens: str) -> str | None:
    """Ingest one row with these token headers; the binding that the row is attributed by."""
    with server.client() as client:
        headers = [*client.headers.items(), *((CI_TOKEN_HEADER, token) for token in tokens)]
        assert client.post(EVENTS, json=[INSTALL], headers=headers).json()["accepted"] == 1
        return newest(client)["oidc_binding_id"]


def newest(client: httpx2.Client) -> dict[str, str | None]:
    path = "/api/v1/admin/orgs/acme/audit?event=install_allowed&limit=1"
    return client.get(path).json()["entries"][0]


def rejections(server: Server) -> list[dict[str, object]]:
    return [line for line in server.log_lines() if line["event"].startswith("auth_failure_")]


def uses(server: Server) -> int:
    """How often the one binding was used, as the list says."""
    with server.client() as client:
        return client.get(bindings_path()).json()["bindings"][0]["useCount"]


def test_headers_as_they_come_over_the_wire(trusting: Home, issuer_process: IssuerProcess):
    (server,) = trusting.servers
    good = issuer_process.sign()
    assert send(server, good) is not None
    longest = next(
        token
        for pad in range(11_000, 12_000)
        if len(token := issuer_process.sign(pad="x" * pad)) in {16_383, 16_384}
    )
    assert send(server, longest) is not None
    for tokens in [("",), (good, good), (f"Bearer {good}",), (longest + "A" * 20_000,)]:
        assert send(server, *tokens) is None
    lines = rejections(server)
    assert [line["event"].removeprefix("auth_failure_") for line in lines] == [
        "missing_token",
        *["malformed_jwt"] * 3,
    ]
    assert len({line["request_id"] for line in lines}) == 4
    assert good.split(".")[2] not in server.logged()


def test_hostile_claims_are_one_escaped_line(trusting: Home, issuer_process: IssuerProcess):
    (server,) = trusting.servers
    hostile = 'evil\r\n{"event":"auth_failure_forged"}\x1b[2J\u202e' + "x" * 9_000
    before = len(server.log_lines())
    assert send(server, issuer_process.sign(iss=hostile)) is None
    added = server.logged().encode().splitlines()[before:]
    assert all(line.isascii() and b"\x1b" not in line for line in added)
    (line,) = [json.loads(raw) for raw in added if b"auth_failure_" in raw]
    assert line["event"] == "auth_failure_unbound_issuer"
    assert line["issuer"] == hostile[:256]
    assert len(line["token_sha256"]) == 64


@only_full
def test_uses_survive_a_stop_and_nearly_all_of_them_a_kill(
    trusting: Home, issuer_process: IssuerProcess
):
    (server,) = trusting.servers
    token = issuer_process.sign()
    for _ in range(3):
        send(server, token)
    assert server.stop() == 0
    second = trusting.serve()
    assert uses(second) == 3
    send(second, token)
    eventually(lambda: uses(second) == 4, "written by the clock")
    second.kill()
    assert uses(trusting.serve()) == 4


@only_full
def test_keys_rotate_under_load(trusting: Home, issuer_process: IssuerProcess):
    """Jobs with the old key and with the new one, all the while: not one of them is rejected."""
    (server,) = trusting.servers
    tokens = [issuer_process.sign()]

    async def run() -> None:
        async with httpx2.AsyncClient(
            base_url=server.url,
            headers={"x-service-admin-token": ADMIN_TOKEN},
            timeout=DEADLINE_S,
            trust_env=False,
        ) as client:
            jobs = [asyncio.create_task(job(client, number)) for number in range(JOBS)]
            await asyncio.to_thread(rotate)
            await asyncio.gather(*jobs)

    async def job(client: httpx2.AsyncClient, number: int) -> None:
        for turn in range(30):
            token = tokens[(number + turn) % len(tokens)]
            answer = await client.post(EVENTS, json=[INSTALL], headers={CI_TOKEN_HEADER: token})
            assert answer.status_code == 200

    def rotate() -> None:
        issuer_process.rotate("second")
        tokens.append(issuer_process.sign())

    asyncio.run(run())
    assert rejections(server) == []
    assert issuer_process.key_requests <= 3
    with server.client() as client:
        path = "/api/v1/admin/orgs/acme/audit?actor_source=oidc_*&limit=1000"
        assert len(client.get(path).json()["entries"]) == 30 * JOBS


@only_full
def test_a_server_starts_and_serves_without_its_issuer(
    trusting: Home, issuer_process: IssuerProcess
):
    token = issuer_process.sign()
    issuer_process.stop()
    server = trusting.serve()
    assert send(server, token) is None
    (line,) = rejections(server)
    assert line["event"] == "auth_failure_signature_invalid"
    assert "ConnectError" in str(line["reason"])


ORGANISATION = """
[orgs.acme]
projects = ["payments"]
members."ada@acme.example" = { role = "owner", idp = "github" }
"""


def test_from_an_empty_data_dir_to_attributed_rows(empty_home: Home, issuer_process: IssuerProcess):
    home = empty_home
    home.settings["issuers_file"] = str(issuer_process.file(home.folder))
    (home.folder / "orgs.toml").write_text(ORGANISATION)
    assert home.order("init").code == 0
    home.ask("apply", str(home.folder / "orgs.toml"))
    of_payments = ("--org", "acme", "--project", "payments")
    issued = home.ask("apikey", "issue", *of_payments, "--name", "proxy", "--scope", "audit:ingest")
    binding = home.ask(
        *("bindings", "add", *of_payments, "--issuer", issuer_process.url),
        *("--sub", "repo:acme/payments:ref:refs/heads/main"),
        *("--repository-id", "123456789", "--event", "push"),
    )
    headers = {"x-service-api-key": issued["secret"], CI_TOKEN_HEADER: issuer_process.sign()}
    audit = "/api/v1/admin/orgs/acme/audit"
    with home.serve().client() as client:

        def ingest() -> None:
            sent = httpx2.post(f"{client.base_url}{EVENTS}", json=[INSTALL], headers=headers)
            assert sent.json()["accepted"] == 1

        def found(**filters: str) -> list[str]:
            return [row["id"] for row in client.get(audit, params=filters).json()["entries"]]

        ingest()
        (row,) = found(event="install_allowed")
        assert found(actor_source="oidc_*") == [row]
        assert found(oidc_binding_id=binding["id"]) == [row]
        assert client.get(f"{audit}/{row}").json()["payload"]["ci"]["run_id"] == "9876543210"
        home.ask("bindings", "revoke", "--org", "acme", binding["id"])
        ingest()
        assert len(found(event="install_allowed")) == 2
        assert found(actor_source="oidc_*") == [row]
        rejections = ("bindings", "rejected", "--org", "acme")
        eventually(lambda: home.ask(*rejections)["rejected"], "written down")
    (rejected,) = home.ask(*rejections)["rejected"]
    assert (rejected["verified"], rejected["count"]) == (True, 1)
    assert rejected["proposal"]["body"]["sub_pattern"] == "repo:acme/payments:ref:refs/heads/main"
