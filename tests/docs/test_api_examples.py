"""Every shell example of the API page works when pasted."""

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest

from service.settings import REPOSITORY
from tests.conftest import ADMIN_TOKEN
from tests.processes.homes import Home

pytestmark = pytest.mark.slow


def shell_blocks() -> list[str]:
    """The page's shell blocks, the one that sets the variables left out."""
    text = (REPOSITORY / "docs" / "api.md").read_text()
    return [block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "curl" in block]


def test_every_line_to_paste_works(home: Home, tmp_path: Path) -> None:
    """In the page's order, against one server, like a reader who tries each of them."""
    server = home.serve()
    environment = {"URL": server.url, "TOKEN": ADMIN_TOKEN, "ORG": "acme", "PATH": "/usr/bin:/bin"}
    blocks = shell_blocks()

    for block in blocks:
        run = subprocess.run(
            [
                "bash",
                "-euo",
                "pipefail",
                "-c",
                block.replace("curl -s", "curl -sS --fail-with-body"),
            ],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert run.returncode == 0, f"{block}\n{run.stdout}\n{run.stderr}"

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
