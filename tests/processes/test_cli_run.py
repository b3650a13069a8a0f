"""`countersign run`: a member installs from their own machine, with a token that only installs."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.interpreters import run_module
from tests.processes.command_line import Ran
from tests.processes.desks import Desk, by_browser
from tests.processes.homes import CLI, DEADLINE_S, Home, Server
from tests.processes.test_cli_ci_exec import REPORT

pytestmark = pytest.mark.slow

REFUSED = 1
ADA = "ada@acme.example"


@pytest.fixture(scope="module")
def serving(there: Home) -> Iterator[Server]:
    there.ask("member", "add", "--org", "acme", ADA, "--idp", "github", "--role", "owner")
    return there.serve()


@pytest.fixture
def laptop(desk: Desk, there: Home, serving: Server) -> Desk:
    """A machine on which Ada is signed in."""
    issue = ("session", "issue", "--org", "acme", "--member", ADA, "--cookie")
    cookie = there.ask(*issue, base_url=serving.url)["cookie"]
    assert by_browser(desk, serving, cookie).code == 0
    return desk


def run(laptop: Desk, *words: str, **variables: str) -> Ran:
    env = laptop.environment(**variables)
    done = run_module(CLI, "run", *words, env=env, timeout=DEADLINE_S)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def environment_of(laptop: Desk, *words: str, **variables: str) -> dict[str, str]:
    """What a command that writes down its environment was given."""
    file: Path = laptop.folder / "report.json"
    ran = run(laptop, *words, "--", sys.executable, "-c", REPORT, str(file), **variables)
    assert (ran.code, ran.out, ran.err) == (7, "from the command\n", "")
    given = json.loads(file.read_text())
    file.unlink()
    return given["environment"]


def token_of(laptop: Desk) -> str:
    return environment_of(laptop)["YARN_NPM_AUTH_TOKEN"]


def stored(laptop: Desk) -> dict[str, Any]:
    (login,) = json.loads(laptop.logins.read_text())["servers"].values()
    return login


def test_the_command_gets_a_machine_token_and_no_session(laptop: Desk, serving: Server):
    secrets = {"COUNTERSIGN_API_KEY": "cs_secret", "COUNTERSIGN_TOKEN": "csess_secret"}
    environment = environment_of(laptop, **secrets)
    token = environment["COREPACK_NPM_TOKEN"]
    host = serving.url.removeprefix("http://")

    assert token.startswith("csm_")
    assert environment["PIP_INDEX_URL"] == (
        f"http://countersign:{token}@{host}/proxy/acme/pypi/simple/"
    )
    assert environment["COREPACK_NPM_REGISTRY"] == f"http://{host}/proxy/acme/npm"
    assert not {*secrets} & {*environment}
    assert stored(laptop)["token"] not in str(environment)


def test_the_next_run_uses_the_same_token(laptop: Desk):
    assert token_of(laptop) == token_of(laptop)
    assert laptop.logins.stat().st_mode & 0o077 == 0


def test_a_revoked_token_is_replaced(laptop: Desk):
    first = token_of(laptop)
    revoked = laptop.ask("machine", "revoke", stored(laptop)["machine"]["id"])
    second = token_of(laptop)

    assert second != first
    listed = {token["id"] for token in laptop.listed("machine", "list")}
    assert stored(laptop)["machine"]["id"] in listed
    assert revoked["revoked"] not in listed


def test_a_token_that_ends_soon_is_replaced(laptop: Desk):
    first = token_of(laptop)
    logins = json.loads(laptop.logins.read_text())
    (login,) = logins["servers"].values()
    login["machine"]["expires_at"] = (datetime.now(UTC) + timedelta(minutes=9)).isoformat()
    laptop.logins.write_text(json.dumps(logins))

    assert token_of(laptop) != first


def test_an_ended_session_leaves_the_token_until_it_ends(laptop: Desk, there: Home):
    """A build must not stop because its login has expired; a new token needs a new login."""
    first = token_of(laptop)
    logins = json.loads(laptop.logins.read_text())
    (login,) = logins["servers"].values()
    login["token"] = "csess_ended"
    laptop.logins.write_text(json.dumps(logins))
    assert token_of(laptop) == first

    login["machine"]["expires_at"] = datetime.now(UTC).isoformat()
    laptop.logins.write_text(json.dumps(logins))
    ran = run(laptop, "--", "true")
    assert ran.code == 1
    assert "expired or was ended: run `countersign login" in ran.err


def test_signing_out_revokes_the_token(laptop: Desk, there: Home):
    token_of(laptop)
    token_id = stored(laptop)["machine"]["id"]
    assert laptop.order("logout").code == 0

    assert token_id not in {one["id"] for one in there.listed("machine", "list", "--org", "acme")}
    ran = run(laptop, "--", "true")
    assert (ran.code, ran.err) == (
        1,
        "countersign: not signed in to any server: run `countersign login URL`\n",
    )


def test_a_dry_run_shows_and_does_nothing(laptop: Desk):
    ran = run(laptop, "--dry-run", "--", "npm", "ci")

    assert ran.code == 0
    assert "COREPACK_NPM_TOKEN=***" in ran.out
    assert "machine" not in stored(laptop)


def test_another_organisation_is_refused(laptop: Desk):
    ran = run(laptop, "--org", "other", "--", "true")

    assert (ran.code, "machine" in stored(laptop)) == (1, False)
    assert "Org not found" in ran.err or "not a member" in ran.err


def test_a_login_that_is_no_member_s_is_refused(desk: Desk, there: Home, serving: Server):
    key = there.ask("apikey", "issue", "--org", "acme", "--name", "k", "--scope", "audit:r")
    desk.ask("login", serving.url, "--with-token", given=key["secret"])
    ran = run(desk, "--", "true")

    assert ran.code == REFUSED
    assert "is no member's: run `countersign login" in ran.err
