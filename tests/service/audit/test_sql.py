"""POST …/audit/sql: questions in SQL, their answers, files and records."""

import asyncio
import io
import json
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from service.audit import sql_runs
from service.audit.refusals import SQL_DIED, SQL_TOO_LARGE
from service.orgs.organisations import set_tier
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, grant, refused
from tests.polling import until

PATH = "/api/v1/admin/orgs/acme/audit/sql"


async def send(audit, sql, headers=None, **more):
    return await audit.world.client.post(
        PATH, headers=headers or audit.world.admin, json={"sql": sql, **more}
    )


async def ask(audit, sql):
    response = await send(audit, sql)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_json()


async def runs(audit):
    page = await audit.page(event="audit_sql_run")
    return [entry["payload"] for entry in page["entries"]]


async def test_stored_rows_and_those_of_the_journal_are_one_table(audit):
    await audit.accept([sample_row(START, package_name="left-pad")] * 2)
    await audit.seal()
    await audit.accept([sample_row(START, package_name="react")])

    answer = await ask(
        audit,
        "SELECT packageName, count(*) AS n FROM audit WHERE packageName IS NOT NULL"
        " GROUP BY 1 ORDER BY n DESC",
    )

    assert list(answer) == ["org", "columns", "rows", "truncated", "ms", "retention_floor"]
    assert answer["columns"] == [
        {"name": "packageName", "type": "VARCHAR"},
        {"name": "n", "type": "BIGINT"},
    ]
    assert answer["rows"] == [["left-pad", 2], ["react", 1]]
    assert answer["truncated"] is False


async def test_columns_and_values_are_those_of_a_row(audit):
    await audit.accept([sample_row(START)])
    await audit.seal()
    await audit.accept([sample_row(START)])

    rows = (await audit.page(event="blocklist_hit"))["entries"]
    answer = await ask(audit, "SELECT * FROM audit WHERE event = 'blocklist_hit' ORDER BY id DESC")

    names = [column["name"] for column in answer["columns"]]
    found = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
    assert [row | {"payload": json.loads(row["payload"])} for row in found] == rows


async def test_only_rows_within_the_retention_are_there(audit):
    await audit.accept([sample_row(START - timedelta(days=days)) for days in (0, 100)])
    await audit.seal()
    await audit.accept([sample_row(START - timedelta(days=100))])
    count = "SELECT count(*) FROM audit WHERE event = 'blocklist_hit'"

    assert (await ask(audit, count))["rows"] == [[3]]
    async with audit.services.store.write() as work:
        acme = await work.session.merge(audit.world.acme)
        await set_tier(work, acme, "free", BY_OPERATOR)
    assert (await ask(audit, count))["rows"] == [[1]]


async def test_a_thousand_rows_are_shown_and_it_is_said_that_there_are_more(audit):
    short = await ask(audit, "SELECT * FROM range(1000)")
    long = await ask(audit, "SELECT * FROM range(1001)")

    assert (len(short["rows"]), short["truncated"]) == (1000, False)
    assert (len(long["rows"]), long["truncated"]) == (1000, True)


VALUES = [
    ("9007199254740992", 9007199254740992),
    ("9007199254740993", "9007199254740993"),
    (
        "170141183460469231731687303715884105727::HUGEINT",
        "170141183460469231731687303715884105727",
    ),
    ("'nan'::DOUBLE", "nan"),
    ("'-infinity'::DOUBLE", "-inf"),
    ("1.50::DECIMAL(10, 2)", "1.50"),
    ("TIMESTAMPTZ '2026-03-04 12:00:00+02'", "2026-03-04T10:00:00.000000Z"),
    ("TIMESTAMP '2026-03-04 12:00:00'", "2026-03-04T12:00:00.000000"),
    ("DATE '2026-03-04'", "2026-03-04"),
    ("'\\xFF'::BLOB", "/w=="),
    ("[1, NULL, 3]", [1, None, 3]),
    ("{'a': 'nan'::FLOAT}", {"a": "nan"}),
    ("MAP {'k': 1}", [["k", 1]]),
    ("true", True),
    ("NULL", None),
]
"""What expressions are in an answer."""


async def test_values_are_strict_json(audit):
    """All in one statement, for each is a process of its own; columns may have the same name."""
    columns = ", ".join(f"{expression} AS x" for expression, _ in VALUES)
    answer = await ask(audit, f"SELECT {columns}")

    assert answer["rows"] == [[value for _, value in VALUES]]


async def test_a_fault_says_where_it_is(audit):
    status, text = await refused(await send(audit, "SELECT 1\nFROM audit WHERE LIMIT 1"))

    assert status == 400
    assert "LINE 2: FROM audit WHERE LIMIT 1" in text


@pytest.mark.parametrize(
    ("at_the_end", "text"),
    [
        ("CAST('x' AS INT)", "Conversion Error: Could not convert string 'x' to INT32"),
        ("length(repeat(repeat('x', 100_000), 40_000))", SQL_TOO_LARGE.text),
    ],
)
async def test_a_fault_behind_the_first_rows_is_told(audit, at_the_end, text):
    sql = f"SELECT CASE WHEN range < 50_000 THEN 1 ELSE {at_the_end} END FROM range(50_001)"

    status, told = await refused(await send(audit, sql, format="csv"))

    assert (status, told[: len(text)]) == (400, text)


