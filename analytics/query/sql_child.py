"""Runs one SELECT over one organisation's rows, as a process of its own: `python -m` this module.

What it may use is taken from it before it looks at the statement. The files of the rows are mapped
first; from then on the limit of open files is what is open, so that it can open no file, socket or
pipe, and it may write none. The kernel bounds its memory and its time, and ends it.
DuckDB has one view, `audit`; a statement that names anything else is refused before it is bound.
"""

import math
import os
import re
import resource
import secrets
import signal
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from analytics.model.schema import AUDIT_SCHEMA, ID_DIGITS, ID_PREFIX, WIRE_COLUMNS
from analytics.query.sql_job import (
    FILE_BYTES_MAX,
    JSON_BYTES_MAX,
    TOO_LARGE,
    SqlFormat,
    SqlJob,
    SqlOutcome,
    StoredRows,
)

_NICENESS: Final = 19
_STANDARD_STREAMS: Final = 3
_EXACT: Final = 2**53
"""Larger integers are text: most readers of JSON would round them."""

_BATCH_ROWS: Final = 1_024
_TABLE_FUNCTIONS: Final = frozenset(
    {"unnest", "range", "generate_series", "json_each", "json_tree"}
)
_REFUSED_FUNCTIONS: Final = re.compile(
    "(current_(setting|database|catalog|schemas?)|getenv|getvariable|in_search_path|write_log"
    "|json_(de)?serialize_\\w+|json_execute_\\w+|query(_table)?|nextval|currval|pg_\\w+|txid_\\w+)"
)
_ONE_SELECT: Final = "sql must be one SELECT statement"
_TOO_DEEP: Final = "sql is nested too deeply"
_NO_MEMORY: Final = re.compile("out of memory|bad_alloc|allocation fail", re.IGNORECASE)
"""As DuckDB and Arrow say it."""


class Refused(Exception):
    """The statement is not run, or has no result that may be shown."""


def main() -> None:
    """Run the job that standard input has, and write its outcome to standard output."""
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=SqlJob)
    _bound_time(job.time_max_s)
    with pa.ipc.open_stream(sys.stdin.buffer) as stream:
        journal = stream.read_all()
    connection = _open(job, journal)
    _close_off(job.memory_mb)
    content = b""
    try:
        outcome, content = _run(connection, job)
    except Refused as refusal:
        outcome = SqlOutcome(refused=str(refusal))
    except (MemoryError, duckdb.OutOfMemoryException, pa.ArrowMemoryError):
        outcome = SqlOutcome(refused=TOO_LARGE)
    except RecursionError:
        outcome = SqlOutcome(refused=_TOO_DEEP)
    # An error of DuckDB after the first batch is one of Arrow's, as which it is an OSError.
    except (duckdb.Error, pa.ArrowException, OSError, ValueError, OverflowError) as error:
        text = str(error)
        outcome = SqlOutcome(refused=TOO_LARGE if _NO_MEMORY.search(text) else text)
    sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n" + content)
    sys.stdout.flush()
    # To take apart a statement that ran out of memory needs memory: DuckDB would crash.
    os._exit(0)


def _bound_time(time_max_s: float) -> None:
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the server ends this
    # Also when the server is gone: the kernel ends the process then.
    signal.setitimer(signal.ITIMER_REAL, time_max_s)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))


def _close_off(memory_mb: int) -> None:
    """Give up what the statement must not have: files, sockets, more memory."""
    pa.scalar(0, pa.timestamp("us", "UTC")).as_py()  # reads the time zone, while it still can
    resource.setrlimit(resource.RLIMIT_NOFILE, (_STANDARD_STREAMS, _STANDARD_STREAMS))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mb * 2**20,) * 2)


