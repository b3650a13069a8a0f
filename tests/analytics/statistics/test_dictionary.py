"""Values as codes: what is counted of a column is what its rows say, in any dictionary."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.filters import Condition, Term
from analytics.statistics import dictionary as dictionary_module
from analytics.statistics.dictionary import Dictionary, Values, new_dictionary
from analytics.statistics.value_counts import count_values, in_codes

TEXTS = ["a", "ab", "abc", "b", "", "é", "a\x00b", "%", "_", "😀"]
Row = tuple[str | None, str, str | None]
ROWS = st.lists(
    st.tuples(
        st.none() | st.sampled_from(TEXTS),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["ALLOWED", "", None]),
    ),
    max_size=8,
)
TERMS = st.builds(Term, st.sampled_from(TEXTS), st.booleans(), st.booleans())
ALIKE = st.builds(Condition, st.just("text"), st.lists(TERMS, min_size=1, max_size=3).map(tuple))
ON_KINDS = st.lists(
    st.builds(
        Condition,
        st.sampled_from(["event", "decision"]),
        st.lists(
            st.builds(Term, st.sampled_from(["x", "ALLOWED", ""]), st.booleans(), st.booleans()),
            min_size=1,
            max_size=2,
        ).map(tuple),
    ),
    max_size=2,
)


def table(rows: list[Row], *, coded: bool) -> pa.Table:
    """A row group, its columns read as dictionaries or as they are."""
    names = ["text", "event", "decision"]
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(3)]
    return pa.table([one.dictionary_encode() if coded else one for one in columns], names)


def counted(
    groups: list[list[Row]], dictionary: Dictionary, *, coded: bool = True
) -> tuple[Dictionary, Values]:
    found = count_values([table(rows, coded=coded) for rows in groups], "text", 1000)
    assert found is not None
    dictionary, (values,) = in_codes([found], dictionary)
    return dictionary, values


@given(
    groups=st.lists(ROWS, min_size=1, max_size=4),
    before=ROWS,
    coded=st.booleans(),
    alike=ALIKE,
    on_kinds=ON_KINDS,
    bisected=st.sampled_from([0, 64]),
)
def test_rows_alike_is_a_count_over_all_rows(groups, before, coded, alike, on_kinds, bisected):
    """Whatever the row groups, and whatever the dictionary held before; null is no value."""
    dictionary, earlier = counted([before], new_dictionary())
    dictionary, values = counted(groups, dictionary, coded=coded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dictionary_module, "BISECTED_MAX", bisected)
        wanted = dictionary.alike(alike)
    kinds = [kind for kind in values.kinds if kind.meets(on_kinds)]
    rows = [
        row
        for rows in groups
        for row in rows
        if all(one.is_met(row[1] if one.column == "event" else row[2]) for one in on_kinds)
    ]

    assert values.are_of(dictionary)
    assert earlier.are_of(dictionary)
    assert sum(values.rows_alike(wanted, kind) for kind in kinds) == sum(
        alike.is_met(row[0]) for row in rows if row[0] is not None
    )
    assert sum(kind.rows for kind in kinds) == sum(row[0] is not None for row in rows)
    assert sum(kind.nulls for kind in kinds) == sum(row[0] is None for row in rows)
    spelt: Counter[str] = Counter()
    for codes, counts in values.of_kinds(on_kinds):
        texts = dictionary.texts.take(codes).to_pylist()
        spelt.update(dict(zip(texts, counts.to_pylist(), strict=True)))
    assert spelt == Counter(row[0] for row in rows if row[0] is not None)


@given(runs=st.lists(st.lists(st.sampled_from(TEXTS), unique=True), max_size=5))
def test_a_code_means_the_same_for_good(runs):
    """A dictionary only grows: what a segment keeps was told once."""
    dictionary = new_dictionary()
    told: dict[str, int] = {}
    for texts in runs:
        dictionary, codes = dictionary.with_texts(pa.array(texts, pa.string()))
        for text, code in zip(texts, codes.to_pylist(), strict=True):
            assert told.setdefault(text, code) == code
        for text, code in told.items():
            assert dictionary.texts[code].as_py() == text


def test_codes_of_another_dictionary_mean_nothing():
    """One that was begun anew gives the same codes to other texts."""
    first, values = counted([[("a", "x", None)]], new_dictionary())
    other, _ = counted([[("b", "x", None)]], new_dictionary())
    longer, later = counted([[("c", "x", None)]], first)

    assert values.are_of(first)
    assert values.are_of(longer)
    assert not values.are_of(other)
    assert not later.are_of(first), "it does not have this text yet"


def test_a_column_with_too_many_values_is_not_counted():
    """What differs from row to row is worth no memory."""
    rows: list[Row] = [(f"{number}", "x", None) for number in range(9)]

    assert count_values([table(rows, coded=True)], "text", 8) is None
    assert count_values([table(rows, coded=True)], "text", 9) is not None
