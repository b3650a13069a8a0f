"""`countersign` on a server: as a member through a browser, with a key, with the admin token."""

import json
import signal
import stat
import subprocess

import httpx2
import pytest

from tests.budgets import only_full, sample
from tests.conftest import ADMIN_TOKEN, ISSUER
from tests.databases import database_url
from tests.interpreters import start_module
from tests.processes.desks import by_browser
from tests.processes.homes import (
    CLI,
    DEADLINE_S,
    age_sign_ins,
    all_entries,
    eventually,
    owner_cookie,
)

pytestmark = pytest.mark.slow

REFUSED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
MAIN = "repo:acme/payments:ref:refs/heads/main"
ADD = ("bindings", "create", "--issuer", ISSUER, "--sub", MAIN, "--repository-id", "42")


def test_a_member_signs_in_works_and_signs_out(desk, server, ada, there):
    ran = by_browser(desk, server, ada)

    assert ran.code == 0, ran
    assert (ran.json["org"], ran.json["member"]["email"]) == ("acme", "ada@acme.example")
    assert stat.S_IMODE(desk.logins.stat().st_mode) == 0o600
    token = json.loads(desk.logins.read_text())["servers"][server.url]["token"]
    assert token.startswith("csess_")
    status = desk.ask("auth", "status")
    assert (status["server"], status["why"]) == (server.url, "the stored login")
    made = desk.ask(*ADD)
    (row,) = desk.ask("audit", "query", "--subject", made["id"])["entries"]
    assert row["actor"] == f"github:{ran.json['member']['id']}"
    sessions = there.listed("session", "list", "--org", "acme", "--member", "ada@acme.example")
    mine = next(one for one in sessions if one["id"] == ran.json["session_id"])
    assert mine["user_agent"].startswith("countersign-cli/")

    assert desk.ask("logout") == {"server": server.url, "session_ended": True}
    assert desk.order("whoami", "--server", server.url).refusal.startswith("not signed in to")
    with server.client(headers={"authorization": f"Bearer {token}"}) as client:
        assert client.get("/api/v1/session").status_code == 401


@only_full
def test_a_denied_sign_in_stores_nothing(desk, server, ada):
    ran = by_browser(desk, server, ada, "deny")

    assert ran.code == REFUSED
    assert "the sign-in was denied in the browser" in ran.err
    assert not desk.logins.exists()


def _other(repository_id: str) -> tuple[str, ...]:
    return ("--issuer", ISSUER, "--sub", MAIN, "--repository-id", repository_id)


def test_rows_are_queried_shown_and_exported(signed_in, server, tmp_path):
    org = ("--org", "acme")
    for number in range(3):
        signed_in.ask("bindings", "add", *org, *_other(str(100 + number)))

    first = signed_in.ask("audit", "query", *org, "--limit", "2")
    rest = ("audit", "query", *org, "--cursor", first["next_cursor"], "--limit", "2")
    second = signed_in.ask(*rest)
    row = first["entries"][0]
    shown = signed_in.ask("audit", "show", row["id"], *org)
    people = signed_in.order("audit", "show", row["id"], *org).out
    file = tmp_path / "audit.csv"
    exported = signed_in.ask("audit", "export", *org, "--format", "csv", str(file))

    assert not {r["id"] for r in first["entries"]} & {r["id"] for r in second["entries"]}
    assert shown == row
    assert row["payload"]["binding_id"] in people
    searched = signed_in.ask("audit", "query", "Binding created", *org)["entries"]
    assert {found["event"] for found in searched} == {"oidc_binding_created"}
    nothing = signed_in.order("audit", "list", "left-pad", *org)
    assert "no row of acme has package left-pad" in nothing.err
    assert exported["rows"] == len(file.read_text().splitlines()) - 1
    with server.client() as client:
        (row,) = eventually(
            lambda: all_entries(client, event="audit_export_finished"), "the end is recorded"
        )
    assert exported["sha256"] == row["payload"]["sha256"]
    export_id = exported["export_id"]
    (entry,) = signed_in.ask("audit", "exports", "list", *org)["exports"]
    assert entry == signed_in.ask("audit", "exports", "show", export_id, *org)
    assert (
        f"Exports of acme at {server.url}" in signed_in.order("audit", "exports", "list", *org).out
    )
    receipt = signed_in.order("audit", "exports", "receipt", export_id, *org).out
    (tmp_path / "audit.csv.receipt.json").write_text(receipt)
    assert signed_in.ask("audit", "verify-export", str(file))["is_the_exported_file"] is True
    listed = signed_in.ask(
        "audit", "list", *org, "--since", "1h", "--event", "oidc_binding_created"
    )
    assert {entry["event"] for entry in listed["entries"]} == {"oidc_binding_created"}
    assert (
        "More: --since 2"
        in signed_in.order("audit", "list", *org, "--since", "1h", "--limit", "1").out
    )


