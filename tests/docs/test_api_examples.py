"""Every shell example of the API page works when pasted."""

import gzip
import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.clock import utc_now
from service.settings import REPOSITORY
from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN, ISSUER, binding_body, bindings_path
from tests.docs.programs import add_countersign
from tests.issuers.fixtures import IssuerProcess, issuer_process
from tests.processes.homes import Home, Server, all_bindings

__all__ = ["issuer_process"]  # a fixture

pytestmark = pytest.mark.slow


def shell_blocks(name: str = "api.md") -> list[str]:
    """The page's shell blocks, without what sets the variables and what generates clients.

    Those of clients run in tests/openapi.
    """
    text = (REPOSITORY / "docs" / name).read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [block for block in blocks if not re.match("pip |npx |.*TOKEN=…", block, re.DOTALL)]


def paste(block: str, server: Server, folder: Path, **variables: str) -> None:
    """Run a shell block in `folder`; it has to succeed."""
    environment = {
        "URL": server.url,
        "TOKEN": ADMIN_TOKEN,
        "ORG": "acme",
        "PATH": f"{add_countersign(folder)}:/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "HOME": str(folder),
        **variables,
    }
    script = block.replace("curl -s", "curl -sS --fail-with-body")
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 0, f"{block}\n{run.stdout}\n{run.stderr}"


def job_of(issuer: IssuerProcess, home: Home) -> tuple[Server, dict[str, str]]:
    """A server that trusts a job of `issuer`, and the variables of that job."""
    accepted = (REPOSITORY / "data" / "issuers.toml").read_text() + issuer.table("of_the_test")
    (file := home.folder / "issuers.toml").write_text(accepted)
    home.settings["issuers_file"] = str(file)
    key = home.run("apikey", "issue", "--org", "acme", "--name", "ci", "--json").json["secret"]
    server = home.serve()
    with server.client() as client:
        body = binding_body(issuer=issuer.url)
        assert client.post(bindings_path(), json=body).status_code == 201
    return server, {"KEY": key, "CI_TOKEN": issuer.sign()}


def test_every_line_to_paste_works(
    home: Home, issuer_process: IssuerProcess, tmp_path: Path
) -> None:
    """In the page's order, against one server, like a reader who tries each of them."""
    server, job = job_of(issuer_process, home)
    blocks = shell_blocks()

    for block in blocks:
        paste(block, server, tmp_path, **job)

    assert len(blocks) >= 12
    assert (tmp_path / "audit.csv").read_text().startswith("id,created_at,event,")
    assert (tmp_path / "audit.parquet").read_bytes().startswith(b"PAR1")
    lines = gzip.decompress((tmp_path / "audit.ndjson.gz").read_bytes()).splitlines()
    assert [json.loads(line)["decision"] for line in lines] == ["BLOCKED"]
    assert json.loads((tmp_path / "audit.json").read_bytes())
    receipt = json.loads((tmp_path / "year.csv.receipt.json").read_bytes())
    assert receipt["bytes"] == (tmp_path / "year.csv").stat().st_size
    with server.client() as client:
        endpoints = client.get("/openapi.json").json()["paths"]
    page = (REPOSITORY / "docs" / "api.md").read_text()
    for path in endpoints:
        shown = path.replace("{slug}", "<slug>").replace("{binding_id}", "<id>")
        assert re.sub(r"\{(?:audit|search|export|exception)_id\}", "<id>", shown) in page


@pytest.mark.parametrize("events", [["push"], None], ids=["other event", "no binding"])
def test_the_recipe_for_a_rejected_job_trusts_it(
    home: Home, tmp_path: Path, events: list[str] | None
) -> None:
    """Its lines replace the binding that lists other events, or create the missing one."""
    server = home.serve()
    body = {
        "issuer": ISSUER,
        "sub_pattern": "repo:acme/docs:ref:refs/heads/main",
        "repository_id": "987654321",
        "event_names": events,
        "origin": "org_admin",
    }
    with server.client() as client:
        if events is not None:
            assert client.post(bindings_path(), json=body).status_code == 201

        for block in shell_blocks("recipes/fix-a-rejected-job.md"):
            paste(block, server, tmp_path)

        active = [one for one in all_bindings(client) if one["revokedAt"] is None]
    assert [one["eventNames"] for one in active] == [[*(events or []), "schedule"]]


def installs() -> list[dict[str, Any]]:
    """Rows to import: a run that installed the bad version, one that was blocked, and no run."""
    ci = {"sub": "repo:acme/app:ref:refs/heads/main", "repository_id": "41", "run_id": "777"}
    bad = {"packageName": "event-stream", "version": "3.3.6", "ecosystem": "npm"}
    job = {"actor": "key_5d7f9h1k3m5p7r9t", "actor_source": "oidc_github", "subject": ci["sub"]}
    allowed, blocked = "install_allowed", "blocklist_hit"
    rule = {"rule_id": "GHSA-mh6f-8j2x-4483", "source": "osv"}
    rows = [
        job | bad | {"event": allowed, "payload": {"ci": ci}},
        job | {"event": allowed, "packageName": "flatmap-stream", "payload": {"ci": ci}},
        job | bad | {"event": blocked, "payload": rule | {"ci": ci | {"run_id": "778"}}},
        bad | {"event": allowed, "actor": "key_human", "actor_source": "api_key"},
        {"event": allowed, "packageName": "left-pad", "version": "1.3.0"},
    ]
    at = utc_now().replace(microsecond=0)
    return [
        row | {"created_at": (at - timedelta(minutes=number)).isoformat()}
        for number, row in enumerate(rows)
    ]


@only_full
def test_the_recipe_for_a_bad_package_finds_who_installed_it(home: Home, tmp_path: Path) -> None:
    """Its lines find the installs, their runs, and what else these asked for."""
    file = tmp_path / "rows.ndjson"
    file.write_text("\n".join(json.dumps(row) for row in installs()))
    assert home.run("audit", "import", "--org", "acme", str(file)).code == 0
    folder = tmp_path / "desk"
    folder.mkdir()
    server = home.serve()

    for block in shell_blocks("recipes/investigate-a-bad-package.md"):
        paste(block, server, folder)

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text())

    assert len(read("rows.json")["entries"]) == 2
    assert read("unknown.json")["unknown"] == []
    assert {group["values"]["run_id"] for group in read("jobs.json")["groups"]} == {"777", None}
    packages = [group["values"]["package"] for group in read("packages.ndjson")["groups"]]
    assert sorted(packages) == ["event-stream", "flatmap-stream"]
    for name in ("event-stream.csv", "evidence.csv"):
        assert (folder / name).read_text().count("event-stream,3.3.6") == 3
    assert read("event-stream.csv.receipt.json")["rows"] == 3
    assert len(read("found.json")["entries"]) == 3
    assert read("row.json")["entries"][0]["run_id"] == "777"
