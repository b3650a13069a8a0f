"""Every shell example of the API page works when pasted."""

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest

from service.settings import REPOSITORY
from tests.conftest import ADMIN_TOKEN, ISSUER, bindings_path
from tests.processes.homes import Home, Server, all_bindings

pytestmark = pytest.mark.slow


def shell_blocks(name: str = "api.md") -> list[str]:
    """The page's shell blocks, the one that sets the variables left out."""
    text = (REPOSITORY / "docs" / name).read_text()
    return [block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "curl" in block]


def paste(block: str, server: Server, folder: Path) -> None:
    """Run a shell block in `folder`; it has to succeed."""
    environment = {"URL": server.url, "TOKEN": ADMIN_TOKEN, "ORG": "acme", "PATH": "/usr/bin:/bin"}
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


def test_every_line_to_paste_works(home: Home, tmp_path: Path) -> None:
    """In the page's order, against one server, like a reader who tries each of them."""
    server = home.serve()
    blocks = shell_blocks()

    for block in blocks:
        paste(block, server, tmp_path)

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
        assert re.sub(r"\{(?:audit|search|export)_id\}", "<id>", shown) in page


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
