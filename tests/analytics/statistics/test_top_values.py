"""The most frequent values, from heads alone: exact, or not told at all."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.query.aggregates import top_of
from analytics.statistics.top_values import top_values
from analytics.storage.segment_index import Head

NAMES = st.sampled_from(["a", "b", "c", "d", "é", ""])
COUNTS = st.dictionaries(NAMES, st.integers(1, 9), max_size=6)


def head_of(counts: dict[str, int], length: int) -> Head:
    """The `length` most frequent values of a segment."""
    ranked = Counter(counts).most_common()
    others = ranked[length:]
    return Head(tuple(ranked[:length]), others[0][1] if others else 0)


@settings(max_examples=500)
@given(
    segments=st.lists(COUNTS, max_size=5),
    counted=COUNTS,
    length=st.integers(0, 6),
    number=st.integers(1, 4),
)
def test_what_heads_tell_is_what_all_rows_say(segments, counted, length, number):
    """Whatever is not in them; where they cannot tell, they do not."""
    heads = [head_of(counts, length) for counts in segments]
    everything = Counter(counted)
    for counts in segments:
        everything.update(counts)

    found = top_values(heads, counted, number)

    assert found in (None, top_of(everything, number))
    if length == 6:
        assert found is not None


def test_a_value_that_no_head_names_may_be_the_most_frequent():
    """Third in each of three segments, first in all of them together."""
    segments = [{"a": 9, "x": 8}, {"b": 9, "x": 8}, {"c": 9, "x": 8}]

    assert top_values([head_of(counts, 1) for counts in segments], {}, 1) is None


def test_skewed_values_are_told_by_short_heads():
    """As packages and actors are."""
    segments = [{"a": 100, "b": 50, **{f"rare{n}": 1 for n in range(40)}} for _ in range(9)]

    found = top_values([head_of(counts, 4) for counts in segments], {"b": 3}, 2)

    assert found == [("a", 900), ("b", 453)]
