"""What a full cache drops: idle files, then of the owner who holds most."""

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from analytics.storage.drop_order import IDLE_NS, drop_order

NOW = 2 * IDLE_NS


class Kept(NamedTuple):
    owner: str
    size: int
    used_ns: int


FILES = st.lists(
    st.builds(Kept, st.sampled_from("abc"), st.integers(0, 9), st.integers(0, NOW)), max_size=30
)


def test_the_few_files_of_one_owner_outlive_the_many_of_another():
    few = [Kept("b", 10, NOW - 100 - n) for n in range(5)]
    many = [Kept("a", 10, NOW - n) for n in range(50)]

    order = list(drop_order([*many, *few], NOW))

    assert order[:45] == many[:4:-1]


def test_a_file_that_is_not_used_any_more_has_no_share():
    idle = Kept("b", 1, NOW - IDLE_NS - 1)
    used = [Kept("a", 1_000, NOW), Kept("b", 1, NOW - IDLE_NS)]

    assert list(drop_order([*used, idle], NOW)) == [idle, *used]


@given(FILES)
def test_each_file_is_dropped_once_and_of_one_owner_the_oldest_first(files):
    order = list(drop_order(files, NOW))

    assert Counter(order) == Counter(files)
    for owner in "abc":
        used = [file.used_ns for file in order if file.owner == owner]
        assert used == sorted(used)


@given(FILES)
def test_no_owner_gives_up_a_file_in_use_while_another_holds_more(files):
    held = Counter[str]()
    for file in files:
        held[file.owner] += file.size
    for file in drop_order(files, NOW):
        if NOW - file.used_ns <= IDLE_NS:
            assert held[file.owner] == max(held.values())
        held[file.owner] -= file.size
