"""A condition as ranges of values: what they contain is what meets it."""

from hypothesis import given
from hypothesis import strategies as st

from analytics.model.filters import Condition, Term
from analytics.statistics.value_index import value_ranges

TEXTS = ["", "a", "ab", "a\x00", "abc", "b", "é", "😀", "z"]
TERMS = st.builds(Term, st.sampled_from(TEXTS), st.booleans(), st.booleans())


@given(terms=st.lists(TERMS, min_size=1, max_size=4), value=st.sampled_from(TEXTS))
def test_a_value_is_in_a_range_exactly_if_it_meets_the_condition(terms, value):
    condition = Condition("package_name", tuple(terms))
    ranges = value_ranges(condition)

    is_within = [low <= value.encode() < high for low, high in ranges]
    assert sum(is_within) == condition.is_met(value)


@given(terms=st.lists(TERMS, min_size=1, max_size=4))
def test_ranges_are_in_order_and_disjoint(terms):
    """No row is counted twice."""
    bounds = [bound for pair in value_ranges(Condition("actor", tuple(terms))) for bound in pair]

    assert bounds == sorted(bounds)
