"""Tables for people: no value is cut, and none is wider than a terminal unless it is one value."""

from datetime import UTC, datetime

import pytest

from service.cli.output import Table, text_width
from service.cli.times import relative_time

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SUB = "repo:acme/payments:ref:refs/heads/main"
IDS = ["obind_7f3k9m2p4q8r1s5t", "obind_2b4d6f8h0j1k3m5n"]
TABLE = Table(
    "Bindings",
    ["id", "subPattern", "repositoryId", "addedAt", "revokedAt", "addedBy"],
    [
        [IDS[0], SUB, "123456789", "2026-01-31T09:00:00.000Z", None, "github:mem_2b4d6f8h0j1k3m5n"],
        [IDS[1], SUB, "42", "2026-01-30T09:00:00.000Z", "2026-01-31T11:59:50.000Z", "system:cli"],
    ],
    frozenset({"addedAt", "revokedAt"}),
)


def test_in_a_pipe_each_row_is_one_line_with_exact_instants():
    """For grep and awk."""
    lines = list(TABLE.lines())

    assert lines[0] == "Bindings (2)"
    assert lines[2].split() == TABLE.columns
    assert lines[3].split() == [cell or "–" for cell in TABLE.rows[0]]
    assert len(lines) == 5


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_on_a_terminal_every_value_is_whole_and_no_line_is_too_long(width):
    lines = list(TABLE.lines(width, NOW))

    for line in lines:
        assert text_width(line) <= max(width, len(f"    subPattern {SUB}"))
    text = "\n".join(lines)
    for row in TABLE.rows:
        assert all(cell in text for cell in (row[0], row[1], row[2], row[5]))
    assert "3 h ago" in text
    assert "10 s ago" in text


def test_values_that_a_terminal_would_obey_are_escaped():
    hostile = "\x1b[31m\u202e\n"

    text = "".join(Table("t", ["a"], [[hostile]]).lines(80, NOW))

    assert not set(hostile) & set(text) - set("[31m")
    assert "\\x1b" in text


def test_wide_characters_count_as_two_columns_and_combining_ones_as_none():
    assert [text_width(text) for text in ("abc", "包裹", "e\u0301")] == [3, 4, 1]
    lines = list(Table("t", ["name", "id"], [["包裹", "x"], ["abcd", "y"]]).lines(80))
    assert [text_width(line) for line in lines[3:]] == [7, 7]


def test_an_empty_table_is_its_title():
    assert list(Table("Keys", ["id"], []).lines(80)) == ["Keys (0)"]


def test_a_total_stands_apart_and_is_not_counted():
    lines = list(Table("Rows", ["org", "n"], [["acme", 1]], total=["total", 1]).lines())

    assert lines == ["Rows (1)", "", "org    n", "acme   1", "", "total  1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-01-31T11:59:59Z", "1 s ago"),
        ("2026-01-31T11:59:00.000000Z", "1 min ago"),
        ("2026-01-31T11:00:00Z", "1 h ago"),
        ("2026-01-29T12:00:01Z", "47 h ago"),
        ("2026-01-29T12:00:00Z", "2 days ago"),
        ("2025-12-02T12:00:01Z", "59 days ago"),
        ("2025-12-02T12:00:00Z", "2025-12-02"),
        ("2026-01-31T12:00:00Z", "0 s ago"),
        ("2026-01-31T13:30:00Z", "in 1 h"),
        ("never", "never"),
    ],
)
def test_an_instant_is_said_as_people_say_it(text, words):
    assert relative_time(text, NOW) == words
