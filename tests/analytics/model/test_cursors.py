"""Cursors: only the service makes them, and only for the query they continue."""

import base64
import string
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model import cursors
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
def test_a_cursor_leads_back_to_its_position_and_needs_no_escaping_in_a_url(position):
    text = encode_cursor(position, KEY, "org_acme", QUERY)

    assert set(text) <= set(ALPHABET)
    assert decode_cursor(text, KEY, "org_acme", QUERY) == position


def refuses(text: str) -> bool:
    try:
        decode_cursor(text, KEY, "org_acme", QUERY)
    except InvalidCursor:
        return True
    return False


def test_no_single_character_can_be_changed():
    """Signed: a forged position could page through what a filter hides.

    Every character is tried: base64 alone would take several texts for the same bytes.
    """
    for place in range(len(CURSOR)):
        edits = {CURSOR[:place] + character + CURSOR[place + 1 :] for character in EDITS} - {CURSOR}

        assert [text for text in edits if not refuses(text)] == []


def test_no_character_can_be_added():
    for place in range(len(CURSOR) + 1):
        edits = {CURSOR[:place] + character + CURSOR[place:] for character in EDITS}

        assert [text for text in edits if not refuses(text)] == []


def test_no_part_of_a_cursor_is_a_cursor():
    for length in range(len(CURSOR)):
        with pytest.raises(InvalidCursor):
            decode_cursor(CURSOR[:length], KEY, "org_acme", QUERY)


@given(st.text(max_size=100) | st.binary(max_size=80).map(lambda b: base64.b64encode(b).decode()))
def test_no_other_text_is_a_cursor(text):
    with pytest.raises(InvalidCursor):
        decode_cursor(text, KEY, "org_acme", QUERY)


@pytest.mark.parametrize("tenant_id", ["org_other", "org_acm", "org_acme2", ""])
def test_a_cursor_is_bound_to_its_tenant(tenant_id):
    with pytest.raises(InvalidCursor):
        decode_cursor(CURSOR, KEY, tenant_id, QUERY)


def test_a_cursor_is_bound_to_the_services_key():
    with pytest.raises(InvalidCursor):
        decode_cursor(CURSOR, b"l" * 32, "org_acme", QUERY)


SINCE = {"since": ["2026-01-31"]}
WRITTEN = SINCE | {
    "package": ["b", "a*", "!c"],
    "decision": ["BLOCKED"],
    "until": ["2026-02-01T12:00:00Z"],
}


@pytest.mark.parametrize(
    ("written", "again"),
    [
        *(
            (WRITTEN, dict(reversed((WRITTEN | spelling).items())))
            for spelling in (
                {"order": ["desc"]},
                {"since": ["2026-01-31T00:00:00Z"]},
                {"since": ["2026-01-31T00:00:00.000000"]},
                {"since": ["2026-01-31T02:00:00+02:00"]},
                {"since": ["2026-01-31T02:00:00 02:00"]},
                {"until": ["2026-02-01t13:30:00.0+01:30"]},
                {"package": ["!c", "a*", "b"]},
                {"package": ["b", "b", "a*", "!c", "!c"]},
                {"decision": ["BLOCKED"] * 3},
            )
        ),
        ({"package": ["a!b"]}, {"package": [r"a\!b"]}),
        ({"package": ["a*b"]}, {"package": [r"a\*b"]}),
        ({"package": ["\\"]}, {"package": ["\\\\"]}),
        ({"version": ["1.*"]}, {"version": [r"1.\*"]}),
        ({"until": ["2026-01-31"]}, {"until": ["2026-02-01T00:00:00Z"]}),
    ],
)
def test_the_same_query_continues_however_it_is_written(written, again):
    """A script may write the query in another way on page two."""
    for first, second in ((written, again), (again, written)):
        cursor = encode_cursor(POSITION, KEY, "org_acme", parse_query(first))
        assert decode_cursor(cursor, KEY, "org_acme", parse_query(second)) == POSITION


@pytest.mark.parametrize(
    ("written", "other"),
    [
        (SINCE, {}),
        (SINCE, SINCE | {"package": ["a"]}),
        (SINCE, SINCE | {"decision": ["BLOCKED"]}),
        ({"package": ["a"]}, {"package": ["a", "b"]}),
        ({"package": ["a*"]}, {"package": [r"a\*"]}),
        ({"package": ["!a"]}, {"package": [r"\!a"]}),
        ({"package": ["a"]}, {"package": ["!a"]}),
        ({"package": ["a"]}, {"package": ["a*"]}),
        ({"package": ["a"]}, {"package": ["A"]}),
        ({"package": ["a"]}, {"actor": ["a"]}),
        ({"package": ["a"], "actor": ["b"]}, {"package": ["b"], "actor": ["a"]}),
        ({"since": ["2026-01-31"]}, {"until": ["2026-01-30"]}),
        ({"since": ["2026-01-31"]}, {"since": ["2026-01-31T00:00:00.000001Z"]}),
        ({"since": ["2026-01-31"]}, {"since": ["2026-01-31T00:00:00+00:01"]}),
        ({}, {"order": ["asc"]}),
    ],
)
def test_a_cursor_is_bound_to_its_filters_and_order(written, other):
    """Continued with others it would skip or repeat rows silently."""
    for first, second in ((written, other), (other, written)):
        cursor = encode_cursor(POSITION, KEY, "org_acme", parse_query(first))
        with pytest.raises(InvalidCursor):
            decode_cursor(cursor, KEY, "org_acme", parse_query(second))


@pytest.mark.parametrize("version", [0, 1, cursors.VERSION + 1, 255])
def test_a_cursor_of_any_other_version_is_refused(monkeypatch, version):
    with monkeypatch.context() as patched:
        patched.setattr(cursors, "VERSION", version)
        other = encode_cursor(POSITION, KEY, "org_acme", QUERY)
        assert decode_cursor(other, KEY, "org_acme", QUERY) == POSITION

    with pytest.raises(InvalidCursor):
        decode_cursor(other, KEY, "org_acme", QUERY)


def test_tenant_and_filters_cannot_run_into_each_other():
    """The signed text is a list with bounds, not a concatenation."""
    one = encode_cursor(POSITION, KEY, 'org_a","desc', QUERY)

    with pytest.raises(InvalidCursor):
        decode_cursor(one, KEY, "org_a", QUERY)
