"""Statements that try to get at what is not theirs: each is refused, bounded, or finds nothing.

Acme's own rows are there; the other organisation's lie in the same data dir, sealed and unsealed.
"""

import json

import msgspec
import pytest
import pytest_asyncio

from service.audit.refusals import SQL_TOO_LARGE
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START, SettableClock, running_world, settings_over
from tests.polling import HANG_S
from tests.service.audit.conftest import AuditWorld

PATH = "/api/v1/admin/orgs/acme/audit/sql"
SECRET = "only-other-knows"
OWN = "only-acme-knows"

FILES = [
    "SELECT * FROM '{segment}'",
    'SELECT * FROM "{segment}"',
    "FROM '{segment}'",
    "SELECT * FROM read_parquet('{segment}')",
    "SELECT * FROM read_parquet(['{segment}'])",
    "SELECT * FROM parquet_scan('{segment}')",
    "SELECT * FROM parquet_metadata('{segment}')",
    "SELECT * FROM parquet_schema('{segment}')",
    "SELECT * FROM parquet_kv_metadata('{segment}')",
    "SELECT * FROM parquet_full_metadata('{segment}')",
    "SELECT * FROM read_blob('{segment}')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM read_json('{root}/x.json')",
    "SELECT * FROM read_json_auto('{root}/x.json')",
    "SELECT * FROM read_ndjson('{root}/x.json')",
    "SELECT * FROM read_json_objects('/etc/passwd')",
    "SELECT * FROM glob('{root}/**')",
    "SELECT * FROM glob('/proc/self/environ')",
    "SELECT * FROM 'https://example.com/x.parquet'",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "SELECT * FROM audit WHERE id IN (SELECT seq::VARCHAR FROM read_parquet('{segment}'))",
    "SELECT (SELECT max(content) FROM read_text('/etc/passwd')) AS x",
    "SELECT * FROM audit, LATERAL (SELECT * FROM read_text(audit.id))",
    "WITH x AS (SELECT * FROM read_blob('{segment}')) SELECT * FROM x",
    "WITH x AS MATERIALIZED (FROM '{segment}') SELECT * FROM x",
    "WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT 1 FROM '{segment}') SELECT * FROM x",
    "SELECT * FROM audit UNION ALL BY NAME SELECT * FROM '{segment}'",
    "SELECT * FROM audit ORDER BY (SELECT count(*) FROM '{segment}')",
    "SELECT * FROM audit LIMIT (SELECT count(*) FROM '{segment}')",
    "SELECT count(*) FILTER (EXISTS (FROM '{segment}')) FROM audit",
    "SELECT [x FOR x IN (SELECT list(seq) FROM '{segment}')]",
    "SELECT * FROM (PIVOT '{segment}' ON event IN ('a') USING count(*))",
    "SELECT * FROM (UNPIVOT '{segment}' ON event)",
    "TABLE '{segment}'",
    "DESCRIBE '{segment}'",
    "SUMMARIZE '{segment}'",
    "SELECT * FROM duckdb_scan('{root}/countersign.db', 'organisations')",
    "SELECT * FROM sqlite_scan('{database}', 'organisations')",
    "SELECT * FROM postgres_scan('', 'public', 'organisations')",
    "SELECT * FROM iceberg_scan('{root}')",
    "SELECT * FROM delta_scan('{root}')",
    "SELECT * FROM test_all_types()",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM arrow_scan(1::POINTER, 2::POINTER, 3::POINTER)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM python_map_function(1)",
    "SELECT * FROM seq_scan('x')",
]
CATALOG = [
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM duckdb_views()",
    "SELECT sql FROM duckdb_views",
    "SELECT * FROM duckdb_databases()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_temporary_files()",
    "SELECT * FROM duckdb_memory()",
    "SELECT * FROM duckdb_logs()",
    "SELECT * FROM duckdb_functions()",
    "SELECT * FROM which_secret('x', 's3')",
    "SELECT * FROM pragma_table_info('audit')",
    "SELECT * FROM pragma_database_size()",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM information_schema.columns",
    "SELECT * FROM pg_catalog.pg_views",
    "SELECT * FROM pg_views",
    "SELECT * FROM system.information_schema.tables",
    "SELECT * FROM temp.audit",
    "SELECT * FROM memory.main.audit",
    "SELECT * FROM stored",
    "SELECT * FROM journal",
    "SELECT * FROM job",
    "SELECT * FROM sys",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "SELECT * FROM (SHOW ALL TABLES)",
    "SELECT * FROM (DESCRIBE audit)",
    "SELECT current_setting('temp_directory')",
    "SELECT CURRENT_SETTING('memory_limit')",
    "SELECT main.current_setting('memory_limit')",
    "SELECT getenv('PATH')",
    "SELECT getvariable('x')",
    "SELECT current_database()",
    "SELECT current_schemas(true)",
    "SELECT list_transform(['memory_limit'], lambda x: current_setting(x))",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('audit')",
    "SELECT json_execute_serialized_sql('x')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "SELECT json_serialize_plan('SELECT * FROM duckdb_views()')",
    "SELECT json_deserialize_sql(json_serialize_sql('SELECT 1'))",
    "SELECT pg_get_viewdef('audit')",
    "SELECT write_log('x')",
    "SELECT nextval('x')",
]
STATEMENTS = [
    "",
    ";",
    "-- nothing",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP VIEW audit",
    "DROP VIEW audit",
    "CREATE TABLE x AS SELECT * FROM audit",
    "CREATE VIEW x AS SELECT 1",
    "CREATE OR REPLACE VIEW audit AS SELECT 1",
    "CREATE MACRO x(a) AS a",
    "CREATE MACRO x() AS TABLE SELECT * FROM '{segment}'",
    "CREATE FUNCTION x(a) AS a",
    "CREATE SECRET x (TYPE s3)",
    "CREATE TYPE x AS ENUM ('a')",
    "INSERT INTO audit VALUES (1)",
    "UPDATE audit SET id = '1'",
    "DELETE FROM audit",
    "TRUNCATE audit",
    "ALTER VIEW audit RENAME TO x",
    "COMMENT ON VIEW audit IS 'x'",
    "COPY audit TO '{root}/stolen.csv'",
    "COPY (SELECT 1) TO '/tmp/stolen.csv'",
    "COPY x FROM '/etc/passwd'",
    "EXPORT DATABASE '{root}/stolen'",
    "IMPORT DATABASE '{root}/stolen'",
    "ATTACH '{database}' AS x",
    "ATTACH '{database}' AS x (TYPE sqlite)",
    "ATTACH ':memory:' AS x",
    "DETACH memory",
    "USE memory",
    "INSTALL httpfs",
    "INSTALL sqlite FROM community",
    "LOAD httpfs",
    "LOAD '/tmp/x.duckdb_extension'",
    "UPDATE EXTENSIONS",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET threads = 8",
    "SET memory_limit = '64GB'",
    "SET VARIABLE x = 1",
    "RESET memory_limit",
    "PRAGMA memory_limit = '64GB'",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "CALL force_checkpoint()",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "BEGIN",
    "COMMIT",
    "PREPARE x AS SELECT 1",
    "EXECUTE x",
    "DEALLOCATE x",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT * FROM audit",
    "PIVOT audit ON event USING count(*)",
    "SELECT ?",
    "SELECT $1",
    "SELECT $sql",
    "MERGE INTO audit USING audit ON true WHEN MATCHED THEN DELETE",
]
BIG = [
    "SELECT repeat('x', 4_000_000_000)",
    "SELECT repeat('x', 1_000_000) FROM range(10_000)",
    "SELECT repeat('x', 100_000) FROM range(1000)",
    "SELECT list(n) FROM range(1_000_000_000) r(n)",
    "SELECT string_agg(repeat('x', 1000), '') FROM range(10_000_000)",
    "SELECT DISTINCT n FROM range(1_000_000_000) a(n)",
    "SELECT unnest(range(1_000_000_000)) ORDER BY 1 DESC",
    "SELECT lpad('x', 2_000_000_000, 'y')",
    "SELECT * FROM range(1_000_000_000) a(n) ORDER BY hash(n), n",
]
ENDLESS = [
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n + 1 FROM r) SELECT count(*) FROM r",
    "SELECT count(*) FROM range(10_000_000_000_000)",
    "SELECT sum(a.n * b.n) FROM range(10_000_000) a(n), range(10_000_000) b(n)",
    "SELECT count(*) FROM audit a, audit b, audit c, audit d, audit e, audit f, audit g, audit h",
    "SELECT count(*) FROM range(1_000_000_000) r(n) WHERE regexp_matches(n || 'aaaaaaa', '(a*)*b')",
]
NOTHING_THERE = [
    "SELECT * FROM audit WHERE tenant_id <> '{acme}'",
    "SELECT * FROM audit WHERE tenant_id = '{other}'",
    "SELECT * FROM audit WHERE version = '" + SECRET + "'",
    "SELECT * FROM audit WHERE COLUMNS(*)::VARCHAR LIKE '%" + SECRET + "%'",
    # But for the organisation's own runs, whose texts have the word.
    "SELECT * FROM audit WHERE event <> 'audit_sql_run' AND payload LIKE '%"
    + SECRET
    + "%' OR true AND version = '"
    + SECRET
    + "'",
    "WITH audit AS (SELECT * FROM audit) SELECT * FROM audit WHERE tenant_id = '{other}'",
    "SELECT * FROM audit a JOIN audit b ON a.tenant_id <> b.tenant_id",
]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(tmp_path_factory):
    """A service with rows of both organisations, whose statements get 512 MB.

    And more time than any of them needs on a busy machine: `stopped_soon` limits it.
    """
    settings = settings_over(tmp_path_factory.mktemp("target"))
    small = msgspec.structs.replace(settings, sql_max_s=HANG_S, sql_memory_mb=512)
    async with running_world(small, SettableClock(), has_sealer=False) as world:
        audit = AuditWorld(world)
        for is_sealed in (True, False):
            for org, known in ((world.acme, OWN), (world.other, SECRET)):
                payload = json.dumps({"of": known})
                await audit.accept([sample_row(START, version=known, payload=payload)] * 20, org)
            if is_sealed:
                await audit.seal()
        yield audit


