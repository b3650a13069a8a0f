"""An answer takes from a row what has the names of its fields."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from service.web.models import Answer, TimestampMs, TimestampUs

AT = datetime(2026, 1, 31, 8, 0, 0, 123456, tzinfo=UTC)


class _Entry(Answer):
    id: str
    owner: str
    made_at: TimestampMs
    ended_at: TimestampUs | None


def test_instants_are_written_as_the_type_of_their_field_says() -> None:
    entry = _Entry.from_row(SimpleNamespace(id="one", owner="ada", made_at=AT, ended_at=AT))

    assert (entry.id, entry.owner) == ("one", "ada")
    assert entry.made_at == "2026-01-31T08:00:00.123Z"
    assert entry.ended_at == "2026-01-31T08:00:00.123456Z"


def test_what_is_given_goes_before_what_the_row_has() -> None:
    row = SimpleNamespace(id="one", made_at=AT, ended_at=None)

    entry = _Entry.from_row(row, owner="grace", made_at="now")

    assert (entry.owner, entry.made_at, entry.ended_at) == ("grace", "now", None)


def test_a_field_that_neither_has_is_an_error() -> None:
    with pytest.raises(AttributeError, match="owner"):
        _Entry.from_row(SimpleNamespace(id="one", made_at=AT, ended_at=None))
