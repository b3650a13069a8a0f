"""`countersign ci exec`: the command gets an install token, and nothing that outlives it."""

import base64
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.budgets import only_full, sample
from tests.conftest import binding_body, bindings_path
from tests.docs.test_ci import REQUEST_TOKEN, token_endpoint
from tests.interpreters import run_module, start_module
from tests.issuers.fixtures import IssuerProcess
from tests.processes.command_line import Ran
from tests.processes.desks import Desk
from tests.processes.homes import CLI, DEADLINE_S, Home, Server, all_entries, eventually

pytestmark = pytest.mark.slow

REFUSED, UNAVAILABLE, NOT_EXECUTABLE, NOT_FOUND = 1, 3, 126, 127

REPORT = """
import json, os, stat, sys
file = os.environ["NPM_CONFIG_USERCONFIG"]
facts = {"environment": dict(os.environ), "npmrc": open(file).read()}
facts["mode"] = stat.S_IMODE(os.stat(file).st_mode)
json.dump(facts, open(sys.argv[1], "w"))
print("from the command")
sys.exit(7)
"""
"""A command that writes down what it was given, and ends with 7."""


@dataclass
class Ci:
    """A CI machine, whose jobs a server trusts."""

    desk: Desk
    home: Home
    server: Server
    issuer: IssuerProcess
    key_id: str
    key: str
    binding: str

    def environment(self, **variables: str) -> dict[str, str]:
        """A job's variables; an empty value takes one out."""
        given = {
            "COUNTERSIGN_SERVER": self.server.url,
            "COUNTERSIGN_ORG": "acme",
            "COUNTERSIGN_API_KEY": self.key,
            "COUNTERSIGN_ID_TOKEN": self.issuer.sign(jti=secrets.token_hex(8)),
        } | variables
        return self.desk.environment(**{name: value for name, value in given.items() if value})

    def run(self, *words: str, **variables: str) -> Ran:
        """`countersign ci exec words` in a process of its own."""
        env = self.environment(**variables)
        done = run_module(CLI, "ci", "exec", *words, env=env, timeout=DEADLINE_S)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def report(self, *words: str, **variables: str) -> tuple[Ran, dict[str, Any]]:
        """What a command that writes down its environment was given."""
        file = self.desk.folder / "report.json"
        ran = self.run(*words, "--", sys.executable, "-c", REPORT, str(file), **variables)
        return ran, json.loads(file.read_text())


@pytest.fixture(scope="module")
def issuer() -> Iterator[IssuerProcess]:
    process = IssuerProcess()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def trusting(there: Home, issuer: IssuerProcess) -> tuple[Home, Server, dict[str, Any], str]:
    """A server that trusts the issuer's usual job, a key that installs, and the binding."""
    there.settings["issuers_file"] = str(issuer.file(there.folder))
    words = ("apikey", "issue", "--org", "acme", "--name", "ci", "--scope", "packages:install")
    key = there.run(*words, "--json").json
    server = there.serve()
    with server.client() as client:
        created = client.post(bindings_path(), json=binding_body(issuer=issuer.url))
    return there, server, key, created.json()["id"]


@pytest.fixture
def ci(desk: Desk, issuer: IssuerProcess, trusting: tuple[Home, Server, dict[str, Any], str]) -> Ci:
    home, server, key, binding = trusting
    return Ci(desk, home, server, issuer, key["id"], key["secret"], binding)


def test_the_command_gets_a_token_and_ends_for_us(ci: Ci) -> None:
    ran, given = ci.report()
    environment = given["environment"]
    token = environment["YARN_NPM_AUTH_TOKEN"]
    host = ci.server.url.removeprefix("http://")

    assert (ran.code, ran.out, ran.err) == (7, "from the command\n", "")
    assert token.startswith("csi_")
    expected = {
        "PIP_INDEX_URL": f"http://countersign:{token}@{host}/proxy/acme/pypi/simple/",
        "UV_DEFAULT_INDEX": f"http://countersign:{token}@{host}/proxy/acme/pypi/simple/",
        "POETRY_HTTP_BASIC_COUNTERSIGN_PASSWORD": token,
        "npm_config_registry": f"http://{host}/proxy/acme/npm/",
        "pnpm_config_registry": f"http://{host}/proxy/acme/npm/",
        "YARN_NPM_REGISTRY_SERVER": f"http://{host}/proxy/acme/npm",
        "YARN_NPM_ALWAYS_AUTH": "true",
        "YARN_UNSAFE_HTTP_WHITELIST": "127.0.0.1",
    }
    assert {name: environment[name] for name in expected} == expected
    assert given["npmrc"].splitlines() == [
        f"registry=http://{host}/proxy/acme/npm/",
        f"//{host}/proxy/acme/npm/:_authToken={token}",
        f"//{host}/proxy/acme/npm/:always-auth=true",
    ]
    assert "COUNTERSIGN_API_KEY" not in environment
    assert "COUNTERSIGN_ID_TOKEN" not in environment
    assert ci.key not in json.dumps(given)