@pytest.fixture
def stopped_soon(target, monkeypatch):
    monkeypatch.setattr(target.services.sql_runner, "time_max_s", 4.0)


def places(audit):
    """What a statement may name: files of the data dir that have the other's rows."""
    root = audit.services.lake.segments.root
    (segment,) = root.glob(f"**/*{audit.world.other.id}*/**/*.parquet")
    return {
        "segment": segment,
        "root": audit.services.settings.data_dir,
        "database": next(audit.services.settings.data_dir.glob("*.db"), "none"),
        "acme": audit.world.acme.id,
        "other": audit.world.other.id,
    }


async def attempt(audit, statement):
    """Status and text of the answer, which in no case has anything of the other organisation."""
    sql = statement
    for name, place in places(audit).items():
        sql = sql.replace(f"{{{name}}}", str(place))
    response = await audit.world.client.post(PATH, headers=audit.world.admin, json={"sql": sql})
    text = await response.get_data(as_text=True)
    found = text.replace(json.dumps(sql)[1:-1], "")
    assert SECRET not in found.replace(SECRET, "", sql.count(SECRET))
    return response.status_code, text


async def test_both_organisations_have_rows_there(target):
    """Otherwise nothing that follows means anything."""
    for slug, known in (("acme", OWN), ("other", SECRET)):
        answer = await target.world.client.post(
            PATH.replace("acme", slug),
            headers=target.world.admin,
            json={"sql": f"SELECT count(*) FROM audit WHERE version = '{known}'"},
        )
        assert (await answer.get_json())["rows"] == [[40]]


