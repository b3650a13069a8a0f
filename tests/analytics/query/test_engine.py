"""The query engine: locked into the audit folder, whatever SQL reaches it."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.model.errors import StoreFault
from analytics.query.engine import STREAM_BATCH_ROWS, Cancellation, Engine, QueryStopped
from tests.analytics.samples import LIMITS
from tests.budgets import sample


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data dir as in service: the audit folder, and beside it what must not be read."""
    for folder in ("audit", "tmp", "audit2"):
        (tmp_path / folder).mkdir()
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "audit" / "rows.parquet")
    pq.write_table(pa.table({"n": [4]}), tmp_path / "audit2" / "rows.parquet")
    pq.write_table(pa.table({"n": [5]}), tmp_path / "beside.parquet")
    (tmp_path / "secret_key").write_text("secret\n")
    with sqlite3.connect(tmp_path / "countersign.db") as database:
        database.execute("CREATE TABLE journal (n)")
    database.close()
    return tmp_path


@pytest.fixture
def engine(data_dir: Path) -> Iterator[Engine]:
    opened = Engine(data_dir / "audit", data_dir / "tmp", LIMITS)
    yield opened
    opened.close()


def test_an_engine_that_cannot_be_opened_is_a_storage_fault(data_dir):
    """The page then says that the storage is at fault."""
    engine = Engine(data_dir / "audit", data_dir / "tmp", replace(LIMITS, threads=0))
    with pytest.raises(StoreFault, match="at least 1 thread"):
        engine.open()
    with pytest.raises(StoreFault, match="at least 1 thread"):
        engine.select("SELECT 1 AS n", {}, {})


def test_the_audit_folder_can_be_read(engine, data_dir):
    file = str(data_dir / "audit" / "rows.parquet")

    rows = engine.select("SELECT sum(n)::INT AS n FROM read_parquet($files)", {"files": [file]}, {})

    assert rows.to_pylist() == [{"n": 6}]


@sample(18)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd.csv'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_text('{data}/secret_key')",
        "SELECT * FROM read_blob('{data}/countersign.db')",
        "SELECT * FROM read_text('{data}/audit/../secret_key')",
        "SELECT * FROM read_parquet('{data}/audit/../beside.parquet')",
        "SELECT * FROM read_parquet('{data}/audit2/rows.parquet')",
        "SELECT * FROM read_parquet('{data}/beside.parquet')",
        "SELECT * FROM read_parquet('{data}/*.parquet')",
        "SELECT * FROM read_parquet('https://example.invalid/a.parquet')",
        "SELECT * FROM sqlite_scan('{data}/countersign.db', 'journal')",
        "ATTACH '{data}/countersign.db' AS store (TYPE sqlite)",
        "ATTACH '{data}/countersign.db' AS store",
        "ATTACH '{data}/other.duckdb' AS other",
        "INSTALL sqlite",
        "INSTALL httpfs",
        "LOAD sqlite",
        "LOAD '{data}/audit/evil.duckdb_extension'",
        "COPY (SELECT 1) TO '{data}/stolen.csv'",
        "COPY (SELECT 1) TO '/tmp/stolen.csv'",
        "COPY (SELECT 1) TO '{data}/audit/../stolen.parquet' (FORMAT parquet)",
        "EXPORT DATABASE '{data}/dump'",
        "SELECT getenv('HOME')",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET memory_limit = '100GB'",
        "SET lock_configuration = false",
        "RESET lock_configuration",
        "PRAGMA enable_external_access = true",
        "SET threads = 64",
        "SET python_enable_replacements = true",
        "SET temp_directory = '/tmp'",
        "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    ],
)
def test_nothing_else_can_be_reached_or_unlocked(engine, data_dir, sql):
    """Injected SQL would end here."""
    before = sorted(data_dir.rglob("*"))

    with pytest.raises(StoreFault):
        engine.select(sql.format(data=data_dir), {}, {})

    assert sorted(data_dir.rglob("*")) == before


