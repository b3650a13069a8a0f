"""Files to import: what an export wrote reads back, and what is broken is named with its place."""

import contextlib
import csv
import gc
import gzip
import io
import json
import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.export.compression import Compression, compressor
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, export_pieces
from analytics.imports import chunks as chunks_module
from analytics.imports.chunks import Chunk, FileKind, ImportFormat, UnreadableFile, file_kind
from analytics.imports.items import IGNORED, ITEM_COLUMNS, ImportItem
from analytics.imports.readers import read_chunks
from analytics.imports.validation import RowImporter
from analytics.model.decision_reason import compact
from analytics.model.ecosystems import Ecosystem
from analytics.model.instants import format_us
from analytics.model.row_validation import AcceptedInterval, RowRefused
from analytics.model.rows import AuditRow
from analytics.model.schema import WIRE_COLUMNS
from tests.analytics.export.test_wire import AWKWARD, FORMULAS
from tests.analytics.samples import NOON, TENANT, sample_row, table_of
from tests.budgets import budget, sample
from tests.conftest import BY_OPERATOR

CSV, NDJSON, PARQUET = ImportFormat.CSV, ImportFormat.NDJSON, ImportFormat.PARQUET
FORMS = [
    FileEncoding(file_format, compression, is_raw=is_raw)
    for file_format in (ExportFormat.CSV, ExportFormat.NDJSON)
    for compression in (None, *Compression)
    for is_raw in ((False, True) if file_format is ExportFormat.CSV else (False,))
] + [FileEncoding(ExportFormat.PARQUET)]
PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
WORDS = PRINTABLE | st.sampled_from([text for text in FORMULAS + AWKWARD if text.isprintable()])
ENVELOPES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(
    lambda rule_id: compact({"rule_id": rule_id, "source": "osv"})
)
TRIMMED = WORDS.filter(lambda word: word == word.strip())
ROWS = st.lists(
    st.builds(
        sample_row,
        created_at=st.timedeltas(timedelta(days=-400), timedelta()).map(NOON.__add__),
        package_name=st.none() | TRIMMED,
        version=st.none() | TRIMMED,
        subject=st.none() | WORDS,
        request_id=st.none() | WORDS,
        source_ip=st.none() | WORDS,
        payload=ENVELOPES,
        actor_source=st.just("oidc_github"),
        ecosystem=st.sampled_from([None, *Ecosystem]),
        repository_id=st.none() | WORDS,
        run_id=st.none() | WORDS,
        token_id=st.none() | WORDS,
    ),
    min_size=1,
    max_size=4,
)


def file_of(rows: list[AuditRow], form: FileEncoding) -> bytes:
    """What an export of `rows` is."""
    tables = (table_of([row], seq) for seq, row in enumerate(rows, start=1))
    return b"".join(piece.content for piece in export_pieces(tables, TENANT, form))


def kind_of(form: FileEncoding) -> FileKind:
    return FileKind(ImportFormat(form.format), form.compression, form.is_raw)


def chunks_of(content: bytes, kind: FileKind) -> list[Chunk]:
    return list(read_chunks(io.BytesIO(content), len(content), kind))


def entries_of(content: bytes, kind: FileKind) -> list[tuple[int, ImportItem | RowRefused]]:
    return [entry for chunk in chunks_of(content, kind) for entry in chunk.entries]


def faults_of(content: bytes, kind: FileKind) -> list[tuple[int, str]]:
    """The refused rows by line, the items made into rows as well."""
    row_importer = RowImporter(BY_OPERATOR, AcceptedInterval(NOON, None))
    _, refused = row_importer.rows(entries_of(content, kind))
    return [(one.line, one.error) for one in refused]


def fault_of_file(content: bytes, kind: FileKind) -> str:
    with pytest.raises(UnreadableFile) as unreadable:
        entries_of(content, kind)
    return str(unreadable.value)