async def test_what_is_nested_too_deeply_is_told(audit):
    sql = "SELECT " + "(SELECT " * 800 + "1" + ")" * 800

    assert await refused(await send(audit, sql)) == (400, "sql is nested too deeply")


async def test_an_empty_statement_is_named_as_empty(audit):
    assert await refused(await send(audit, "")) == (400, "sql must not be empty")
    assert await runs(audit) == []


async def test_each_run_is_a_row_with_its_text(audit):
    await ask(audit, "SELECT 1")
    await send(audit, "SELECT * FROM nothing")

    refused_run, answered = await runs(audit)
    assert {**answered, "ms": 0} == {"sql": "SELECT 1", "outcome": "answered", "rows": 1, "ms": 0}
    assert (refused_run["sql"], refused_run["outcome"]) == ("SELECT * FROM nothing", "refused")


async def test_a_file_is_an_export_with_its_rows_and_its_receipt(audit):
    await audit.accept([sample_row(START, package_name="@acme/x")] * 1200)
    sql = (
        "SELECT packageName, '' AS empty, NULL AS none, 5 AS n FROM audit"
        " WHERE packageName = '@acme/x'"
    )

    text = await send(audit, sql, format="csv")
    raw = await send(audit, sql, format="csv", raw=True)
    parquet = await send(audit, sql, format="parquet")

    lines = (await text.get_data(as_text=True)).splitlines()
    assert lines[:2] == ["packageName,empty,none,n", '\'@acme/x,"",,5']
    assert len(lines) == 1201
    assert text.headers["x-row-count"] == "1200"
    assert '@acme/x,"",,5' in (await raw.get_data(as_text=True)).splitlines()
    assert pq.read_table(io.BytesIO(await parquet.get_data())).num_rows == 1200
    await audit.services.exporter.drain()
    begun = (await audit.page(event="audit_exported"))["entries"]
    assert [row["payload"]["filters"] for row in begun] == [{"sql": [sql]}] * 3
    ended = (await audit.page(event="audit_export_finished"))["entries"]
    assert [row["payload"]["complete"] for row in ended] == [True] * 3
    export_id = parquet.headers["x-export-id"]
    receipt = await audit.world.client.get(
        f"/api/v1/admin/orgs/acme/exports/{export_id}/receipt", headers=audit.world.admin
    )
    assert (await receipt.get_json())["filters"] == {"sql": [sql]}


async def test_who_may_not_export_gets_no_file(audit):
    await grant(audit.world, "member", "audit:r")
    headers = audit.world.session("member")

    assert (await send(audit, "SELECT 1", headers)).status_code == 200
    assert (await send(audit, "SELECT 1", headers, format="csv")).status_code == 403
    assert len(await runs(audit)) == 1


@pytest.fixture
def started(monkeypatch):
    """The processes of statements, once they are started."""
    processes = []
    begin = sql_runs.create_subprocess_exec

    async def recorded(*arguments, **named):
        process = await begin(*arguments, **named)
        processes.append(process)
        return process

    monkeypatch.setattr(sql_runs, "create_subprocess_exec", recorded)
    return processes


ENDLESS = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"


@asynccontextmanager
async def sent(audit, sql):
    """In the block the request is sent and not answered; then its client disconnects."""
    headers = audit.world.admin | {"content-type": "application/json"}
    async with audit.world.client.request(PATH, method="POST", headers=headers) as connection:
        await connection.send(json.dumps({"sql": sql}).encode())
        await connection.send_complete()
        yield
        await connection.disconnect()


async def test_a_statement_ends_with_its_request(audit, started):
    async with sent(audit, ENDLESS):
        await until(lambda: started)

    await until(lambda: started[0].returncode is not None)
    assert started[0].returncode == -signal.SIGKILL
    async with audit.services.sql_runner.turn(audit.world.acme.id):  # which it had until it ended
        assert [run["outcome"] for run in await runs(audit)] == ["stopped"]


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (signal.SIGKILL, (400, SQL_TOO_LARGE.text)),
        (signal.SIGSEGV, (500, SQL_DIED(value="SIGSEGV").text)),
    ],
)
async def test_a_process_that_dies_is_a_refusal_and_the_next_one_runs(
    audit, started, number, answer
):
    """The kernel kills what has used up the memory of the machine."""
    asking = asyncio.create_task(send(audit, ENDLESS))
    await until(lambda: started)
    started[0].send_signal(number)

    assert await refused(await asking) == answer
    assert (await ask(audit, "SELECT 1"))["rows"] == [[1]]


async def test_of_one_organisation_one_statement_runs_and_few_wait(audit, started):
    async with AsyncExitStack() as stack:
        for _ in range(9):
            await stack.enter_async_context(sent(audit, ENDLESS))
        await until(lambda: started)
        status, _ = await refused(await send(audit, "SELECT 1"))

        assert status == 429
        assert len(started) == 1