def test_the_file_for_npm_is_private_and_is_removed(ci: Ci) -> None:
    _, given = ci.report()
    file = Path(given["environment"]["NPM_CONFIG_USERCONFIG"])

    assert given["mode"] == stat.S_IRUSR | stat.S_IWUSR
    assert not file.exists()
    assert not file.parent.exists()


def test_the_exchange_is_recorded_with_its_job(ci: Ci) -> None:
    ci.report(COUNTERSIGN_ID_TOKEN=ci.issuer.sign(jti="of the recorded run"))
    with ci.server.client() as client:
        rows = all_entries(client, event="install_token_issued")

    row = next(row for row in rows if row["token_id"] == "of the recorded run")
    assert (row["actor"], row["oidc_binding_id"]) == (ci.key_id, ci.binding)


def test_a_user_s_own_settings_for_npm_are_kept_but_for_the_registry(ci: Ci) -> None:
    own = ci.desk.folder / "own.npmrc"
    own.write_text(
        "registry = https://elsewhere.example/\n@acme:registry=https://npm.acme.example/"
    )
    _, given = ci.report(NPM_CONFIG_USERCONFIG=str(own), npm_config_userconfig=str(own))

    lines = given["npmrc"].splitlines()
    assert lines[0] == "@acme:registry=https://npm.acme.example/"
    assert "elsewhere" not in given["npmrc"]
    assert "npm_config_userconfig" not in given["environment"]
    assert own.exists()


def test_npm_alone_is_not_told_what_it_warns_of(ci: Ci) -> None:
    """`always-auth` is for yarn 1, and npm does not know it any more."""
    npm = ci.desk.folder / "npm"
    npm.write_text('#!/bin/sh\ncat "$NPM_CONFIG_USERCONFIG"\n')
    npm.chmod(0o755)
    ran = ci.run("--", str(npm), "ci")

    assert ran.code == 0
    assert "_authToken=csi_" in ran.out
    assert "always-auth" not in ran.out


def test_github_gives_the_token_and_hides_it(ci: Ci) -> None:
    with token_endpoint(ci_token := ci.issuer.sign(jti="github")) as url:
        ran, given = ci.report(
            COUNTERSIGN_ID_TOKEN="",
            GITHUB_ACTIONS="true",
            ACTIONS_ID_TOKEN_REQUEST_URL=url,
            ACTIONS_ID_TOKEN_REQUEST_TOKEN=REQUEST_TOKEN,
        )
    token = given["environment"]["YARN_NPM_AUTH_TOKEN"]
    hidden = [
        text
        for secret in (ci_token, token)
        for text in (secret, base64.b64encode(f"countersign:{secret}".encode()).decode())
    ]

    assert (ran.code, ran.out) == (7, "from the command\n")
    assert ran.err.splitlines() == [f"::add-mask::{text}" for text in hidden]


def test_another_variable_may_have_the_token(ci: Ci) -> None:
    ran, given = ci.report(
        "--token-env", "MY_TOKEN", COUNTERSIGN_ID_TOKEN="", MY_TOKEN=f"{ci.issuer.sign()}\n"
    )

    assert ran.code == 7
    assert "MY_TOKEN" not in given["environment"]


@sample(6)
@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"COUNTERSIGN_API_KEY": ""}, "COUNTERSIGN_API_KEY is empty: issue a key with"),
        ({"COUNTERSIGN_API_KEY": "csess_x"}, "COUNTERSIGN_API_KEY is no API key"),
        ({"COUNTERSIGN_SERVER": ""}, "name the server: --url URL"),
        ({"COUNTERSIGN_SERVER": "http://audit.example"}, "would send the credential unprotected"),
        ({"COUNTERSIGN_ORG": ""}, "name the organisation: --org SLUG"),
        ({"COUNTERSIGN_ORG": "unknown"}, "Org not found"),
        ({"COUNTERSIGN_ID_TOKEN": ""}, "no CI token: name the variable that has it"),
        ({"COUNTERSIGN_ID_TOKEN": "", "GITHUB_ACTIONS": "true"}, "id-token: write"),
        ({"COUNTERSIGN_ID_TOKEN": "", "GITLAB_CI": "true"}, "add `id_tokens: "),
        ({"COUNTERSIGN_ID_TOKEN": "", "CIRCLECI": "true"}, "circleci run oidc get"),
        ({"COUNTERSIGN_ID_TOKEN": "no token"}, "COUNTERSIGN_ID_TOKEN has no OIDC token"),
        ({"COUNTERSIGN_ID_TOKEN": "a.b.c"}, "malformed_jwt: "),
        ({"COUNTERSIGN_API_KEY": "cs_wrong"}, "does not accept the API key in COUNTERSIGN_API_KEY"),
    ],
    ids=str,
)
def test_what_is_missing_is_said_in_one_line(ci: Ci, variables: dict[str, str], text: str) -> None:
    ran = ci.run("--", "touch", str(ran_file := ci.desk.folder / "ran"), **variables)

    assert ran.code == REFUSED
    assert text in ran.refusal
    assert not ran_file.exists()
    assert ci.key not in ran.err