def parquet_of(columns: dict[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def csv_of(*rows: list[str], end: str = "\n") -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(rows)
    return text.getvalue().encode()


HEADER = ["created_at", "event", "packageName"]
AT = format_us(NOON)
GOOD = [AT, "install_allowed", "x"]
LINE = json.dumps(dict(zip(HEADER, GOOD, strict=True))).encode() + b"\n"


@sample(4)
@pytest.mark.parametrize("form", FORMS, ids=str)
@settings(max_examples=budget(5, 20))
@given(rows=ROWS)
def test_what_an_export_wrote_makes_the_same_rows(form, rows):
    row_importer = RowImporter(BY_OPERATOR, AcceptedInterval(NOON, None))

    made, refused = row_importer.rows(entries_of(file_of(rows, form), kind_of(form)))

    assert refused == []
    for row, made_row in zip(rows, made, strict=True):
        for column in WIRE_COLUMNS.values():
            if column not in {"", "seq", "received_at", "decision_reason"}:
                assert getattr(made_row, column) == getattr(row, column), column


def test_every_column_of_an_export_can_be_imported():
    assert set(WIRE_COLUMNS) <= {*ITEM_COLUMNS, *IGNORED}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_positions_rise_to_the_end_of_the_file(form, monkeypatch):
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 3)
    content = file_of([sample_row(package_name=f"p{n}") for n in range(8)], form)

    chunks = [chunk for chunk in chunks_of(content, kind_of(form)) if chunk.entries]

    assert [len(chunk.entries) for chunk in chunks] == [3, 3, 2]
    assert chunks[0].entries[0][0] == (2 if form.format is ExportFormat.CSV else 1)
    positions = [chunk.position for chunk in chunks]
    assert positions == sorted(positions)
    assert positions[-1] == len(content)


def test_long_rows_end_a_chunk_early(monkeypatch):
    """Memory is bounded by bytes, not by rows."""
    row = ["x" * 60, "y", "z"]
    for content, kind, length in [
        (LINE * 5, FileKind(NDJSON), len(LINE)),
        (csv_of(HEADER, *[row] * 5), FileKind(CSV), len(csv_of(row))),
    ]:
        monkeypatch.setattr(chunks_module, "CHUNK_BYTES", 2 * length - 2)
        sizes = [len(chunk.entries) for chunk in chunks_of(content, kind) if chunk.entries]
        assert sizes == [2, 2, 1]
    wide = parquet_of({"created_at": [AT] * 8, "event": [f"{n}" * 300 for n in range(8)]})
    assert max(len(chunk.entries) for chunk in chunks_of(wide, FileKind(PARQUET))) < 8


class TestNames:
    """The name shows what a file is."""

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("a.ndjson", FileKind(NDJSON)),
            ("A.JSONL.GZ", FileKind(NDJSON, Compression.GZIP)),
            ("b/a.csv.zst", FileKind(CSV, Compression.ZSTD)),
            ("a.parquet", FileKind(PARQUET)),
        ],
    )
    def test_the_suffix_decides(self, name, kind):
        assert file_kind(name, None, is_raw=False) == kind

    @pytest.mark.parametrize("name", ["a", "a.json", "-", "a.gz", "ndjson", ".csv"])
    def test_without_one_that_is_known_it_has_to_be_said(self, name):
        with pytest.raises(UnreadableFile, match="say --format"):
            file_kind(name, None, is_raw=False)
        assert file_kind(name, CSV, is_raw=True).format is CSV

    def test_what_is_said_comes_before_the_suffix(self):
        assert file_kind("a.csv.gz", NDJSON, is_raw=False) == FileKind(NDJSON, Compression.GZIP)


