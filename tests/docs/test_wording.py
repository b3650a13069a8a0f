"""Documentation, pages and code are written in plain words."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from service.core.settings import REPOSITORY

GLOBS: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/**/*.md",
    "service/**/*.py",
    "analytics/**/*.py",
    "benchmarks/**/*.py",
    "templates/**/*.html",
    "templates/static/*",
)
"""What is checked. CHANGELOG.md is not: it is history."""

TEST_GLOBS: Final = ("tests/**/*.py", "data/*.toml")
"""What is checked for BANNED but for `whatever`, which tests of properties say often."""

BANNED: Final = (
    r"nobody",
    r"somebody",
    r"whoever",
    r"anybody",
    r"everybody",
    r"whatever",
    r"mend(?:s|ed|ing)?",
    r"turn(?:s|ed|ing)? away",
    r"tak(?:e|es|en|ing) away",
    r"took away",
    r"for good",
    r"stands? here",
    r"stamped",
    r"aside",
    r"thrice",
    r"for ever",
    r"found out",
    r"stands? still",
    r"at hand",
    r"in the making",
)


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Any of `words`, also between the underscores of a name."""
    either = "|".join(words).replace(" ", r"[\s_]+")
    return re.compile(rf"(?<![a-z0-9])(?:{either})(?![a-z0-9])", re.IGNORECASE | re.ASCII)


_BANNED: Final = _pattern(BANNED)
_BANNED_IN_TESTS: Final = _pattern(word for word in BANNED if word != "whatever")
DOCUMENTS: Final = sorted(
    str(path.relative_to(REPOSITORY))
    for pattern in ("*.md", "docs/**/*.md")
    for path in REPOSITORY.glob(pattern)
)

_GAP: Final = re.compile(r"^- [^\n]*(?:\n {2}[^\n]*)*\n(?=\n- )", re.MULTILINE)
"""An item of a list before a blank line and another item."""

_GENERATED: Final = re.compile(r"<!-- made by .*? -->.*?<!-- end: .*? -->", re.DOTALL)
"""Text that a program writes into a document: its words are the program's."""


def checked_files(globs: Iterable[str]) -> list[Path]:
    found = sorted(path for pattern in globs for path in REPOSITORY.glob(pattern))
    return [path for path in found if path != Path(__file__)]


def without_generated(text: str) -> str:
    """`text` with its generated parts blank, line by line, so that line numbers stay."""
    return _GENERATED.sub(lambda part: "\n" * part[0].count("\n"), text)


def banned_words(text: str, banned: re.Pattern[str] = _BANNED) -> Iterator[str]:
    for word in banned.finditer(text):
        line = text.count("\n", 0, word.start()) + 1
        yield f"line {line}: {' '.join(word[0].split())}"


@pytest.mark.parametrize(
    ("globs", "banned"), [(GLOBS, _BANNED), (TEST_GLOBS, _BANNED_IN_TESTS)], ids=["code", "tests"]
)
def test_no_banned_word_occurs(globs: Sequence[str], banned: re.Pattern[str]) -> None:
    """The field has a term for what each of them means."""
    found = {
        str(path.relative_to(REPOSITORY)): words
        for path in checked_files(globs)
        if (words := list(banned_words(without_generated(path.read_text()), banned)))
    }

    assert found == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=str)
def test_lists_have_no_blank_lines(path: str) -> None:
    text = (REPOSITORY / path).read_text()
    gaps = [text.count("\n", 0, gap.end()) for gap in _GAP.finditer(text)]

    assert gaps == []


def test_every_glob_names_a_file() -> None:
    """A folder that moves must not leave the test with nothing to check."""
    assert all(list(REPOSITORY.glob(pattern)) for pattern in (*GLOBS, *TEST_GLOBS))


@pytest.mark.parametrize(
    "text", ["Nobody", "is mended", "turned\naway", "kept for good.", "is_nobody"]
)
def test_a_banned_word_is_found(text: str) -> None:
    assert list(banned_words(text))


@pytest.mark.parametrize("text", ["amend", "recommended", "considered", "for goods", "beside"])
def test_a_word_that_contains_a_banned_one_is_not(text: str) -> None:
    assert not list(banned_words(text))
