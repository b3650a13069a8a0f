"""The jobs of the CI page: their YAML parses, and their lines report rows that name the job."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from service.core.settings import REPOSITORY
from tests.budgets import only_full
from tests.conftest import binding_body, bindings_path
from tests.docs.programs import add_countersign, add_jq, add_program
from tests.issuers.fixtures import IssuerProcess, issuer_process
from tests.polling import HANG_S
from tests.processes.homes import Home, Server

__all__ = ["issuer_process"]  # a fixture

pytestmark = pytest.mark.slow

EVENTS: Final = "https://audit.example.com/api/v1/admin/orgs/acme/audit/events"
REQUEST_TOKEN: Final = "of-this-job"


def documents() -> list[dict[str, Any]]:
    """The page's YAML: GitHub's job, GitLab's, CircleCI's, and the workflow of the bindings."""
    page = (REPOSITORY / "docs" / "ci.md").read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]


def github_script() -> str:
    steps = documents()[0]["jobs"]["build"]["steps"]
    assert steps[1]["env"]["EVENTS"] == EVENTS
    return str(steps[1]["run"])


def gitlab_script() -> str:
    job = documents()[1]["report installs"]
    assert job["variables"]["EVENTS"] == EVENTS
    return "\n".join(job["script"])


def circleci_script() -> str:
    job = documents()[2]["jobs"]["build"]
    assert job["environment"]["EVENTS"] == EVENTS
    return str(job["steps"][1]["run"]["command"])


@contextmanager
def token_endpoint(token: str) -> Iterator[str]:
    """GitHub's endpoint for tokens: its URL, which gives `token` for our audience only."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            is_ours = asked == {"api-version": ["2.0"], "audience": ["countersign"]}
            is_known = self.headers["authorization"] == f"bearer {REQUEST_TOKEN}"
            self.send_response(200 if is_ours and is_known else 400)
            self.end_headers()
            self.wfile.write(json.dumps({"value": token}).encode())

        def log_message(self, *_: Any) -> None:
            """Tests print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token?api-version=2.0"
        finally:
            server.shutdown()
            thread.join()


def run_script(script: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a job's shell lines, as providers do; what they print."""
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin"} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def report(script: str, server: Server, key: str, folder: Path, **variables: str) -> str:
    """Run the lines that report installs, against `server`."""
    row = {"event": "install_allowed", "packageName": "left-pad", "version": "1.3.0"}
    (folder / "installs.json").write_text(json.dumps([row]))
    events = EVENTS.replace("https://audit.example.com", server.url)
    return run_script(script, folder, {"EVENTS": events, "COUNTERSIGN_API_KEY": key, **variables})


def test_each_job_reports_rows_that_name_it(
    home: Home, issuer_process: IssuerProcess, tmp_path: Path
) -> None:
    """A stand-in plays what the provider's machine offers."""
    home.settings["issuers_file"] = str(issuer_process.file(home.folder))
    issued = home.run(
        "apikey", "issue", "--org", "acme", "--name", "ci", "--scope", "audit:ingest", "--json"
    )
    key = str(issued.json["secret"])
    server = home.serve()
    (programs := tmp_path / "bin").mkdir()
    add_jq(programs)
    with server.client() as client:
        body = binding_body(issuer=issuer_process.url)
        binding = client.post(bindings_path(), json=body).json()["id"]
        with token_endpoint(token := issuer_process.sign(jti="github")) as url:
            said = report(
                github_script(),
                server,
                key,
                tmp_path,
                ACTIONS_ID_TOKEN_REQUEST_URL=url,
                ACTIONS_ID_TOKEN_REQUEST_TOKEN=REQUEST_TOKEN,
                GITHUB_RUN_ID="7",
                GITHUB_RUN_ATTEMPT="1",
                GITHUB_JOB="build",
            )
        assert f"::add-mask::{token}\n" in said
        token = issuer_process.sign(jti="gitlab")
        report(gitlab_script(), server, key, tmp_path, COUNTERSIGN_TOKEN=token, CI_JOB_ID="8")
        asked = """test "$*" = 'run oidc get --claims {"aud": "countersign"}'"""
        token = issuer_process.sign(jti="circleci")
        add_program(programs, "circleci", f"set -e\n{asked}\necho {token}")
        report(circleci_script(), server, key, tmp_path, CIRCLE_WORKFLOW_JOB_ID="9")
        rows = client.get("/api/v1/admin/orgs/acme/audit?package=left-pad").json()["entries"]

    assert {row["oidc_binding_id"] for row in rows} == {binding}
    assert [row["token_id"] for row in rows] == ["circleci", "gitlab", "github"]


def test_a_job_gets_a_token_for_this_service_alone() -> None:
    github, gitlab, _, bindings = documents()

    assert github["permissions"] == {"contents": "read", "id-token": "write"}
    assert gitlab["report installs"]["id_tokens"] == {"COUNTERSIGN_TOKEN": {"aud": "countersign"}}
    assert bindings["permissions"] == {"contents": "read"}


@only_full
def test_bindings_are_planned_and_applied_over_ssh(home: Home, tmp_path: Path) -> None:
    """The workflow's lines, with an `ssh` that runs the forced command of its key."""
    page = (REPOSITORY / "docs" / "ci.md").read_text()
    forced = re.findall(r'^restrict,command="sudo -u countersign (.*?)"', page, re.MULTILINE)
    allowed = re.findall(r"NOPASSWD: (.*)$", page, re.MULTILINE)
    assert allowed == forced
    programs = add_countersign(tmp_path)
    deployment = REPOSITORY / "docs" / "deployment"
    script = (deployment / "countersign-sync").read_text()
    sync = programs / "countersign-sync"
    sync.write_text(script.replace("/usr/local/bin/", f"{programs}/"))
    sync.chmod(0o755)
    (tmp_path / "bindings.toml").write_text(
        'issuer = "https://token.actions.githubusercontent.com"\n[[bindings]]\n'
        'sub_pattern = "repo:acme/app:ref:refs/heads/main"\nrepository_id = "41"\n'
    )
    jobs = documents()[3]["jobs"]
    summary = tmp_path / "summary.md"
    environment = home.environment() | {
        "PATH": f"{programs}:/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "GITHUB_STEP_SUMMARY": str(summary),
    }

    for command, job in zip(forced, ("plan", "apply"), strict=True):
        arguments = command.removeprefix("/usr/local/bin/countersign-sync ")
        add_program(programs, "ssh", f"exec {sync} {arguments}")
        run_script(jobs[job]["steps"][1]["run"], tmp_path, environment)
        assert len(home.listed("bindings", "list", "--org", "acme")) == (job == "apply")

    assert "    1 to create" in summary.read_text()
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