@pytest.mark.parametrize("name", ["O'Brien", "a b", "é", "x'); SELECT 1 --"])
def test_a_data_dir_of_any_name_is_locked_alike(tmp_path, name):
    """The paths are the one thing that goes into SQL as text."""
    for folder in ("audit", "tmp"):
        (tmp_path / name / folder).mkdir(parents=True)
    file = tmp_path / name / "audit" / "rows.parquet"
    pq.write_table(pa.table({"n": [1]}), file)
    pq.write_table(pa.table({"n": [1]}), tmp_path / "beside.parquet")
    engine = Engine(tmp_path / name / "audit", tmp_path / name / "tmp", LIMITS)
    read = "SELECT n FROM read_parquet($file)"

    try:
        assert engine.select(read, {"file": str(file)}, {}).num_rows == 1
        with pytest.raises(StoreFault):
            engine.select(read, {"file": str(tmp_path / "beside.parquet")}, {})
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("TimeZone", "UTC"),
        ("threads", LIMITS.threads),
        ("python_enable_replacements", False),
        ("enable_external_access", False),
        ("autoinstall_known_extensions", False),
        ("autoload_known_extensions", False),
        ("allow_community_extensions", False),
        ("lock_configuration", True),
        ("parquet_metadata_cache", True),
    ],
)
def test_every_query_runs_under_these_settings(engine, setting, value):
    """Queries run in sessions of their own, which inherit only what was set for all of them."""
    rows = engine.select("SELECT current_setting($name) AS value", {"name": setting}, {})

    assert rows.to_pylist() == [{"value": value}]


def test_python_variables_are_no_tables(engine):
    """A name in SQL must not reach into the program's frames."""
    local_table = pa.table({"n": [1]})

    with pytest.raises(StoreFault, match="local_table"):
        engine.select("SELECT * FROM local_table", {}, {})
    assert local_table.num_rows == 1


def test_two_queries_never_see_each_others_tables(engine):
    """One tenant's journal must not answer another tenant's question."""

    def own(n: int) -> list[int]:
        table = pa.table({"n": [n] * 1000})
        sql = "SELECT DISTINCT n FROM journal"
        return engine.select(sql, {}, {"journal": table}).column("n").to_pylist()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(own, range(200))) == [[n] for n in range(200)]
    with pytest.raises(StoreFault, match="journal"):
        engine.select("SELECT * FROM journal", {}, {})


def test_a_stream_is_handed_over_in_bounded_tables(engine):
    rows = 3 * STREAM_BATCH_ROWS + 1
    tables = list(engine.stream(f"SELECT range AS n FROM range({rows})", {}, {}))

    assert sum(table.num_rows for table in tables) == rows
    assert max(table.num_rows for table in tables) <= STREAM_BATCH_ROWS


def test_more_memory_than_allowed_is_a_fault_and_not_the_end_of_the_process(engine):
    """One heavy query must not take the service down."""
    heavy = "SELECT list(range) AS all_of_them FROM range(200_000_000)"

    with pytest.raises(StoreFault, match="Memory"):
        engine.select(heavy, {}, {})


ENDLESS = "SELECT count(*) FROM range(1_000_000_000) a, range(1_000_000_000) b WHERE a < b"


def test_a_stopped_query_ends_and_no_other_one_does(engine):
    """The time limit of one interrupts no other."""
    stop, others = Cancellation(), Cancellation()
    with ThreadPoolExecutor(1) as threads:
        endless = threads.submit(engine.select, ENDLESS, {}, {}, stop)
        while not endless.done():
            assert engine.select("SELECT 1 AS n", {}, {}, others).num_rows == 1
            stop.set()
        with pytest.raises(QueryStopped):
            endless.result()
    assert engine.select("SELECT 1 AS n", {}, {}, others).num_rows == 1


def test_a_stopped_stream_is_no_fault_of_the_storage(engine):
    """Its caller has gone: there is nothing to report."""
    stop = Cancellation()
    tables = engine.stream("SELECT range AS n FROM range(100_000_000)", {}, {}, stop)
    next(tables)
    stop.set()

    with pytest.raises(QueryStopped):
        sum(rows.num_rows for rows in tables)


def test_a_stream_that_fails_midway_is_a_fault_of_the_storage(engine):
    """Arrow passes DuckDB's errors on as OSError, which would be a fault of this program."""
    failing = engine.stream(
        "SELECT CASE WHEN range = 90_000 THEN error('damaged') ELSE 'ok' END AS n"
        " FROM range(100_000)",
        {},
        {},
    )

    with pytest.raises(StoreFault, match="damaged"):
        sum(rows.num_rows for rows in failing)


def test_a_query_that_was_stopped_before_it_began_does_not_begin(engine):
    """A summary runs several queries; the rest must not run without a client."""
    stop = Cancellation()
    stop.set()

    with pytest.raises(QueryStopped):
        engine.select(ENDLESS, {}, {}, stop)
