"""The comparison with OWASP ASVS and the list of keys name what there is."""

import re
from itertools import takewhile

import pytest

from service.core.settings import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "security-model.md").read_text()
CHAPTERS = 17
PATH = re.compile(r"`((?:tests|service|analytics|templates)/[\w/.]+)`")


def rows_below(heading: str) -> list[list[str]]:
    """The cells of each row of the first table below `heading`, without the table's head."""
    _, _, text = DOCUMENT.partition(f"\n## {heading}\n")
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| "))
    table = takewhile(lambda line: line.startswith("|"), lines[first + 2 :])
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def test_every_chapter_has_one_line() -> None:
    rows = rows_below("OWASP ASVS 5.0")

    assert [row[0].split()[0] for row in rows] == [f"V{number + 1}" for number in range(CHAPTERS)]
    assert {len(row) for row in rows} == {4}
    assert all(all(row) for row in rows)


def test_every_chapter_that_applies_names_tests() -> None:
    """Only WebRTC does not apply."""
    untested = [row[0] for row in rows_below("OWASP ASVS 5.0") if "`tests/" not in row[2]]

    assert untested == ["V17 WebRTC"]


@pytest.mark.parametrize("path", sorted(set(PATH.findall(DOCUMENT))))
def test_every_file_that_is_named_exists(path: str) -> None:
    assert (REPOSITORY / path).exists()


def test_every_requirement_is_named_in_its_own_chapter() -> None:
    """A number such as 3.3.1 belongs to the line of V3."""
    for chapter, *_, gaps in rows_below("OWASP ASVS 5.0"):
        numbers = re.findall(r"(?<![\w.])(\d+)\.\d+", gaps)

        assert set(numbers) <= {chapter.split()[0][1:]}, chapter


def test_every_derived_key_is_in_the_inventory() -> None:
    call = re.compile(r"(?:derive_key|Signer)\([^()]*secret_key, \"([^\"]+)\"\)")
    named = {
        purpose
        for path in (REPOSITORY / "service").rglob("*.py")
        for purpose in call.findall(path.read_text())
    }
    inventory = {name for row in rows_below("Cryptography") for name in row[0].split("`")[1::2]}

    assert named
    assert inventory == named
