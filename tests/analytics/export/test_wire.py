"""Rows on their way out, read back by Python's own csv and json."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.export.formats import ExportFormat
from analytics.export.wire import json_objects
from analytics.export.writers import FileEncoding, export_pieces
from analytics.model.decision_reason import compact
from analytics.model.instants import format_us, parse_instant
from analytics.model.rows import AuditRow
from analytics.model.schema import WIRE_COLUMNS, audit_id
from tests.analytics.readers import as_read, read_csv, read_file
from tests.analytics.samples import NOON, sample_row, table_of
from tests.budgets import budget, sample

AWKWARD = [
    *('a "quoted" value', '"', '""', "a,b", "a;b", "null", "{}", "</script>"),
    *("line\nbreak", "line\r\nbreak", "carriage\rreturn", "tab\tinside", "back\\slash", "\\n"),
    *("é漢😀👩🏽\u200d", "\u2028\u2029\ufeff", "\x7f\x80\x9f", " leading and trailing "),
    "".join(map(chr, range(1, 32))),
]
FORMULAS = [
    *("=1+1", "+1", "-1", "@acme/left-pad", "＝1＋1", "＋1", "－1", "＠a"),
    *("'quoted", "\tx", "\rx", "\nx", "=", "'", "''="),
]
TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
ROWS = st.lists(
    st.builds(
        sample_row,
        package_name=st.none() | TEXT | st.sampled_from(FORMULAS),
        actor=TEXT | st.sampled_from(AWKWARD),
        subject=st.none() | TEXT,
        decision_reason=TEXT,
        payload=st.none() | st.dictionaries(TEXT, TEXT, max_size=3).map(compact),
        token_id=st.none() | TEXT | st.sampled_from([*AWKWARD, *FORMULAS]),
        client=st.none() | TEXT | st.sampled_from([*AWKWARD, *FORMULAS]),
    ),
    min_size=1,
    max_size=3,
)


def wire(rows: list[AuditRow], first_seq: int = 1) -> list[dict[str, Any]]:
    """`rows` in their wire form, by plain Python."""
    entries = []
    for seq, row in enumerate(rows, start=first_seq):
        special = {
            "id": audit_id(seq),
            "tenant_id": "org_acme",
            "created_at": format_us(row.created_at),
            "received_at": format_us(row.received_at),
            "payload": None if row.payload is None else json.loads(row.payload),
        }
        entries.append(
            {
                name: special[name] if name in special else getattr(row, column)
                for name, column in WIRE_COLUMNS.items()
            }
        )
    return entries


def exported(rows: list[AuditRow], export_format: ExportFormat, *, is_raw: bool = True) -> bytes:
    """The whole file of `rows`, one table for each."""
    tables = (table_of([row], seq) for seq, row in enumerate(rows, start=1))
    form = FileEncoding(export_format, is_raw=is_raw)
    return b"".join(piece.content for piece in export_pieces(tables, "org_acme", form))


def as_lines(table) -> bytes:
    """What an export makes of `table`, but for its last line's end."""
    form = FileEncoding(ExportFormat.NDJSON)
    return b"".join(one.content for one in export_pieces([table], "org_acme", form))[:-1]


@settings(max_examples=budget(10, 50))
@given(ROWS)
def test_a_page_and_an_export_spell_a_row_alike(rows):
    table = table_of(rows)

    assert "\n".join(json_objects(table, "org_acme")).encode() == as_lines(table)


@sample(29)
@pytest.mark.parametrize("first", range(0, 0x110000, 0x4000))
def test_a_page_and_an_export_spell_every_character_alike(first):
    characters = (chr(one) for one in range(first, first + 0x4000) if not 0xD800 <= one < 0xE000)
    table = table_of([sample_row(NOON, actor="".join(characters))])

    assert json_objects(table, "org_acme")[0].encode() == as_lines(table)


@pytest.mark.parametrize(
    "at",
    [
        *("0001-01-01T00:00:00.000000Z", "0999-03-04T12:00:00.000000Z"),
        *("1969-12-31T23:59:59.999999Z", "2026-03-04T12:00:00.000001Z"),
        "9999-12-31T00:00:00.500000Z",
    ],
)
def test_a_page_and_an_export_spell_an_instant_with_microseconds_and_a_z(at):
    table = table_of([sample_row(parse_instant(at))])

    (shown,) = json_objects(table, "org_acme")

    assert json.loads(shown)["created_at"] == at
    assert shown.encode() == as_lines(table)


@pytest.mark.parametrize("export_format", ExportFormat)
@settings(max_examples=budget(10, 50))
@given(rows=ROWS)
def test_every_format_reads_back_as_what_was_stored(export_format, rows):
    expected = [as_read(entry, export_format) for entry in wire(rows)]

    assert read_file(exported(rows, export_format), export_format) == expected


@pytest.mark.parametrize("value", FORMULAS)
def test_a_formula_gets_an_apostrophe_unless_raw(value):
    """A spreadsheet must not run a package name as a formula."""
    rows = [sample_row(package_name=value)]

    (guarded,) = read_csv(exported(rows, ExportFormat.CSV, is_raw=False))
    (raw,) = read_csv(exported(rows, ExportFormat.CSV, is_raw=True))

    assert guarded["packageName"] == "'" + value
    assert raw["packageName"] == value


def test_a_semicolon_is_within_quotes():
    """Some spreadsheets begin a cell at it, which could be a formula."""
    content = exported([sample_row(package_name="a;=1+1")], ExportFormat.CSV, is_raw=True)

    assert b',"a;=1+1",' in content


@pytest.mark.parametrize("value", ["a=b", "1-1", "user@host", "it's", "x\ty", ""])
def test_a_harmless_value_is_left_as_it_is(value):
    (row,) = read_csv(exported([sample_row(package_name=value)], ExportFormat.CSV, is_raw=False))

    assert row["packageName"] == value


def test_without_rows_a_file_is_still_a_file():
    assert exported([], ExportFormat.JSON) == b"[]\n"
    assert exported([], ExportFormat.CSV) == (",".join(WIRE_COLUMNS) + "\n").encode()
    assert exported([], ExportFormat.NDJSON) == b""
    assert read_file(exported([], ExportFormat.PARQUET), ExportFormat.PARQUET) == []
    assert json_objects(table_of([sample_row()]).slice(0, 0), "org_acme") == []