def test_a_token_is_explained_by_the_server(signed_in):
    signed_in.ask("bindings", "add", "--org", "acme", *_other("77"))
    claims = {"iss": ISSUER, "aud": "countersign", "sub": MAIN, "repository_id": "77"}
    claims |= {"event_name": "push", "exp": 4_000_000_000}
    words = ("explain", "--org", "acme", "--claims", "-")

    good = signed_in.order(*words, given=json.dumps(claims))
    bad = signed_in.order(*words, "--json", given=json.dumps(claims | {"aud": "x"}))
    none = signed_in.order(*words, given="[")
    token = signed_in.order("bindings", "explain", "--org", "acme", given="abc")

    assert good.code == 0, good
    assert "Trusted by obind_" in good.out
    assert (bad.code, bad.json["code"]) == (REFUSED, "bad_audience")
    assert none.refusal == "request body must be a JSON object"
    assert "malformed_jwt" in token.out
    assert signed_in.ask("bindings", "rejected", "--org", "acme")["count"] == 0


def test_a_key_reads_what_its_scopes_say(desk, there, server):
    issue = ("apikey", "issue", "--org", "acme", "--name")
    reader = there.ask(*issue, "siem", "--scope", "audit:r")["secret"]
    sender = there.ask(*issue, "proxy", "--scope", "audit:ingest")["secret"]
    variables = {"COUNTERSIGN_SERVER": server.url, "COUNTERSIGN_TOKEN": reader}

    assert desk.ask("audit", "query", "--limit", "1", **variables)["org"] == "acme"
    assert desk.ask("whoami", **variables)["capabilities"] == ["audit:r"]
    refused = desk.order("bindings", "list", **variables)
    assert (refused.code, refused.refusal) == (
        REFUSED,
        f"missing capability: oidc:r (at {server.url})",
    )
    assert desk.order(*ADD, **variables).code == REFUSED
    sent = desk.order("audit", "query", **variables | {"COUNTERSIGN_TOKEN": sender})
    assert "missing capability: audit:r" in sent.refusal
    assert not desk.logins.exists()


def test_what_is_worked_on_follows_the_order_that_is_documented(signed_in, server, there):
    """Option, variables of a server, variable of a data dir, login, default."""
    data_dir = {"COUNTERSIGN_DATA_DIR": str(there.data_dir)}

    def works_on(*words: str, **variables: str) -> tuple[str, str]:
        said = signed_in.ask("auth", "status", *words, **variables)
        return said.get("server") or said["path"], said["why"]

    assert works_on() == (server.url, "the stored login")
    assert works_on(**data_dir) == (str(there.data_dir), "COUNTERSIGN_DATA_DIR")
    at = {"COUNTERSIGN_SERVER": server.url}
    chosen = "COUNTERSIGN_SERVER, with the stored login"
    assert works_on(**data_dir, **at) == (server.url, chosen)
    assert works_on("--local", **data_dir, **at) == (str(there.data_dir), "--local")
    assert works_on("--server", server.url, **data_dir)[1] == "--server, with the stored login"
    assert signed_in.order("whoami", "--local", "--server", server.url).code == 2
    token = signed_in.order("whoami", COUNTERSIGN_TOKEN="cs_x")
    assert token.refusal.startswith("COUNTERSIGN_TOKEN is set, and no server that it is for")
    signed_in.ask("logout")
    assert works_on()[1] == "no login, and no server is named"


def test_the_operator_s_data_dir_is_used_as_before(signed_in, there):
    local = {
        "COUNTERSIGN_DATA_DIR": str(there.data_dir),
        "COUNTERSIGN_DATABASE_URL": database_url(there.data_dir),
        "COUNTERSIGN_SECRET_KEY": "x" * 32,
    }

    assert signed_in.ask("audit", "query", "--org", "acme", "--limit", "1", **local)["entries"]


@only_full
def test_an_ended_session_says_how_to_sign_in_again(desk, server, ada):
    desk.ask("login", server.url, "--with-token", given=ada)
    stored = json.loads(desk.logins.read_text())
    stored["servers"][server.url]["token"] += "x"
    desk.logins.write_text(json.dumps(stored))

    ran = desk.order("audit", "query")

    expected = f"has expired or was ended: run `countersign login {server.url}`"
    assert ran.code == REFUSED
    assert expected in ran.refusal
    assert desk.order("auth", "status").code == REFUSED
    assert desk.ask("logout")["session_ended"] is True


