"""Export files as they are made: pieces, digest, compression, and what a broken one looks like."""

import hashlib
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.export import writers
from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.export.writers import ROW_GROUP_ROWS, FileEncoding, Piece, export_pieces
from analytics.model.schema import WIRE_COLUMNS
from tests.analytics.readers import decompressed, read_file
from tests.analytics.samples import TENANT, sample_row, table_of

TEXT_FORMATS = [ExportFormat.CSV, ExportFormat.JSON, ExportFormat.NDJSON]
EVERY_FORM = [
    FileEncoding(export_format, compression, coding)
    for export_format in TEXT_FORMATS
    for compression in (None, *Compression)
    for coding in (None, *Compression)
] + [FileEncoding(ExportFormat.PARQUET)]

forms = pytest.mark.parametrize("form", EVERY_FORM, ids=str)


def three_tables() -> list[pa.Table]:
    """Rows in three tables, with empty ones between them, as days without a match leave."""
    rows = [table_of([sample_row(package_name=f"p{n}")] * 4, 4 * n + 1) for n in range(3)]
    nothing = rows[0].slice(0, 0)
    return [nothing, rows[0], nothing, nothing, rows[1], rows[2], nothing]


def made(form: FileEncoding, tables: list[pa.Table] | None = None) -> list[Piece]:
    return list(export_pieces(iter(tables or three_tables()), TENANT, form))


def sent(pieces: list[Piece]) -> bytes:
    return b"".join(piece.content for piece in pieces)


def file_of(pieces: list[Piece], form: FileEncoding) -> bytes:
    """The file a receiver keeps."""
    return decompressed(sent(pieces), form.coding) if form.coding else sent(pieces)


@forms
def test_rows_size_and_digest_are_those_of_the_file_that_is_kept(form):
    pieces = made(form)
    file = file_of(pieces, form)

    assert pieces[-1].rows == 12
    assert pieces[-1].size == len(file)
    assert pieces[-1].sha256 == hashlib.sha256(file).hexdigest()


@forms
def test_no_piece_is_empty_and_none_goes_back(form):
    """Some clients read an empty piece as the end of a chunked transfer."""
    pieces = made(form)

    assert all(piece.content for piece in pieces)
    assert [piece.rows for piece in pieces] == sorted(piece.rows for piece in pieces)
    assert [piece.size for piece in pieces] == sorted(piece.size for piece in pieces)


@forms
def test_the_same_rows_make_the_same_file(form):
    """A digest can be compared with that of another export of the same rows."""
    assert sent(made(form)) == sent(made(form))


@pytest.mark.parametrize("compression", Compression)
def test_what_has_arrived_can_be_decoded_at_once(compression, monkeypatch):
    """A reader sees rows while the export goes on."""
    monkeypatch.setattr(writers, "TEXT_ROWS", 1)
    pieces = made(FileEncoding(ExportFormat.NDJSON, coding=compression))
    stream = pa.CompressedInputStream(pa.BufferReader(pieces[0].content), compression.value)

    assert len(stream.read(pieces[0].size).splitlines()) == pieces[0].rows == 4


def test_small_tables_become_text_together(monkeypatch):
    tables = three_tables()
    place = tables[4].schema.get_field_index("actor")
    tables[4] = tables[4].set_column(place, "actor", tables[4]["actor"].dictionary_encode())
    form = FileEncoding(ExportFormat.NDJSON)
    joined, apart = made(form), made(form, tables)
    monkeypatch.setattr(writers, "TEXT_ROWS", 1)
    alone = made(form)

    assert [len(pieces) for pieces in (joined, apart, alone)] == [1, 3, 3]
    assert sent(joined) == sent(apart) == sent(alone)


def test_days_with_few_rows_share_a_larger_table(monkeypatch):
    monkeypatch.setattr(writers, "TEXT_ROWS", 10)
    monkeypatch.setattr(writers, "SHORT_TEXT_ROWS", 20)
    few, more = (table_of([sample_row()] * rows) for rows in (4, 6))
    form = FileEncoding(ExportFormat.NDJSON)
    short, longer, mixed = (
        [piece.rows for piece in made(form, tables)]
        for tables in ([few] * 7, [more] * 3, [few, few, few, more, few, few])
    )

    assert short == [20, 28]
    assert longer == [6, 12, 18]
    assert mixed == [12, 22, 26]


def test_a_parquet_file_takes_no_second_compression():
    """It would cost time and save nothing."""
    for wrong in ({"compression": Compression.GZIP}, {"coding": Compression.ZSTD}):
        with pytest.raises(ValueError, match="Parquet"):
            FileEncoding(ExportFormat.PARQUET, **wrong)


def test_a_parquet_file_has_typed_columns_in_the_wire_order():
    schema = pq.read_schema(io.BytesIO(sent(made(FileEncoding(ExportFormat.PARQUET)))))

    assert schema.names == list(WIRE_COLUMNS)
    assert {field.name: field.type for field in schema} == {
        name: pa.timestamp("us", tz="UTC") if name.endswith("_at") else pa.string()
        for name in WIRE_COLUMNS
    }


def test_parquet_row_groups_are_neither_tiny_nor_unbounded():
    day = table_of([sample_row()] * 1_000)
    few = made(FileEncoding(ExportFormat.PARQUET), [day] * 10)
    many = made(FileEncoding(ExportFormat.PARQUET), [day] * 200)

    assert pq.ParquetFile(io.BytesIO(sent(few))).metadata.num_row_groups == 1
    metadata = pq.ParquetFile(io.BytesIO(sent(many))).metadata
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert sum(sizes) == 200_000
    assert max(sizes) <= ROW_GROUP_ROWS
    assert [piece.rows for piece in many][:-1] == [65_000, 130_000, 195_000, 200_000]


def test_wide_rows_end_a_row_group_early():
    """Memory is bounded by bytes, not by rows."""
    wide = table_of([sample_row(payload=json.dumps({"a": "x" * 5_000_000}))])
    metadata = pq.ParquetFile(
        io.BytesIO(sent(made(FileEncoding(ExportFormat.PARQUET), [wide] * 14)))
    ).metadata

    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [7, 7]


@pytest.mark.parametrize(
    "form",
    [form for form in EVERY_FORM if form.compression or form.coding]
    + [FileEncoding(ExportFormat.JSON), FileEncoding(ExportFormat.PARQUET)],
    ids=str,
)
def test_a_file_without_its_last_piece_cannot_be_read(form):
    pieces = made(form)
    assert len(file_of(pieces, form)) == pieces[-1].size

    with pytest.raises((OSError, EOFError, ValueError)):
        _read(pieces[:-1], form)


def _read(pieces: list[Piece], form: FileEncoding) -> None:
    content = sent(pieces)
    for compression in filter(None, (form.coding, form.compression)):
        content = decompressed(content, compression)
    read_file(content, form.format)


def test_a_fault_midway_ends_the_pieces():
    def tables():
        yield table_of([sample_row()])
        raise OSError("gone")

    for form in EVERY_FORM:
        pieces = export_pieces(tables(), TENANT, form)
        with pytest.raises(OSError, match="gone"):
            list(pieces)
        assert next(pieces, None) is None


@forms
def test_an_empty_table_in_the_middle_leaves_no_trace(form):
    file = file_of(made(form), form)
    plain = decompressed(file, form.compression) if form.compression else file

    entries = read_file(plain, form.format)

    assert [entry["packageName"] for entry in entries] == ["p0"] * 4 + ["p1"] * 4 + ["p2"] * 4
