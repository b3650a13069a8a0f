"""Which texts are compared by character."""

import random

import pytest

from service.trust.explain.text_diff import EDITS_MAX, difference_of


def edits(first: str, second: str) -> int:
    """The Levenshtein distance, by its definition."""
    row = list(range(len(second) + 1))
    for at, character in enumerate(first, 1):
        above, row = row, [at]
        for column, other in enumerate(second, 1):
            replaced = above[column - 1] + (character != other)
            row.append(min(replaced, above[column] + 1, row[-1] + 1))
    return row[-1]


def limit(first: str, second: str) -> int:
    longer = max(len(first), len(second))
    return min(EDITS_MAX, max(longer // 4, 2), longer // 2)


@pytest.mark.parametrize("seed", range(300))
def test_texts_a_few_edits_apart_are_compared(seed):
    chosen = random.Random(seed)
    first = "".join(chosen.choices("abc", k=chosen.randint(1, 40)))
    second = list(first)
    for _ in range(chosen.randint(1, 12)):
        at = chosen.randint(0, len(second))
        second[at : at + chosen.randint(0, 1)] = chosen.choices("abc", k=chosen.randint(0, 1))
    found = "".join(second)

    is_compared = difference_of(first, found) is not None

    assert is_compared == (first != found and edits(first, found) <= limit(first, found)), found


@pytest.mark.parametrize(
    ("expected", "found"),
    [("production", "staging"), ("push", "release"), ("5", "123456789"), ("5", "6"), ("a", "")],
)
def test_unrelated_words_are_not_compared(expected, found):
    assert difference_of(expected, found) is None


@pytest.mark.parametrize(
    ("expected", "found", "at"),
    [("push", "psuh", 1), ("main", "maim", 3), ("PUSH", "push", 0), ("main", " main  ", 0)],
)
def test_a_typo_is_compared(expected, found, at):
    difference = difference_of(expected, found)

    assert difference is not None
    assert difference.at == at


def test_what_is_known_to_be_related_is_compared():
    assert difference_of("repo:a@1/b@2", "c", is_related=True) is not None


def test_hostile_texts_are_compared_in_few_steps(monkeypatch):
    """Time is in the edits, not in the square of the lengths."""
    calls = []
    module = difference_of.__module__
    monkeypatch.setattr(f"{module}.common_prefix", lambda first, second: calls.append(first) or 0)
    difference_of("ab" * 30_000, "ba" * 30_000)

    assert len(calls) <= (EDITS_MAX + 1) ** 2