def test_a_job_that_is_not_trusted_is_told_why(ci: Ci) -> None:
    token = ci.issuer.sign(sub="repo:acme/other:ref:refs/heads/main")
    ran = ci.run("--", "true", COUNTERSIGN_ID_TOKEN=token)

    assert (ran.code, ran.refusal.partition(": ")[0]) == (REFUSED, "unbound_oidc_subject")
    assert "create one, on the page Rejected" in ran.refusal
    assert token not in ran.err


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (["no-such-command-here"], NOT_FOUND, "no command no-such-command-here"),
        (["/etc/hostname"], NOT_EXECUTABLE, "cannot run /etc/hostname: "),
        (["sh", "-c", "exit 3"], 3, ""),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM, ""),
        (["sh", "-c", "exit 0"], 0, ""),
    ],
    ids=str,
)
def test_the_exit_code_is_the_command_s(ci: Ci, command: list[str], code: int, text: str) -> None:
    ran = ci.run("--", *command)

    assert ran.code == code
    assert text in ran.err
    assert bool(text) == bool(ran.err)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command(ci: Ci, number: signal.Signals) -> None:
    """A job that is cancelled ends as it would without us, and nothing is left behind."""
    ready, heard = ci.desk.folder / "ready", ci.desk.folder / "heard"
    name = number.name.removeprefix("SIG")
    script = (
        f"trap 'echo $NPM_CONFIG_USERCONFIG > {heard}; exit 9' {name}; echo > {ready};"
        " while true; do sleep 0.05; done"
    )
    # A shell cannot trap what it was started to ignore, as `nohup` makes of SIGHUP.
    inherited = signal.signal(number, signal.SIG_DFL)
    process = start_module(
        CLI, "ci", "exec", "--", "sh", "-c", script, env=ci.environment(), stderr=subprocess.PIPE
    )
    signal.signal(number, inherited)
    try:
        eventually(ready.exists, "the command runs")
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 9
    finally:
        process.kill()
        process.communicate()
    assert not Path(heard.read_text().strip()).exists()


def test_a_dry_run_shows_and_does_nothing(ci: Ci) -> None:
    before = _issued(ci)
    people = ci.run("--dry-run", "--", "npm", "ci")
    scripts = ci.run("--dry-run", "--json", "--", "npm", "ci")

    assert (people.code, scripts.code) == (0, 0)
    assert "  npm ci" in people.out
    assert ":***@" in people.out
    assert scripts.json["command"] == ["npm", "ci"]
    assert scripts.json["token_from"] == "COUNTERSIGN_ID_TOKEN"
    assert scripts.json["left_out"] == ["COUNTERSIGN_API_KEY", "COUNTERSIGN_ID_TOKEN"]
    assert "csi_" not in people.out + scripts.out
    assert ci.key not in people.out + scripts.out
    assert _issued(ci) == before


def _issued(ci: Ci) -> int:
    with ci.server.client() as client:
        return len(all_entries(client, event="install_token_issued"))


def test_the_environment_is_shown_without_its_secrets(ci: Ci) -> None:
    ran = ci.run("--print-env", "--", "sh", "-c", "echo $YARN_NPM_AUTH_TOKEN")

    assert ran.out.startswith("csi_")
    assert "YARN_NPM_AUTH_TOKEN=***" in ran.err
    assert ran.out.strip() not in ran.err


def test_what_goes_past_the_proxy_is_warned_of(ci: Ci) -> None:
    """An extra index is asked by pip beside ours."""
    ran = ci.run("--", "true", PIP_EXTRA_INDEX_URL="https://user:secret@elsewhere.example/simple")

    assert ran.code == 0
    assert "PIP_EXTRA_INDEX_URL is set: packages from there are neither checked" in ran.err
    assert "secret" not in ran.err


@only_full
def test_a_server_that_is_away_is_said_after_some_tries(ci: Ci) -> None:
    """Exit code 3: trying the job again may help."""
    ran = ci.run("--", "true", COUNTERSIGN_SERVER="http://127.0.0.1:1")

    assert ran.code == UNAVAILABLE
    assert ran.refusal.startswith("cannot reach http://127.0.0.1:1")


def test_it_starts_without_the_web_framework_and_the_database() -> None:
    """It runs before every install of every job."""
    code = (
        "import sys; import service.cli.ci;"
        " sys.exit(bool({'quart', 'duckdb', 'pyarrow', 'sqlalchemy'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, check=False
    )

    assert ran.returncode == 0, ran.stderr.decode()