def test_a_command_signs_in_again_where_the_server_requires_it(desk, home):
    server, former = home.serve(), home.change(owner_cookie)
    desk.ask("login", server.url, "--with-token", given=former)
    home.change(age_sign_ins)
    fresh = home.ask(
        "session", "issue", "--org", "acme", "--member", "ada@acme.example", "--cookie"
    )["cookie"]
    words = ("apikey", "issue", "--name", "ci", "--scope", "packages:install")
    ran = by_browser(desk, server, fresh, words=words)

    assert ran.code == 0, ran
    assert ran.json["secret"].startswith("cs_")
    assert [key["name"] for key in desk.listed("apikey", "list")] == ["ci"]
    token = json.loads(desk.logins.read_text())["servers"][server.url]["token"]
    assert token != former
    with server.client(headers={"authorization": f"Bearer {former}"}) as client:
        assert client.get("/api/v1/session").status_code == 401


def test_a_session_of_a_variable_is_told_to_sign_in_again(desk, home):
    server = home.serve()
    cookie = home.change(owner_cookie)
    home.change(age_sign_ins)
    variables = {"COUNTERSIGN_SERVER": server.url, "COUNTERSIGN_TOKEN": cookie}
    ran = desk.order("apikey", "issue", "--name", "ci", "--scope", "audit:r", **variables)

    assert ran.code == REFUSED
    assert "sign in again to do this" in ran.refusal


def test_a_mistyped_name_is_answered_with_the_nearest(signed_in, desk, there):
    assert "Did you mean 'query'" in signed_in.order("audit", "qery").err
    assert "Did you mean one of: 'audit'" in signed_in.order("auidt").err
    assert "'--since'" in signed_in.order("audit", "query", "--sinc", "1h").err
    assert there.order("member", "list", "--org", "acne").refusal == (
        "Org not found: did you mean acme?"
    )
    local = there.order("audit", "query", "--org", "Acme")
    assert local.refusal == "Org not found: did you mean acme?"
    assert there.order("audit", "query", "--org", "zzz").refusal == "Org not found"
    remote = signed_in.order("audit", "query", "--org", "acne")
    assert remote.refusal.startswith("Org not found (at http://127.0.0.1:")


def test_the_file_of_logins_is_not_used_if_others_can_read_it(signed_in):
    signed_in.logins.chmod(0o644)
    assert "can be read by others: run `chmod 600" in signed_in.order("whoami").refusal
    signed_in.logins.chmod(0o600)
    signed_in.logins.write_text("{")
    assert "is damaged: delete it" in signed_in.order("whoami").refusal
    signed_in.logins.write_text('{"version": 2}')
    assert "is damaged: delete it" in signed_in.order("whoami").refusal


def test_several_logins_are_kept_and_switched(signed_in, server):
    other = server.url.replace("127.0.0.1", "localhost")
    signed_in.ask("login", other, "--with-token", given=ADMIN_TOKEN)

    assert signed_in.ask("whoami")["server"] == other
    assert signed_in.ask("auth", "switch", server.url)["server"] == server.url
    assert signed_in.ask("whoami")["logins"] == sorted([other, server.url])
    assert signed_in.ask("logout", other)["session_ended"] is False
    assert signed_in.ask("whoami")["server"] == server.url
    assert signed_in.order("auth", "switch", other).refusal.startswith("not signed in to")


def test_following_prints_each_row_once_until_ctrl_c(signed_in, server):
    path = "/api/v1/admin/orgs/acme/audit/events"

    def send(client: httpx2.Client, *names: str) -> None:
        items = [{"event": "install_allowed", "packageName": name} for name in names]
        assert client.post(path, json=items).json()["accepted"] == len(names)

    with server.client() as client:
        send(client, "before-1", "before-2")
        words = ("audit", "query", "--org", "acme", "--follow", "--json", "--limit", "2")
        process = start_module(
            CLI,
            *words,
            "--event",
            "install_allowed",
            env=signed_in.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        got = [json.loads(process.stdout.readline())["packageName"] for _ in range(2)]
        send(client, "after-1", "after-2")
        send(client, "after-3")
        got += [json.loads(process.stdout.readline())["packageName"] for _ in range(3)]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)

    assert got == ["before-1", "before-2", "after-1", "after-2", "after-3"]
    assert (process.returncode, out, err) == (INTERRUPTED, b"", b"")


@sample(2)
@pytest.mark.parametrize("words", ["--until 2030-01-01", "--order asc", "--cursor x", "--explain"])
def test_following_has_no_end_and_no_other_order(signed_in, words):
    ran = signed_in.order("audit", "query", "--org", "acme", "--follow", *words.split())

    assert ran.code == WRONG_USAGE
    assert "--follow goes with filters" in ran.err