def _open(job: SqlJob, journal: pa.Table) -> duckdb.DuckDBPyConnection:
    """DuckDB with the view `audit` of the job's rows and nothing else, and all doors closed."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": f"{job.memory_mb // 2}MB",
            "temp_directory": "",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
        },
    )
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")  # after the folder, which it fixes
    # No statement can guess what the view is made of.
    stored, waiting = (f"{name}_{secrets.token_hex(16)}" for name in ("stored", "waiting"))
    connection.register(stored, _dataset(job.files))
    connection.register(waiting, journal)
    expressions = {
        "seq": f"'{ID_PREFIX}' || lpad(seq::VARCHAR, {ID_DIGITS}, '0')",
        "": "'" + job.tenant_id.replace("'", "''") + "'",
    }
    columns = ", ".join(f'{expressions.get(c, c)} AS "{name}"' for name, c in WIRE_COLUMNS.items())
    rest = ", ".join(name for name in AUDIT_SCHEMA.names if name not in {"seq", "received_at"})
    floor = "-infinity" if job.floor is None else job.floor.isoformat()
    connection.execute(
        f"CREATE VIEW audit AS SELECT {columns} FROM ("  # noqa: S608 - names of ours, no input
        f" SELECT seq + seq_base AS seq, coalesce(based_at, received_at) AS received_at, {rest}"
        f" FROM {stored} UNION ALL SELECT seq, received_at, {rest} FROM {waiting}"
        f") WHERE created_at >= TIMESTAMPTZ '{floor}'"
    )
    connection.execute("SET lock_configuration = true")
    return connection


_BASES: Final = (pa.field("seq_base", pa.int64()), pa.field("based_at", pa.timestamp("us", "UTC")))


def _dataset(files: Sequence[StoredRows]) -> ds.Dataset:
    """The rows of `files`, which are mapped and closed again; with the two of _BASES."""
    reads = ds.ParquetFileFormat()

    def fragment(file: StoredRows) -> ds.Fragment:
        with pa.memory_map(file.path) as mapped:
            content = mapped.read_buffer()  # keeps the mapping
        based = ds.field("seq_base") == file.seq_base
        if file.received_at is not None:
            based &= ds.field("based_at") == pa.scalar(file.received_at, _BASES[1].type)
        return reads.make_fragment(content, partition_expression=based)

    fragments = [fragment(file) for file in files]
    schema = pa.schema([*AUDIT_SCHEMA, *_BASES])
    if not fragments:
        return ds.dataset(schema.empty_table())
    return ds.FileSystemDataset(fragments, schema, reads)


def _run(connection: duckdb.DuckDBPyConnection, job: SqlJob) -> tuple[SqlOutcome, bytes]:
    _check(connection, job.sql)
    relation = connection.sql(job.sql)
    columns = [
        (name, str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)
    ]
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    batches, rows, size = [], 0, 0
    for batch in reader:
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size > job.memory_mb * 2**18:
            raise Refused(TOO_LARGE)
        if job.rows_max is not None and rows > job.rows_max:
            break
    table = pa.Table.from_batches(batches, reader.schema).slice(0, job.rows_max)
    content = _FORMATS[job.format](table, columns, job)
    if len(content) > (JSON_BYTES_MAX if job.format is SqlFormat.JSON else FILE_BYTES_MAX):
        raise Refused(TOO_LARGE)
    is_truncated = rows > table.num_rows
    return SqlOutcome(columns=columns, rows=table.num_rows, is_truncated=is_truncated), content


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise Refused unless `sql` is one SELECT of `audit` and of what it defines itself."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type is not duckdb.StatementType.SELECT:
        raise Refused(_ONE_SELECT)
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = msgspec.json.decode(text)
    if tree.get("error") is not False:
        raise Refused(tree.get("error_message", _ONE_SELECT))
    nodes = list(_nodes(tree))
    defined = (entry for node in nodes for entry in node.get("cte_map", {}).get("map", ()))
    known = {"audit", *(entry["key"].lower() for entry in defined)}
    for node in nodes:
        kind = node.get("type")
        if kind == "SHOW_REF":
            raise Refused(_ONE_SELECT)
        if kind == "BASE_TABLE":
            named = [node["catalog_name"], node["schema_name"], node["table_name"]]
            name = ".".join(filter(None, named))
            if name.lower() not in known:
                raise Refused(f"there is no table {name}: the only one is audit")
        if kind == "TABLE_FUNCTION":
            name = node["function"].get("function_name", "")
            if name.lower() not in _TABLE_FUNCTIONS:
                raise Refused(f"the table function {name} is not available")
        if _REFUSED_FUNCTIONS.fullmatch(str(node.get("function_name", "")).lower()):
            raise Refused(f"the function {node['function_name']} is not available")


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """All objects of a statement's tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


Columns = Sequence[tuple[str, str]]


def _json(table: pa.Table, columns: Columns, job: SqlJob) -> bytes:
    return msgspec.json.encode(list(_plain_rows(table)))


def _csv(table: pa.Table, columns: Columns, job: SqlJob) -> bytes:
    rows: list[list[object]] = [[name for name, _ in columns], *_plain_rows(table)]
    return "".join(",".join(_cell(v, job.guarded) for v in row) + "\n" for row in rows).encode()


def _parquet(table: pa.Table, columns: Columns, job: SqlJob) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


_FORMATS: Final[dict[SqlFormat, Callable[[pa.Table, Columns, SqlJob], bytes]]] = {
    SqlFormat.JSON: _json,
    SqlFormat.CSV: _csv,
    SqlFormat.PARQUET: _parquet,
}


def _plain_rows(table: pa.Table) -> Iterator[list[object]]:
    for batch in table.to_batches(_BATCH_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield list(map(_plain, row))


def _plain(value: Any) -> object:  # noqa: ANN401 - a value of any type
    """`value` as strict JSON has it: what JSON has no number or type for is text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_EXACT <= value <= _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            utc = value if value.tzinfo is None else value.astimezone(UTC)
            text = utc.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text if value.tzinfo is None else f"{text}Z"
        case date() | time():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return str(value)


def _cell(value: object, guarded: str) -> str:
    """A field of CSV (RFC 4180): null is empty, empty text quoted, formulas guarded."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return _cell(msgspec.json.encode(value).decode(), "")
    text = f"'{value}" if value[:1] and value[0] in guarded else value
    if not text or any(c in text for c in ',";\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


if __name__ == "__main__":
    main()