class TestCompression:
    """Found by what the file begins with, and held against what its name says."""

    @pytest.mark.parametrize("compression", Compression)
    def test_it_is_undone_also_without_a_name(self, compression):
        stream = compressor(compression)
        content = stream.add(LINE) + stream.finish()

        assert len(entries_of(content, FileKind(NDJSON))) == 1
        assert len(entries_of(content, FileKind(NDJSON, compression))) == 1

    @pytest.mark.parametrize("compression", [None, *Compression])
    def test_the_file_stays_open_for_its_owner(self, compression):
        stream = compressor(compression)
        file = io.BytesIO(stream.add(LINE) + stream.finish())
        for _ in range(2):
            assert list(read_chunks(file, 1, FileKind(NDJSON)))
            gc.collect()
            assert not file.closed

    @pytest.mark.parametrize("compression", Compression)
    @pytest.mark.parametrize("content", [b"", b"\n", LINE])
    def test_a_name_that_is_wrong_is_reported(self, compression, content):
        fault = fault_of_file(content, FileKind(NDJSON, compression))

        assert fault == f"the file is not {compression}, although its name says otherwise"

    @sample(2)
    @pytest.mark.parametrize("compression", Compression)
    @pytest.mark.parametrize("file_format", [CSV, NDJSON])
    def test_a_stream_that_breaks_off_or_is_damaged_is_reported(self, compression, file_format):
        chance = random.Random(7)
        names = (f"{chance.random()}" for _ in range(400))
        rows = [sample_row(package_name=name) for name in names]
        form = FileEncoding(ExportFormat(file_format), compression)
        content = file_of(rows, form)
        kind = kind_of(form)
        for end in (len(content) // 3, len(content) - 9, len(content) - 1):
            assert "damaged or cut off" in fault_of_file(content[:end], kind)
        # Where references to earlier rows are: zstd files have no checksum of their literals.
        at = len(content) * 3 // 4
        damaged = content[:at] + bytes(64) + content[at + 64 :]
        with pytest.raises(UnreadableFile):
            entries_of(damaged, kind)

    def test_several_members_are_one_file(self):
        content = gzip.compress(LINE) + gzip.compress(LINE * 2)

        assert len(entries_of(content, FileKind(NDJSON, Compression.GZIP))) == 3


class TestNdjson:
    """A line is a row; a bad one does not hide the next."""

    KIND = FileKind(NDJSON)

    def test_refused_lines_are_reported_with_their_numbers(self):
        content = LINE + b"\n" + b"x\n" + LINE + b"\xff\n  \r\n" + b'{"a":1}\n' + LINE + b"a\0b\n"
        numbers = [number for number, _ in faults_of(content, self.KIND)]

        assert numbers == [3, 5, 7, 9]
        assert len(entries_of(content, self.KIND)) == 7

    def test_a_torn_last_line_is_reported_as_such(self):
        ((line, error),) = faults_of(LINE + LINE[:-5], self.KIND)

        assert line == 2
        assert error.startswith("the file ends in this line: ")

    def test_a_last_line_without_a_line_feed_is_fine_if_it_is_whole(self):
        assert faults_of(LINE + LINE.rstrip(), self.KIND) == []

    @pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf"])
    def test_a_file_without_a_row_has_none(self, content):
        assert entries_of(content, self.KIND) == []

    def test_carriage_returns_and_a_byte_order_mark_are_no_fault(self):
        content = b"\xef\xbb\xbf" + LINE.rstrip() + b"\r\n"

        assert faults_of(content, self.KIND) == []

    def test_a_line_without_end_is_a_fault_of_the_file_behind_what_came_before(self):
        content = LINE + b"bad\n" + b"[" * (17 * 2**20) + b"\n"
        seen = []
        chunks = read_chunks(io.BytesIO(content), len(content), self.KIND)
        with pytest.raises(UnreadableFile, match=r"^line 3: the line is longer than 16777216"):
            seen.extend(entry for chunk in chunks for entry in chunk.entries)
        assert [number for number, _ in seen] == [1, 2]


class TestCsv:
    """Python's csv, strictly."""

    KIND = FileKind(CSV)

    def test_rows_are_named_by_the_line_they_begin_in(self):
        content = csv_of(
            HEADER, GOOD, [AT, "nothing", "a\nb\nc"], GOOD, [AT, "x"], [], [AT, "x", "y", "z"], GOOD
        )

        assert [line for line, _ in faults_of(content, self.KIND)] == [3, 7, 9]
        assert "the row has 2 cells, the header 3" in dict(faults_of(content, self.KIND))[7]

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_either_line_end_is_taken(self, end):
        assert faults_of(csv_of(HEADER, GOOD, GOOD, end=end), self.KIND) == []

    def test_an_empty_cell_is_null(self):
        ((_, item),) = entries_of(csv_of([*HEADER, "actor"], [*GOOD[:2], "", ""]), self.KIND)

        assert (item.package_name, item.actor) == (None, None)

    @pytest.mark.parametrize(
        ("cell", "guarded", "raw"),
        [
            ("'@babel/core", "@babel/core", "'@babel/core"),
            ("''x", "'x", "''x"),
            ("'x", "'x", "'x"),
            ("'", "'", "'"),
            ("@x", "@x", "@x"),
        ],
    )
    def test_the_guard_is_undone_unless_raw(self, cell, guarded, raw):
        content = csv_of(HEADER, [*GOOD[:2], cell])
        for kind, expected in [(self.KIND, guarded), (FileKind(CSV, is_raw=True), raw)]:
            ((_, item),) = entries_of(content, kind)
            assert item.package_name == expected

    @pytest.mark.parametrize("name", ["Event", "seq", "package_name", "", "\x1b[2J"])
    def test_an_unknown_column_refuses_the_file_by_name(self, name):
        fault = fault_of_file(csv_of([*HEADER, name], [*GOOD, "x"]), self.KIND)

        assert fault == f"line 1: unknown column: {name}"

    def test_a_column_twice_or_missing_refuses_the_file(self):
        assert "twice" in fault_of_file(csv_of([*HEADER, "event"]), self.KIND)
        assert fault_of_file(csv_of(["packageName"]), self.KIND) == (
            "line 1: missing column: created_at, event"
        )
        assert "no header" in fault_of_file(b"", self.KIND)

    @pytest.mark.parametrize(
        ("bad", "said"),
        [
            (f'{AT},"install_allowed"x,y\n', "not CSV: "),
            (f'{AT},"install_allowed', "not CSV: unexpected end of data"),
            (f"{AT},install\rallowed,y\n", "not CSV: "),
        ],
    )
    def test_broken_quoting_is_a_fault_of_the_file(self, bad, said):
        """The start of the next row is unknown."""
        fault = fault_of_file(csv_of(HEADER, GOOD) + bad.encode(), self.KIND)

        assert fault.startswith(f"line 3: {said}")

    def test_a_last_line_without_its_end_is_refused(self):
        """`1.1` may have been `1.10`: unlike JSON, nothing in it shows that it is whole."""
        content = csv_of(HEADER, GOOD, GOOD)[:-1]

        assert faults_of(content, self.KIND) == [(3, "the file ends in this line")]

    @pytest.mark.parametrize(
        ("bad", "error"),
        [(b"\xff", "the row is not UTF-8"), (b"\0", "the row has a NUL byte")],
    )
    def test_bad_bytes_refuse_their_row(self, bad, error):
        content = csv_of(["id", *HEADER], ["a\nBAD", *GOOD], ["", *GOOD]).replace(b"BAD", bad)

        assert faults_of(content, self.KIND) == [(2, error)]
        assert fault_of_file(content.replace(b"id", bad, 1), self.KIND) == f"line 1: {error}"

    def test_a_row_without_end_is_a_fault_of_the_file(self):
        """An opened quote would swallow the rest."""
        content = csv_of(HEADER, GOOD) + b'"' + (b"x" * 999 + b"\n") * 17_000

        assert "longer than 16777216 bytes" in fault_of_file(content, self.KIND)

    def test_a_payload_may_be_long(self):
        """Python's csv module has a lower limit of its own."""
        payload = json.dumps({"rule_id": "x" * 300_000, "source": "osv"})
        content = csv_of([*HEADER, "payload"], [AT, "blocklist_hit", "x", payload])

        assert faults_of(content, self.KIND) == []


class TestParquet:
    """Typed columns; rows are counted from 1."""

    KIND = FileKind(PARQUET)

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
    def test_instants_of_any_unit_and_zone_are_instants(self, unit, zone):
        at = NOON.replace(microsecond=0)
        column = pa.array([at.replace(tzinfo=None)], pa.timestamp(unit)).cast(pa.timestamp(unit))
        column = column.view(pa.timestamp(unit, zone))
        ((_, item),) = entries_of(
            parquet_of({"created_at": column, "event": ["install_allowed"]}), self.KIND
        )
        row = RowImporter(BY_OPERATOR, AcceptedInterval(NOON, None)).row(item)

        assert row.created_at == at

    def test_an_instant_finer_than_ours_is_reported(self):
        column = pa.array([1], pa.timestamp("ns", "UTC"))
        fault = fault_of_file(parquet_of({"created_at": column, "event": ["x"]}), self.KIND)

        assert fault.startswith("not a readable Parquet file from row 1 on: ")

    @pytest.mark.parametrize("year", [-5000, 0, 20_000])
    def test_an_instant_outside_the_calendar_is_refused(self, year):
        us = int((year - 1970) * 365.2425 * 86_400_000_000)
        column = pa.array([us], pa.int64()).cast(pa.timestamp("us", "UTC"))
        content = parquet_of({"created_at": column, "event": ["install_allowed"]})

        assert faults_of(content, self.KIND) == [(1, "created_at must be an RFC 3339 instant")]

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    @pytest.mark.parametrize("is_dictionary", [True, False])
    def test_any_kind_of_text_is_text(self, kind, is_dictionary):
        columns = {"created_at": pa.array([AT, None], kind), "event": pa.array(["x", None], kind)}
        if is_dictionary:
            columns = {name: column.dictionary_encode() for name, column in columns.items()}
        items = [item for _, item in entries_of(parquet_of(columns), self.KIND)]

        assert [(item.created_at, item.event) for item in items] == [(AT, "x"), (None, None)]

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("packageName", [1]),
            ("created_at", [1]),
            ("event", [b"x"]),
            ("payload", [{"rule_id": "r"}]),
            ("decision", [True]),
        ],
    )
    def test_a_column_of_another_type_refuses_the_file(self, name, values):
        content = parquet_of({"created_at": [AT], "event": ["x"], name: values})

        assert fault_of_file(content, self.KIND).startswith(f"column {name} is of type ")

    def test_unknown_and_missing_columns_refuse_the_file(self):
        assert fault_of_file(
            parquet_of({"created_at": [AT], "event": ["x"], "b": [1]}), self.KIND
        ) == ("unknown column: b")
        assert (
            fault_of_file(parquet_of({"event": ["x"]}), self.KIND) == "missing column: created_at"
        )

    def test_columns_that_are_read_over_may_be_anything(self):
        content = parquet_of(
            {"created_at": [AT], "event": ["install_allowed"], "id": [7], "tenant_id": [[1.5]]}
        )

        assert faults_of(content, self.KIND) == []

    def test_refused_rows_are_named_by_their_number(self, monkeypatch):
        monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 2)
        events = ["install_allowed", "no", "install_allowed", "install_allowed", None]
        content = parquet_of({"created_at": [AT] * 5, "event": events})

        assert [row for row, _ in faults_of(content, self.KIND)] == [2, 5]

    def test_text_that_is_not_utf_8_refuses_its_row(self):
        raw = pa.array([b"ok", b"\xff", b"ok"]).view(pa.string())
        content = parquet_of({"created_at": [AT] * 3, "event": raw}, use_dictionary=False)

        assert (2, "the row is not UTF-8") in faults_of(content, self.KIND)

    def test_a_file_without_rows_has_none(self):
        content = file_of([], FileEncoding(ExportFormat.PARQUET))

        assert entries_of(content, self.KIND) == []

    def test_a_damaged_file_is_reported(self):
        chance = random.Random(20261120)
        rows = [sample_row(package_name=f"{chance.random()}") for _ in range(300)]
        content = file_of(rows, FileEncoding(ExportFormat.PARQUET))
        for wrong in (b"", b"PAR1", b"x" * 500, content[:-1], content[: len(content) // 2]):
            assert fault_of_file(wrong, self.KIND).startswith("not a readable Parquet file")
        for _ in range(100):
            damaged = bytearray(content)
            for _ in range(chance.randint(1, 20)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            with contextlib.suppress(UnreadableFile):
                faults_of(bytes(damaged), self.KIND)


def test_a_long_text_that_many_parquet_rows_share_is_spelt_out_for_a_few_at_a_time():
    """The file holds it once, and is a kilobyte."""
    payload = f'{{"registry":"{"a" * 1_000_000}"}}'
    nothing, count = [None], 100
    content = parquet_of(
        {
            "created_at": [format_us(NOON)] * (count + 1),
            "event": ["oss_first_party"] * (count + 1),
            "payload": [payload] * count + nothing,
        },
        compression="zstd",
    )
    assert len(content) < 3_000

    chunks = list(read_chunks(io.BytesIO(content), len(content), FileKind(PARQUET)))

    entries = [entry for chunk in chunks for entry in chunk.entries]
    assert [number for number, _ in entries] == list(range(1, count + 2))
    assert [len(bytes(item.payload)) for _, item in entries] == [len(payload)] * count + [0]
    for chunk in chunks:
        assert (
            sum(len(bytes(item.payload)) for _, item in chunk.entries) <= chunks_module.CHUNK_BYTES
        )
    assert chunks[-1].position == len(content)


def test_a_parquet_file_of_too_many_rows_is_refused_before_one_is_read():
    """Its rows are equal: 3 MB of memory as a column, and a kilobyte as a file."""
    content = parquet_of({"created_at": ["x"] * 100_000, "event": ["y"] * 100_000})
    assert len(content) < 4_000

    chunks = read_chunks(io.BytesIO(content), len(content), FileKind(PARQUET), rows_max=99_999)

    with pytest.raises(UnreadableFile, match="more than 99,999 rows: split it"):
        next(chunks)


def test_a_parquet_file_that_says_it_has_no_rows_and_has_some_is_refused():
    """Its footer counts them twice: in all, and by row group."""
    content = parquet_of({"created_at": ["x"] * 77, "event": ["y"] * 77})
    in_all = content.index(b"\x16\x9a\x01", content.index(b"created_at", 4))
    said = content[:in_all] + b"\x16\x80\x00" + content[in_all + 3 :]

    assert fault_of_file(said, FileKind(PARQUET)) == "the file has 77 rows and says that it has 0"
