"""Cursors: only the service makes them, and only for the query they continue."""

import base64
import string
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.cursors import InvalidCursor, Position, decode_cursor, encode_cursor
from analytics.model.filters import parse_query

KEY = b"k" * 32
QUERY = parse_query({"package": ["left-pad"], "since": ["2026-01-31"]})
POSITION = Position(7_000, datetime(2026, 3, 4, 12, 0, 0, 123_456, tzinfo=UTC), 6_543)
CURSOR = encode_cursor(POSITION, KEY, "org_acme", QUERY)
ALPHABET = string.ascii_letters + string.digits + "-_"
EDITS = ALPHABET + "+/= \n\x00é"
SEQS = st.integers(0, 2**63 - 1)


@given(st.builds(Position, SEQS, st.datetimes(timezones=st.just(UTC)), SEQS))
def test_a_cursor_leads_back_to_its_position(position):
    """To the microsecond, for any row there can be."""
    text = encode_cursor(position, KEY, "org_acme", QUERY)

    assert decode_cursor(text, KEY, "org_acme", QUERY) == position


@given(st.builds(Position, SEQS, st.datetimes(timezones=st.just(UTC)), SEQS))
def test_a_cursor_needs_no_escaping_in_a_url(position):
    """It is pasted into scripts."""
    assert set(encode_cursor(position, KEY, "org_acme", QUERY)) <= set(ALPHABET)


def refuses(text: str) -> bool:
    """Whether `text` is no cursor."""
    try:
        decode_cursor(text, KEY, "org_acme", QUERY)
    except InvalidCursor:
        return True
    return False


@pytest.mark.parametrize("place", range(len(CURSOR)))
def test_no_single_character_can_be_changed(place):
    """Signed: a forged position could page through what a filter hides.

    Every character is tried: base64 alone would take several texts for the same bytes.
    """
    edits = {CURSOR[:place] + character + CURSOR[place + 1 :] for character in EDITS} - {CURSOR}

    assert [text for text in edits if not refuses(text)] == []


@pytest.mark.parametrize("place", range(len(CURSOR) + 1))
def test_no_character_can_be_added(place):
    """Padding and blanks included: there is one text for each cursor."""
    edits = {CURSOR[:place] + character + CURSOR[place:] for character in EDITS}

    assert [text for text in edits if not refuses(text)] == []


@pytest.mark.parametrize("length", range(len(CURSOR)))
def test_no_part_of_a_cursor_is_a_cursor(length):
    """The empty text included."""
    with pytest.raises(InvalidCursor):
        decode_cursor(CURSOR[:length], KEY, "org_acme", QUERY)


@given(st.text(max_size=100) | st.binary(max_size=80).map(lambda b: base64.b64encode(b).decode()))
def test_no_other_text_is_a_cursor(text):
    """Whatever a client sends, the answer is a refusal and never an error."""
    with pytest.raises(InvalidCursor):
        decode_cursor(text, KEY, "org_acme", QUERY)


@pytest.mark.parametrize("tenant_id", ["org_other", "org_acm", "org_acme2", ""])
def test_a_cursor_is_bound_to_its_tenant(tenant_id):
    """One organisation's cursor says nothing in another."""
    with pytest.raises(InvalidCursor):
        decode_cursor(CURSOR, KEY, tenant_id, QUERY)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"package": ["left-pad"]},
        {"since": ["2026-01-31"]},
        {"package": ["left-pa"], "since": ["2026-01-31"]},
        {"package": ["left-pad", "right-pad"], "since": ["2026-01-31"]},
        {"package": ["left-pad"], "since": ["2026-01-30"]},
        {"package": ["left-pad"], "until": ["2026-01-31"]},
        {"version": ["left-pad"], "since": ["2026-01-31"]},
        {"package": ["left-pad"], "since": ["2026-01-31"], "decision": ["BLOCKED"]},
        {"package": ["left-pad"], "since": ["2026-01-31"], "order": ["asc"]},
    ],
)
def test_a_cursor_is_bound_to_its_filters_and_order(parameters):
    """Continued with others it would skip or repeat rows without a word."""
    with pytest.raises(InvalidCursor):
        decode_cursor(CURSOR, KEY, "org_acme", parse_query(parameters))


def test_a_cursor_is_bound_to_the_services_key():
    """Another installation's cursors are foreign."""
    with pytest.raises(InvalidCursor):
        decode_cursor(CURSOR, b"l" * 32, "org_acme", QUERY)


def test_the_order_in_which_filters_are_written_does_not_matter():
    """The caller repeats the filters, not their spelling in the URL."""
    again = parse_query({"since": ["2026-01-31"], "package": ["left-pad"]})

    assert decode_cursor(CURSOR, KEY, "org_acme", again) == POSITION


def test_tenant_and_filters_cannot_run_into_each_other():
    """What is signed is a list with bounds, not texts laid end to end."""
    one = encode_cursor(POSITION, KEY, 'org_a","desc', QUERY)

    with pytest.raises(InvalidCursor):
        decode_cursor(one, KEY, "org_a", QUERY)
