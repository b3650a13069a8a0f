"""The most frequent values, from heads alone: exact, or not told at all."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

import analytics.statistics.top_values as top_values_module
from analytics.query.aggregates import top_of
from analytics.statistics.top_values import SegmentHead, top_values
from analytics.storage.segment_index import Head
from tests.budgets import budget

NAMES = st.sampled_from(["a", "b", "c", "d", "é", ""])
COUNTS = st.dictionaries(NAMES, st.integers(1, 9), max_size=6)


def head_of(counts: dict[str, int], length: int, *, is_readable: bool = True) -> SegmentHead:
    """The `length` most frequent values of a segment, and its index of all of them."""
    ranked = Counter(counts).most_common()
    others = ranked[length:]
    head = Head(tuple(ranked[:length]), others[0][1] if others else 0)
    return SegmentHead(head, lambda value: counts.get(value, 0) if is_readable else None)


@settings(max_examples=budget(100, 500))
@given(
    segments=st.lists(COUNTS, max_size=5),
    counted=COUNTS,
    length=st.integers(0, 6),
    number=st.integers(1, 4),
)
def test_what_heads_tell_is_what_all_rows_say(segments, counted, length, number):
    heads = [head_of(counts, length) for counts in segments]
    everything = Counter(counted)
    for counts in segments:
        everything.update(counts)

    found = top_values(heads, counted, number)

    assert found in (None, top_of(everything, number))
    if length == 6:
        assert found is not None


@given(segments=st.lists(COUNTS, max_size=5), length=st.integers(0, 6))
def test_heads_tell_nothing_wrong_without_the_index(segments, length):
    """It may be damaged since the head was read."""
    heads = [head_of(counts, length, is_readable=False) for counts in segments]
    everything = sum((Counter(counts) for counts in segments), Counter[str]())

    assert top_values(heads, {}, 2) in (None, top_of(everything, 2))


def test_a_value_is_looked_up_where_its_segment_does_not_name_it():
    """Many small days: each has other values on the last places of its head."""
    segments = [
        {"a": 90, "b": 80 if day else 2, f"now-and-then-{day}": 3, "c": 1} for day in range(9)
    ]

    found = top_values([head_of(counts, 2) for counts in segments], {}, 2)

    assert found == [("a", 810), ("b", 642)]


def test_too_many_lookups_are_not_begun(monkeypatch):
    """Reading the rows is quicker then."""
    segments = [{"a": 9, f"b{day}": 8, "c": 7} for day in range(9)]
    heads = [head_of(counts, 2) for counts in segments]
    assert top_values(heads, {}, 1) == [("a", 81)]
    assert top_values(heads, {}, 2) is None
    flat = [head_of({"a": 9, "b": 8 if day else 1, "c": 2}, 2) for day in range(9)]
    monkeypatch.setattr(top_values_module, "LOOKUPS_MAX", 1)
    assert top_values(flat, {}, 2) == [("a", 81), ("b", 65)]
    monkeypatch.setattr(top_values_module, "LOOKUPS_MAX", 0)
    assert top_values(flat, {}, 2) is None


def test_a_value_that_no_head_names_may_be_the_most_frequent():
    """Third in each of three segments, first in all of them together."""
    segments = [{"a": 9, "x": 8}, {"b": 9, "x": 8}, {"c": 9, "x": 8}]

    assert top_values([head_of(counts, 1) for counts in segments], {}, 1) is None
