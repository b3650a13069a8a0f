"""The shell blocks of the documentation, and which of them tests cannot run."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from textwrap import dedent
from typing import Final

from service.core.settings import REPOSITORY

_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_EXIT_CODE: Final = re.compile(r"# exits with (\d+)")
_STATUS: Final = re.compile(r"# answers ([45]\d\d)")
_CURL_REFUSED: Final = 22

WHOLE: Final = frozenset(
    {
        "README.md",
        "docs/api.md",
        "docs/recipes/fix-a-rejected-job.md",
        "docs/recipes/hand-a-year-to-an-auditor.md",
        "docs/recipes/investigate-a-bad-package.md",
    }
)
"""Pages that are read from top to bottom: their blocks run in one shell."""

ALTERNATIVES: Final = frozenset({"docs/install-proxy.md"})
"""Pages of which a reader takes one block: each runs in a shell of its own."""


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    section: str
    language: str
    text: str

    @property
    def exit_code(self) -> int:
        """With which code it ends: 0, unless a comment says `# exits with N` or `# answers 4NN`."""
        code = _EXIT_CODE.search(self.text)
        if code is None:
            return _CURL_REFUSED if self.status else 0
        return int(code[1])

    @property
    def status(self) -> str:
        """The status of the refusal that its last request gets; empty for none."""
        status = _STATUS.search(self.text)
        return "" if status is None else status[1]

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.first_line}"


def pages() -> list[str]:
    """The documents that show commands."""
    paths = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    paths += sorted((REPOSITORY / "docs").glob("**/*.md"))
    return [str(path.relative_to(REPOSITORY)) for path in paths]


def fenced_blocks(page: str) -> Iterator[Block]:
    text = (REPOSITORY / page).read_text()
    for fence in _FENCE.finditer(text):
        before = text[: fence.start()]
        headings = re.findall(r"^## (.*)$", before, re.MULTILINE)
        section = headings[-1] if headings else ""
        yield Block(page, before.count("\n") + 2, section, fence[2], dedent(fence[3]))


def shell_blocks(page: str) -> list[Block]:
    return [block for block in fenced_blocks(page) if block.language == "sh"]


def runnable_blocks(page: str) -> list[Block]:
    """Those that tests run."""
    return [block for block in shell_blocks(page) if not left_out(block)]


def left_out(block: Block) -> list[tuple[str, str]]:
    """The entries of NOT_RUN that name `block`."""
    return [
        (page, beginning)
        for page, beginning in NOT_RUN
        if page == block.page and block.text.startswith(beginning)
    ]


def shells(page: str) -> list[list[Block]]:
    """The blocks that run, by the shell that they share: the page's, a section's, or their own."""
    blocks = runnable_blocks(page)
    if page in WHOLE:
        return [blocks]
    if page in ALTERNATIVES:
        return [[block] for block in blocks]
    return [list(group) for _, group in groupby(blocks, key=lambda block: block.section)]


_ROOT: Final = "needs root and systemd; test_deployment.py tests the files that it installs"
_POSTGRESQL: Final = (
    "needs a backup of PostgreSQL, and the page takes one of SQLite; "
    "tests/service/audit/backup/test_postgresql.py does the same"
)
_S3: Final = (
    "needs segments in a bucket that keeps versions; "
    "tests/service/audit/backup/test_by_version.py does the same"
)
_CTRL_C: Final = "runs until Ctrl-C; tests/processes/test_cli_remote.py follows rows"
_RUN: Final = "waits for a browser; tests/processes/test_cli_run.py signs in, and installs"
_DOCKER: Final = "needs docker; test_deployment.py serves what the image contains"

NOT_RUN: Final[Mapping[tuple[str, str], str]] = {
    ("README.md", "make demo "): "all other blocks run against this demo; `make test` runs them",
    ("README.md", "make serve "): "serves until Ctrl-C; tests/processes/ starts servers",
    ("docs/fleet.md", "make fleet"): "needs the cores of a whole fleet",
    ("docs/fleet.md", "make .venv/.installed-dev"): "takes half an hour",
    ("docs/deployment.md", "VERSION=…"): _ROOT,
    ("docs/deployment.md", "cd /opt/countersign/docs/deployment"): _ROOT,
    ("docs/deployment.md", "systemctl daemon-reload"): _ROOT,
    ("docs/deployment.md", "curl -sS https://audit.example.com/readyz"): _ROOT,
    ("docs/deployment.md", "systemctl start countersign-backup            # now"): _ROOT,
    ("docs/deployment.md", "systemctl start countersign-backup            # returns"): _ROOT,
    ("docs/deployment.md", "systemctl stop countersign"): _ROOT,
    ("docs/deployment.md", "VERSION=$(git "): _DOCKER,
    ("docs/deployment.md", "docker exec "): _DOCKER,
    ("docs/deployment.md", "docker run "): _DOCKER,
    ("docs/api.md", "npx "): "fetches a tool from npm; tests/openapi/test_other_tools.py runs it",
    ("docs/api.md", "pip install openapi-python-client"): (
        "takes five seconds; tests/openapi/test_python_client.py runs it, and uses the client"
    ),
    ("docs/evidence.md", "openssl ts "): (
        "an authority answers in between; tests/evidence/test_timestamps.py is one"
    ),
    ("docs/command-line.md", "countersign login https://audit.example\n"): (
        "waits for a browser; tests/browser/ approves it"
    ),
    ("docs/command-line.md", "countersign run -- pip"): _RUN,
    ("docs/install-proxy.md", "countersign login "): _RUN,
    ("docs/install-proxy.md", "make client "): (
        "needs a checkout; tests/processes/test_client.py installs the wheel, and uses it"
    ),
    ("docs/recipes/investigate-a-bad-package.md", "countersign audit query --follow "): _CTRL_C,
    ("docs/command-line.md", "countersign audit query --follow "): _CTRL_C,
    ("docs/operations.md", "aws s3api create-bucket"): (
        "needs AWS's command; tests/processes/test_cli_s3.py runs the probe"
    ),
    ("docs/run-book.md", "countersign backup --by-version"): _S3,
    ("docs/run-book.md", "createdb --owner=countersign restored"): _POSTGRESQL,
}
"""Page and beginning of each block that is left out, and why."""
