"""`countersign run`: a member installs from their own machine, with a token that only installs."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.interpreters import run_module
from tests.processes.command_line import Ran
from tests.processes.desks import Desk, by_browser
from tests.processes.homes import CLI, DEADLINE_S, Home, Server
from tests.processes.strange_servers import Strange, strange_server
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
    store_login(desk, serving.url, new_session(there, serving))
    return desk


def new_session(there: Home, serving: Server) -> str:
    issue = ("session", "issue", "--org", "acme", "--member", ADA, "--cookie")
    return there.ask(*issue, base_url=serving.url)["cookie"]


def store_login(desk: Desk, url: str, token: str) -> None:
    """As `countersign login` does; sign-ins by a browser are limited."""
    login = {"kind": "session", "token": token, "org": "acme", "user": f"{ADA} (owner)"}
    logins = {"version": 1, "current": url, "servers": {url: login | {"is_insecure": False}}}
    desk.logins.parent.mkdir(parents=True)
    desk.logins.touch(0o600)
    desk.logins.write_text(json.dumps(logins))


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


def change_login(laptop: Desk, **changes: Any) -> None:
    logins = json.loads(laptop.logins.read_text())
    (login,) = logins["servers"].values()
    login |= changes
    laptop.logins.write_text(json.dumps(logins))


def change_machine(laptop: Desk, **changes: Any) -> None:
    change_login(laptop, machine=stored(laptop)["machine"] | changes)


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
    change_machine(laptop, expires_at=(datetime.now(UTC) + timedelta(minutes=9)).isoformat())

    assert token_of(laptop) != first


def test_an_ended_session_leaves_the_token_until_it_ends(laptop: Desk, there: Home):
    """A build must not stop because its login has expired; a new token needs a new login."""
    first = token_of(laptop)
    change_login(laptop, token="csess_ended")
    assert token_of(laptop) == first

    change_machine(laptop, expires_at=datetime.now(UTC).isoformat())
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


def test_signing_out_after_the_session_ended_says_that_the_token_works_on(laptop: Desk):
    token_of(laptop)
    change_login(laptop, token="csess_ended")
    ran = laptop.order("logout")

    assert ran.code == 0
    assert "its machine token is not revoked: it works until 20" in ran.err


def test_signing_in_again_keeps_the_token(laptop: Desk, there: Home, serving: Server):
    first = token_of(laptop)
    assert by_browser(laptop, serving, new_session(there, serving)).code == 0

    assert token_of(laptop) == first


def test_runs_side_by_side_share_one_token(laptop: Desk):
    """A parallel build must not use up the tokens of its member."""
    env = laptop.environment()
    script = "import os; print(os.environ['COREPACK_NPM_TOKEN'])"
    words = ("run", "--", sys.executable, "-c", script)
    with ThreadPoolExecutor(6) as pool:
        ran = [pool.submit(run_module, CLI, *words, env=env, timeout=DEADLINE_S) for _ in range(6)]
    assert len({each.result().stdout for each in ran}) == 1
    assert [each.result().returncode for each in ran] == [0] * 6


def test_without_room_for_another_token_the_last_minutes_of_one_are_used(laptop: Desk):
    first = token_of(laptop)
    change_machine(laptop, expires_at=(datetime.now(UTC) + timedelta(minutes=5)).isoformat())
    while laptop.order("machine", "issue", "--name", "other").code == 0:
        pass
    assert token_of(laptop) == first
    for token in laptop.listed("machine", "list"):
        laptop.ask("machine", "revoke", token["id"])


@pytest.mark.parametrize(
    "changes",
    [
        {"token": "csm_a\nscript-shell=/tmp/evil"},
        {"token": "csm_" + "a" * 40 + "\0"},
        {"token": 5},
        {"token": "csess_" + "a" * 40},
        {"expires_at": "2030-01-01T00:00:00"},
        {"expires_at": "soon"},
    ],
    ids=str,
)
def test_what_can_be_no_token_is_not_used(desk: Desk, changes: dict[str, Any]):
    """It would become a line of npm's file, and a later run would stumble over it."""
    token = {"id": "mtok_1", "token": "csm_" + "a" * 43, "expires_at": "2030-01-01T00:00:00Z"}
    body = json.dumps(token | changes).encode()

    def answer(at: Strange) -> None:
        at.reply(201, body, x_request_id="req_1", content_type="application/json")

    with strange_server(answer) as (url, _):
        store_login(desk, url, "csess_x")
        ran = run(desk, "--", "true")
    assert (ran.code, ran.out) == (REFUSED, "")
    assert "answers in a form that this program does not know" in ran.err
    assert "machine" not in stored(desk)


def test_the_user_s_own_settings_that_go_past_the_proxy_are_named(laptop: Desk):
    """By pip's file, which it reads beside variables, too; passwords in it are shown nowhere."""
    folder = laptop.config / "pip"
    folder.mkdir(exist_ok=True)
    secret = "https://user:secret@elsewhere.example"
    (folder / "pip.conf").write_text(f"[global]\nextra-index-url = {secret}/simple\n")
    (laptop.folder / ".npmrc").write_text(f"@acme:registry={secret}/npm\n")
    ran = run(laptop, "--", "true")

    assert ran.code == 0
    assert f"extra-index-url in {folder / 'pip.conf'} is set: packages from there" in ran.err
    assert "@acme:registry in npm's own file is set" in ran.err
    assert "secret" not in ran.err


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
