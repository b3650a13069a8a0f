"""The SQL page: a statement, its answer as table and drawing, saved statements."""

from datetime import timedelta

import pytest

from service.audit.sql_api import SqlColumn, SqlResult
from service.pages.sql import EXAMPLES, chart_of
from service.store.journal import append
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.pages.page import shown
from tests.service.pages.people.desk import fault_of, get, leads_to, post, see


@pytest.fixture
async def filled(world):
    rows = [
        sample_row(START - timedelta(days=days), package_name="<b>left</b>") for days in range(3)
    ]
    async with world.services.store.write() as work:
        await append(work.session, world.acme.id, rows, now=work.now)
    return world


@pytest.mark.parametrize("example", EXAMPLES)
async def test_every_example_runs_when_clicked(filled, example):
    page = await shown(await post(filled, "audit/sql", example=example))

    assert page.one("textarea", id="ask-sql").text.strip() == EXAMPLES[example]
    assert "row" in page.one("h2", id="rows").text


async def test_the_answer_is_a_table_and_what_rows_say_is_text(filled):
    sql = "SELECT packageName, NULL, [1] FROM audit WHERE packageName IS NOT NULL LIMIT 1"
    page = await shown(await post(filled, "audit/sql", sql=sql))

    assert [cell.text for cell in page.all("td")] == ["<b>left</b>", "–", "[1]"]


async def test_a_fault_stands_at_the_editor_and_the_statement_stays(filled):
    answer = await post(filled, "audit/sql", sql="SELECT * FROM nothing")

    assert answer.status_code == 400
    page = await shown(answer, 400)
    assert "no table nothing" in fault_of(page, "ask-sql")
    assert page.one("textarea", id="ask-sql").text.strip() == "SELECT * FROM nothing"


async def test_a_file_is_for_who_may_export(filled):
    answer = await post(filled, "audit/sql", sql="SELECT 5 AS n", format="csv")
    await filled.services.exporter.drain()

    assert await answer.get_data(as_text=True) == "n\n5\n"
    page = await see(filled, f"exports/{answer.headers['x-export-id']}")
    assert "SELECT 5 AS n" in page.html


async def test_a_link_shows_a_statement_and_does_not_run_it(filled):
    page = await see(filled, "audit/sql?sql=SELECT+42")

    assert page.one("textarea", id="ask-sql").text.strip() == "SELECT 42"
    assert not [row for row in await filled.audit() if row["event"] == "audit_sql_run"]


async def test_statements_are_saved_apart_from_searches(filled):
    saved = await post(filled, "audit/sql/save", name="Answer", sql="SELECT 42 AS x")

    page = await shown(await filled.client.get(leads_to(saved), headers=filled.session("owner")))
    assert page.one("textarea", id="ask-sql").text.strip() == "SELECT 42 AS x"
    assert "Answer" in (await see(filled, "audit/sql")).html
    assert "Answer" not in (await see(filled, "audit")).html
    (path,) = [path for path in page.forms if path.endswith("/delete")]
    assert leads_to(await post(filled, path.partition("/acme/")[2])).endswith("?done=deleted")
    assert "Answer" not in (await see(filled, "audit/sql")).html


async def test_who_may_not_read_the_log_gets_no_page(filled):
    assert (await get(filled, "audit/sql", "member")).status_code == 403


def result(kind, *rows):
    columns = [SqlColumn(name="x", type=kind), SqlColumn(name="n", type="BIGINT")]
    return SqlResult(
        org="acme", columns=columns, rows=list(rows), truncated=False, ms=1, retention_floor=None
    )


def test_times_are_a_line_and_other_names_bars():
    line = chart_of(result("TIMESTAMP WITH TIME ZONE", ["2026-03-04T00", 1], ["2026-03-05T00", 4]))
    bars = chart_of(result("VARCHAR", ["a", 2], ["b", 0]))

    assert (line.is_over_time, line.labels, line.heights) == (
        True,
        ["2026-03-04", "2026-03-05"],
        [18.5, 74.0],
    )
    assert (bars.is_over_time, bars.heights) == (False, [74.0, 0.0])


def test_one_row_and_texts_are_no_drawing():
    assert chart_of(result("VARCHAR", ["a", 2])) is None
    assert chart_of(result("VARCHAR", ["a", "1"], ["b", "2"])) is None
