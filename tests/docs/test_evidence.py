"""docs/evidence.md: its short verifier works as printed, and its examples are what it says."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from analytics.evidence import bundle
from analytics.evidence.canonical import COLUMNS
from service.core.settings import REPOSITORY
from tests.docs.shell_blocks import fenced_blocks
from tests.evidence.logs import Log
from tests.polling import HANG_S

PAGE = "docs/evidence.md"
TEXT = (REPOSITORY / PAGE).read_text()
EXAMPLE = REPOSITORY / "docs" / "evidence"
LOG = Log(20)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (block,) = (block for block in fenced_blocks(PAGE) if block.language == "python")
    path = tmp_path_factory.mktemp("verifier") / "prove.py"
    path.write_text(block.text)
    return path


def run(verifier: Path, entry: bytes, proof: str, key: str) -> subprocess.CompletedProcess[str]:
    folder = verifier.parent
    (folder / "entry").write_bytes(entry)
    (folder / "proof").write_text(proof)
    return subprocess.run(
        [sys.executable, verifier, folder / "entry", folder / "proof", key],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


def test_the_short_verifier_proves_the_example(verifier: Path) -> None:
    parts = [(EXAMPLE / name).read_text() for name in ("entry.json", "row.tlog-proof", "log.vkey")]
    ran = run(verifier, parts[0].encode(), *parts[1:])
    assert ran.stdout == "proved: row 1 of the 3 rows of audit.example/org_acme\n"
    note = parts[1].partition("\n\n")[2]
    assert f"```text\n{note}```" in TEXT
    assert f"such as `{parts[2][:32]}" in TEXT


@pytest.mark.parametrize(("index", "size"), [(0, 1), (0, 20), (6, 7), (11, 20), (19, 20)])
def test_the_short_verifier_proves_each_row(verifier: Path, index: int, size: int) -> None:
    proof = LOG.proof(index, LOG.checkpoint(size))
    ran = run(verifier, LOG.entries[index] + b"\n", proof, str(LOG.key))
    assert ran.stdout == f"proved: row {index} of the {size} rows of {LOG.origin}\n", ran.stderr


Parts = tuple[bytes, str, str]


def case(change: Callable[[bytes, str, str], Parts]) -> Parts:
    return change(LOG.entries[11], LOG.proof(11), str(LOG.key))


HASH = "A" * 43 + "="


def without_hash(proof: str) -> str:
    lines = proof.splitlines(keepends=True)
    return "".join(lines[:2] + lines[3:])


OTHER = Log(20, tenant_id="org_other")
OTHER_KEY = Log(20, seed="another key")
REFUSED = {
    "a changed row": case(lambda e, p, k: (e.replace(b"blocklist_hit", b"x"), p, k)),
    "another row": case(lambda e, p, k: (LOG.entries[12], p, k)),
    "another index": case(lambda e, p, k: (e, p.replace("index 11", "index 12"), k)),
    "an index that is not there": case(lambda e, p, k: (e, p.replace("index 11", "index 27"), k)),
    "a negative index": case(lambda e, p, k: (e, p.replace("index 11", "index -11"), k)),
    "a changed checkpoint": case(lambda e, p, k: (e, p.replace("\n20\n", "\n21\n"), k)),
    "another key": case(lambda e, p, k: (e, p, str(OTHER_KEY.key))),
    "another key's proof": case(lambda e, p, k: (e, OTHER_KEY.proof(11), k)),
    "another organisation": case(lambda e, p, k: (e, OTHER.proof(11), k)),
    "a hash too few": case(lambda e, p, k: (e, without_hash(p), k)),
    "a hash too many": case(lambda e, p, k: (e, p.replace("index 11\n", f"index 11\n{HASH}\n"), k)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_short_verifier_refuses(verifier: Path, what: str) -> None:
    ran = run(verifier, *REFUSED[what])
    assert (ran.returncode, ran.stdout) == (1, "")


def test_the_short_verifier_is_short() -> None:
    (block,) = (block for block in fenced_blocks(PAGE) if block.language == "python")
    lines = [line for line in block.text.splitlines() if line.strip()]
    assert len(lines) <= 26
    imported = {line.split()[1].partition(".")[0] for line in lines if line.startswith("from ")}
    assert imported == {"cryptography"}


def test_all_members_of_an_entry_are_named() -> None:
    table = TEXT[TEXT.index("| members | spelling |") : TEXT.index("These bytes never change")]
    for name in (*COLUMNS, "nonce", "v"):
        assert f"`{name}`" in table
    assert f"{len(COLUMNS) + 2} members" in TEXT


@pytest.mark.parametrize("name", bundle.FILES)
def test_all_files_of_a_bundle_are_named(name: str) -> None:
    table = TEXT[TEXT.index("| file | what it is |") : TEXT.index("Which rows a bundle has")]
    assert f"`{name}`" in table
    assert name in bundle.README_TEXT or name == bundle.README
