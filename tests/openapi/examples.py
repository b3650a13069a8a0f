"""The lines of docs/api.md that generate clients, and where they run."""

import os
import re
import subprocess
import sys
from pathlib import Path

from service.core.settings import REPOSITORY
from tests.conftest import ADMIN_TOKEN

TOOLS = Path(os.environ.get("OPENAPI_TOOLS") or REPOSITORY / ".openapi")


def block_of_docs(language: str, beginning: str) -> str:
    """The block of docs/api.md that begins so."""
    text = (REPOSITORY / "docs" / "api.md").read_text()
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (block,) = [block for block in blocks if block.startswith(beginning)]
    return block


def run(*command: str | Path, folder: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program in `folder`, with the variables that a reader of the docs has set.

    It finds what is installed here, and asks no registry for more.
    """
    programs = [Path(sys.executable).parent, TOOLS / "node_modules" / ".bin", os.environ["PATH"]]
    quiet = {"PIP_NO_INDEX": "1", "NPM_CONFIG_OFFLINE": "true", "REDOCLY_TELEMETRY": "off"}
    reader = {"URL": url, "TOKEN": ADMIN_TOKEN, "ORG": "acme", "HOME": str(folder)}
    return subprocess.run(
        command,
        env=quiet | reader | {"PATH": os.pathsep.join(map(str, programs))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