@sample(24)
@pytest.mark.parametrize("statement", [*FILES, *CATALOG, *STATEMENTS])
async def test_what_is_not_a_select_of_the_view_is_refused(target, statement):
    status, text = await attempt(target, statement)

    assert status == 400, text


async def test_no_file_was_written(target):
    root = target.services.settings.data_dir

    assert not [path for path in root.glob("**/*") if "stolen" in path.name]


@sample(2)
@pytest.mark.parametrize("statement", BIG)
@pytest.mark.usefixtures("stopped_soon")
async def test_what_is_too_big_is_bounded(target, statement):
    status, text = await attempt(target, statement)

    assert (status, text) in {
        (400, json.dumps({"error": SQL_TOO_LARGE.text}, separators=(",", ":"))),
        (503, text),
    }


@sample(1)
@pytest.mark.parametrize("statement", ENDLESS)
@pytest.mark.usefixtures("stopped_soon")
async def test_what_does_not_end_is_stopped(target, statement):
    status, text = await attempt(target, statement)

    assert (status, "was stopped" in text) == (503, True), text


@pytest.mark.parametrize("statement", NOTHING_THERE)
async def test_no_row_of_another_organisation_is_found(target, statement):
    status, text = await attempt(target, statement)

    assert status == 200, text
    assert json.loads(text)["rows"] == []


async def test_a_nested_statement_is_no_way_out(target):
    for depth in (10, 100_000 // 20):
        sql = "SELECT " + "(" * depth + "1" + ")" * depth
        status, _ = await attempt(target, sql[:8192])
        assert status in {200, 400}


async def test_the_service_still_answers(target):
    status, text = await attempt(target, "SELECT count(*) FROM audit WHERE version = '" + OWN + "'")

    assert (status, json.loads(text)["rows"]) == (200, [[40]])
