"""The next item is made while one is used; what is left midway leaves no thread behind."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, export_pieces, prefetch
from tests.analytics.samples import sample_row, table_of
from tests.budgets import only_full, sample
from tests.polling import eventually

THREADS = "prefetch"


def until(is_so: Callable[[], bool]) -> None:
    eventually(is_so, "it is so", every_s=0.001)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    assert threads() == []
    yield
    assert threads() == []


class Numbers:
    """The numbers up to `count`, and which of them were made so far; then `fault`, if any."""

    def __init__(self, count: int, fault: Exception | None = None) -> None:
        self.made: list[int] = []
        self.is_closed = False
        self._count, self._fault = count, fault

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(self._count):
                self.made.append(number)
                yield number
            if self._fault is not None:
                raise self._fault
        finally:
            self.is_closed = True


@pytest.mark.parametrize("count", [0, 1, 5])
def test_every_item_comes_in_its_place(count):
    assert list(prefetch(iter(Numbers(count)))) == [*range(count)]


def test_one_item_is_made_ahead_and_no_more():
    """Memory holds two items, however slow the consumer is."""
    numbers = Numbers(5)
    items = prefetch(iter(numbers))
    assert numbers.made == []

    assert next(items) == 0
    until(lambda: numbers.made == [0, 1])
    time.sleep(0.05)
    assert numbers.made == [0, 1]
    items.close()


def test_items_are_made_in_a_thread_while_one_is_used():
    used = threading.Event()

    def waiting() -> Iterator[str]:
        yield "first"
        used.wait()
        yield "second"

    items = prefetch(waiting())
    assert next(items) == "first"
    until(lambda: len(threads()) == 1)
    used.set()
    assert [*items] == ["second"]


def test_a_fault_comes_where_its_item_would_have_been():
    items = prefetch(iter(Numbers(3, OSError("gone"))))
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="gone"):
        next(items)

    assert next(items, None) is None


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_what_is_closed_midway_asks_for_nothing_more(taken):
    numbers = Numbers(100)
    items = prefetch(iter(numbers))
    for _ in range(taken):
        next(items)
    items.close()

    assert len(numbers.made) <= taken + 1
    assert numbers.is_closed or not numbers.made
    assert next(items, None) is None


def test_a_fault_behind_what_was_taken_is_not_raised():
    items = prefetch(iter(Numbers(1, OSError("gone"))))
    assert next(items) == 0
    items.close()

    assert next(items, None) is None


@sample(1)
@sample(2)
@pytest.mark.parametrize("export_format", ExportFormat)
@pytest.mark.parametrize("taken", [1, *(pytest.param(n, marks=only_full) for n in (0, 2))])
def test_an_export_that_is_left_midway_closes_what_it_reads(export_format, taken):
    is_closed = []

    def tables() -> Iterator[object]:
        try:
            for number in range(1_000):
                yield table_of([sample_row()] * 40_000 if number == 0 else [sample_row()])
        finally:
            is_closed.append(True)

    pieces = export_pieces(tables(), "org_acme", FileEncoding(export_format))
    for _ in range(taken):
        assert next(pieces).content
    pieces.close()

    assert threads() == []
    assert is_closed == ([True] if taken else [])


@pytest.mark.parametrize("export_format", ExportFormat)
def test_an_export_that_is_dropped_ends_as_well(export_format):
    for piece in export_pieces(
        [table_of([sample_row()])] * 9, "org_acme", FileEncoding(export_format)
    ):
        assert piece.content
        break
