"""The page that answers questions in SQL."""

from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import parse_qs, urlencode

import msgspec
from msgspec import Meta
from quart import Blueprint
from quart.typing import ResponseReturnValue

from analytics.model.schema import COLUMNS, WIRE_COLUMNS
from analytics.query.sql_job import ROWS_MAX, SQL_CHARS_MAX, SqlFormat
from service.access.roles import Capability
from service.audit import saved_searches
from service.audit.sql_api import SqlRequest, SqlResult, run_sql, sql_file, sql_result
from service.core.errors import Refusal
from service.pages.page import Form, FormState, Page, PageCall, View, page_post
from service.web.models import Request

blueprint = Blueprint("dashboard_sql", __name__, url_prefix="/admin/ui/orgs/<slug>/audit/sql")

EXAMPLES: Final = {
    "Installs by week": """SELECT date_trunc('week', created_at) AS week, count(*) AS installs
FROM audit WHERE decision IS NOT NULL
GROUP BY week ORDER BY week""",
    "New packages, last 7 days": """SELECT min(created_at) AS first_seen,
  ecosystem, packageName, count(*) AS rows
FROM audit WHERE packageName IS NOT NULL
GROUP BY ecosystem, packageName
HAVING first_seen > now() - INTERVAL 7 DAY
ORDER BY first_seen DESC""",
    "Share blocked by repository": """SELECT repository_id,
  count(*) FILTER (decision = 'BLOCKED') / count(*) AS share, count(*) AS installs
FROM audit WHERE repository_id IS NOT NULL AND decision IS NOT NULL
GROUP BY repository_id ORDER BY share DESC LIMIT 20""",
    "Jobs outside working hours": """SELECT subject, count(*) AS rows, max(created_at) AS last
FROM audit WHERE subject IS NOT NULL AND hour(created_at) NOT BETWEEN 6 AND 20
GROUP BY subject ORDER BY rows DESC LIMIT 20""",
    "Member of the payload": """SELECT payload->>'$.rule_id' AS rule, count(*) AS blocks
FROM audit WHERE event = 'blocklist_hit'
GROUP BY rule ORDER BY blocks DESC LIMIT 20""",
}
_LABELS: Final = {column.wire: column.label for column in COLUMNS}
_BARS_MAX: Final = 120
HEIGHT: Final = 74
"""Of the chart, in pixels."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of the first number of each row, named by the first column."""

    name: str
    labels: list[str]
    values: list[float]
    is_over_time: bool

    @property
    def heights(self) -> list[float]:
        """Of each value, in pixels."""
        top = max([*self.values, 0]) or 1
        return [round(HEIGHT * max(0, value) / top, 1) for value in self.values]


def chart_of(result: SqlResult) -> Chart | None:
    """The drawing of a result whose first column names rows and of which another has numbers."""
    if not 1 < len(result.rows) <= _BARS_MAX:
        return None
    for place, column in enumerate(result.columns[1:], 1):
        values = [row[place] for row in result.rows]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            is_over_time = result.columns[0].type.startswith(("TIMESTAMP", "DATE"))
            labels = [str(row[0])[: 10 if is_over_time else 80] for row in result.rows]
            return Chart(column.name, labels, values, is_over_time)
    return None


class SqlPageQuery(Request):
    """A statement to show in the editor; it is not run."""

    sql: Annotated[str, Meta(max_length=SQL_CHARS_MAX)] = ""


@Page(
    blueprint,
    "",
    "sql.html",
    needs=Capability.AUDIT_READ,
    query=SqlPageQuery,
    reads_form=True,
    done={"saved": "The statement was saved.", "deleted": "The saved statement was deleted."},
)
async def sql_page(call: PageCall, query: SqlPageQuery, state: FormState) -> View:
    """The editor, the columns beside it, examples and saved statements."""
    async with call.read() as session:
        searches = await saved_searches.list_searches(session, call.org.id, is_sql=True)
    return {
        "sql": query.sql or state.typed.get("sql") or next(iter(EXAMPLES.values())),
        "columns": {name: _LABELS.get(name, "Organisation") for name in WIRE_COLUMNS},
        "examples": EXAMPLES,
        "saved": [(search, _statement_of(search.query)) for search in searches],
        "result": None,
        "chart": None,
        "rows_max": ROWS_MAX,
    }


@page_post(blueprint, "", needs=Capability.AUDIT_READ)
async def ask(call: PageCall, form: Form) -> ResponseReturnValue:
    """The answer to the statement, on the page, or as a file."""
    sql = EXAMPLES.get(form.get("example", "")) or form.get("sql", "")
    services = call.services.audit
    try:
        asked = SqlRequest.parse({"sql": sql, "format": form.get("format", SqlFormat.JSON)})
        if asked.format is not SqlFormat.JSON:
            return await sql_file(services, call.org, call.caller, asked)
        ran = await run_sql(services, call.org, call.caller, asked)
    except Refusal as refusal:
        state = FormState(typed=form, faults={"sql": [refusal.text]}, status=refusal.status)
        return await sql_page.show(call, state, {}, sql=sql)
    result = sql_result(call.org, ran, msgspec.json.decode(ran.answer.content))
    return await sql_page.show(
        call, FormState(), {}, sql=sql, result=result, chart=chart_of(result)
    )


def _statement_of(query: str) -> str:
    return parse_qs(query)[saved_searches.SQL][0]


sql_page.form(
    "/save",
    "save",
    saved_searches.create,
    "saved",
    field="name",
    fields=lambda form: {
        "name": form.get("name", ""),
        "query": urlencode({saved_searches.SQL: form.get("sql", "")}),
    },
    at=lambda search, _: {"sql": _statement_of(search.query)},
)
sql_page.form("/saved/<search_id>/delete", "delete", saved_searches.delete, "deleted")
