"""Documentation, pages and code are written in plain words."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from service.settings import REPOSITORY

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
)
_BANNED: Final = re.compile(
    rf"\b(?:{'|'.join(BANNED)})\b".replace(" ", r"\s+"), re.IGNORECASE | re.ASCII
)
_GENERATED: Final = re.compile(r"<!-- made by .*? -->.*?<!-- end: .*? -->", re.DOTALL)
"""Text that a program writes into a document: its words are the program's."""


def checked_files() -> list[Path]:
    """Every file that GLOBS name."""
    return sorted(path for pattern in GLOBS for path in REPOSITORY.glob(pattern))


def without_generated(text: str) -> str:
    """`text` with its generated parts blank, line by line, so that line numbers stay."""
    return _GENERATED.sub(lambda part: "\n" * part[0].count("\n"), text)


def banned_words(text: str) -> Iterator[str]:
    """Each banned word of `text`, with the number of its line."""
    for word in _BANNED.finditer(text):
        line = text.count("\n", 0, word.start()) + 1
        yield f"line {line}: {' '.join(word[0].split())}"


def test_no_banned_word_occurs() -> None:
    """Each of them makes a sentence a riddle; the field has a term for what is meant."""
    found = {
        str(path.relative_to(REPOSITORY)): words
        for path in checked_files()
        if (words := list(banned_words(without_generated(path.read_text()))))
    }

    assert found == {}


def test_every_glob_names_a_file() -> None:
    """A folder that moves must not leave the test with nothing to check."""
    assert all(list(REPOSITORY.glob(pattern)) for pattern in GLOBS)


@pytest.mark.parametrize("text", ["Nobody", "is mended", "turned\naway", "kept for good."])
def test_a_banned_word_is_found(text: str) -> None:
    """In any case, and across a line break."""
    assert list(banned_words(text))


@pytest.mark.parametrize("text", ["amend", "recommended", "considered", "for goods", "beside"])
def test_a_word_that_contains_a_banned_one_is_not(text: str) -> None:
    """Whole words alone count."""
    assert not list(banned_words(text))
