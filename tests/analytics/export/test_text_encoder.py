"""Rows made of fragments, byte for byte what a plain encoder makes of them, row by row."""

import re
from datetime import UTC, datetime, timedelta
from random import Random

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.export import gather, writers
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, export_pieces
from analytics.model.schema import AUDIT_SCHEMA, WIRE_COLUMNS, audit_id
from tests.analytics.export.test_wire import AWKWARD, FORMULAS
from tests.analytics.samples import NOON, sample_row, table_of
from tests.budgets import budget

TENANTS = st.sampled_from(["org_acme", "=1+1", 'a"b', "", "new\nline"])
INSTANT = "%Y-%m-%dT%H:%M:%S%.6fZ"
YEARS = st.integers(1, 9999) | st.just(2026)
INSTANTS = st.builds(
    lambda year, us: datetime(year, 1, 1, tzinfo=UTC) + timedelta(microseconds=us),
    YEARS,
    st.integers(0, 10**13),
)
HOSTILE = st.sampled_from([*AWKWARD, *FORMULAS, "", "\x00", "a\x00b", "\u202egnp", "x" * 1024])
TEXTS = HOSTILE | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PAYLOADS = ["{}", '{\n"a":\r\n"b"}', '{"a":"\\u0000 \\"q\\", é"}', "=1", '""', ""]


def plain(rows: pa.Table, tenant_id: str) -> pl.DataFrame:
    """Every column of the wire form as text, a value for each row."""
    rows = rows.cast(AUDIT_SCHEMA)
    columns = {name: rows.column(column) for name, column in WIRE_COLUMNS.items() if column}
    frame = pl.DataFrame(pl.from_arrow(pa.table(columns)))
    return frame.with_columns(
        pl.Series("id", [audit_id(seq) for seq in rows.column("seq").to_pylist()]),
        pl.lit(tenant_id).alias("tenant_id"),
        pl.col("created_at", "received_at").dt.strftime(INSTANT),
    ).select(*WIRE_COLUMNS)


def plain_csv(rows: pa.Table, tenant_id: str, *, is_raw: bool) -> bytes:
    """The frame, a cell after the other, in plain Python."""

    def cell(value: str | None) -> str:
        if value is None:
            return ""
        if not is_raw and re.match("[=+@＝＋－＠'\t\r\n-]", value):
            value = f"'{value}"
        is_plain = value and not re.search('[",;\r\n]', value)
        return value if is_plain else '"' + value.replace('"', '""') + '"'

    frame = plain(rows, tenant_id)
    lines = [frame.columns, *frame.rows()]
    return "".join(",".join(map(cell, line)) + "\n" for line in lines).encode()


def plain_objects(rows: pa.Table, tenant_id: str) -> list[str]:
    """What polars encodes of each row, its payload put in as it is."""
    frame = plain(rows, tenant_id)
    place = frame.columns.index("payload")
    before, behind = (
        frame.select(pl.struct(columns).struct.json_encode()).to_series()
        for columns in (frame.columns[:place], frame.columns[place + 1 :])
    )
    payloads = [
        re.sub("[\r\n]", " ", text) if text is not None else "null" for text in frame["payload"]
    ]
    return [
        f'{first.removesuffix("}")},"payload":{payload},{last.removeprefix("{")}'
        for first, payload, last in zip(before, payloads, behind, strict=True)
    ]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows with any values, in runs or all different, encoded either way, in chunks and sliced."""
    words = draw(st.lists(TEXTS, min_size=1, max_size=6))
    instants = draw(st.lists(INSTANTS, min_size=1, max_size=3))
    random = Random(draw(st.integers(0, 2**32)))
    count = random.choice([1, 2, 40, 300])

    def values(field: pa.Field) -> list[object]:
        if field.name == "seq":
            return [*seqs(random, count)]
        if pa.types.is_timestamp(field.type):
            spread = random.choice([0, 10**6, 10**10])
            return [
                random.choice(instants) + timedelta(microseconds=random.randint(0, spread))
                for _ in range(count)
            ]
        pool: list[str | None] = [*(PAYLOADS if field.name == "payload" else words)]
        if field.nullable:
            pool.append(None)
        few = random.choices(pool, k=random.choice([1, 3, 9]))
        is_each_unlike = random.random() < 0.2 and field.name != "payload"
        run = random.choice([1, 1, 10, 25])
        chosen = random.choices(few, k=count)
        return [
            f"{chosen[n]}{n}" if is_each_unlike and chosen[n] is not None else chosen[n // run]
            for n in range(count)
        ]

    def column(field: pa.Field) -> pa.ChunkedArray:
        array = pa.array(values(field), field.type)
        is_encoded = pa.types.is_string(field.type) and random.random() < 0.6
        cut = random.choice([0, 0, random.randint(0, count)])
        parts = [array.slice(0, cut), array.slice(cut)] if cut else [array]
        return pa.chunked_array(
            [part.dictionary_encode() if is_encoded else part for part in parts]
        )

    rows = pa.table([*map(column, AUDIT_SCHEMA)], names=AUDIT_SCHEMA.names)
    return rows.slice(random.randrange(count), random.choice([None, 1, count]))


def seqs(random: Random, count: int) -> list[int]:
    """Close to each other, or anywhere."""
    if random.random() < 0.5:
        first = random.choice([0, 9_990, 2**63 - 1 - count])
        return [*range(first, first + count)]
    return [random.getrandbits(63) for _ in range(count)]


def exported(rows: list[pa.Table], tenant_id: str, form: FileEncoding) -> bytes:
    return b"".join(piece.content for piece in export_pieces(rows, tenant_id, form))


@settings(max_examples=budget(12, 60), deadline=None)
@given(st.lists(tables(), min_size=1, max_size=2), TENANTS, st.booleans())
def test_csv_is_what_a_plain_encoder_writes(several, tenant_id, is_raw):
    first, *more = [plain_csv(rows, tenant_id, is_raw=is_raw) for rows in several]
    expected = first + b"".join(text.partition(b"\n")[2] for text in more)

    form = FileEncoding(ExportFormat.CSV, is_raw=is_raw)
    assert exported(several, tenant_id, form) == expected


@settings(max_examples=budget(12, 60), deadline=None)
@given(st.lists(tables(), min_size=1, max_size=2), TENANTS)
def test_json_is_what_a_plain_encoder_writes(several, tenant_id):
    objects = [text for rows in several for text in plain_objects(rows, tenant_id)]

    lines = "".join(f"{text}\n" for text in objects).encode()
    assert exported(several, tenant_id, FileEncoding(ExportFormat.NDJSON)) == lines
    array = ("[\n" + ",\n".join(objects) + "\n]\n").encode()
    assert exported(several, tenant_id, FileEncoding(ExportFormat.JSON)) == array


REQUESTS = [
    sample_row(NOON, request_id=f"req_{n // 32}", actor=f"a{n // 64}", subject=f"s{n // 32}")
    for n in range(256)
]


@pytest.mark.parametrize("is_one_unlike", [False, True])
def test_what_the_rows_of_a_request_have_in_common_is_looked_at_not_assumed(is_one_unlike):
    rows = table_of(REQUESTS)
    if is_one_unlike:
        subjects = rows["subject"].to_pylist()
        subjects[33] = "another"
        where = rows.schema.get_field_index("subject")
        rows = rows.set_column(
            where, rows.schema.field(where), pa.array([*subjects]).cast("string")
        )

    assert exported([rows], "org_acme", FileEncoding(ExportFormat.CSV)) == plain_csv(
        rows, "org_acme", is_raw=False
    )


@pytest.mark.parametrize("bytes_max", [1, 1_000, 5_000])
def test_a_piece_holds_whole_rows_and_no_more_bytes_than_it_may(monkeypatch, bytes_max):
    monkeypatch.setattr(gather, "PIECE_BYTES_MAX", bytes_max)
    rows = table_of(REQUESTS)
    expected = plain_csv(rows, "org_acme", is_raw=False)
    longest = max(map(len, expected.splitlines(keepends=True)))
    header, *pieces = export_pieces([rows], "org_acme", FileEncoding(ExportFormat.CSV))

    assert header.content + b"".join(piece.content for piece in pieces) == expected
    assert all(len(piece.content) <= max(bytes_max, longest) for piece in pieces)
    for piece in pieces:
        assert piece.content.endswith(b"\n")
        assert expected[: piece.size].count(b"\n") == piece.rows + 1


def test_a_dictionary_that_another_follows_is_not_taken_for_it(monkeypatch):
    """Tables of one row group share a dictionary, those of the next have one of their own."""
    monkeypatch.setattr(writers, "TEXT_ROWS", 1)
    tables = []
    for word in ("one", "two", "six"):
        rows = table_of([sample_row(package_name=word)] * 8)
        where = rows.schema.get_field_index("package_name")
        encoded = rows["package_name"].combine_chunks().dictionary_encode()
        tables.append(rows.set_column(where, "package_name", encoded))
    file = exported(tables, "org_acme", FileEncoding(ExportFormat.CSV)).decode()

    found = [line.split(",")[3] for line in file.splitlines()[1:]]
    assert found == ["one"] * 8 + ["two"] * 8 + ["six"] * 8
