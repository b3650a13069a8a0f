"""The endpoint that answers questions in SQL."""

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from quart import Response

from analytics.export.csv_json import GUARDED
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.filters import Query
from analytics.model.instants import optional_us
from analytics.model.log_envelopes import AuditSqlRun, Outcome
from analytics.query.sql_job import ROWS_MAX, SQL_CHARS_MAX, SqlFormat, SqlJob
from service.access.callers import Caller
from service.access.roles import Capability
from service.audit.export_api import EXPORT_REFUSALS, file_response
from service.audit.exports import MadeFile
from service.audit.refusals import (
    QUERY_REFUSALS,
    SQL_DIED,
    SQL_REFUSED,
    SQL_TOO_LARGE,
    SQL_TOO_SLOW,
    QueryTooSlow,
)
from service.audit.services import AuditServices
from service.audit.sql_runs import SqlAnswer
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import NOT_STORABLE_TEXT, Refusal
from service.core.text_rules import is_encodable
from service.store.tables import Organisation
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, NonNegative, Request, TimestampUs
from service.web.responses import json_answer

resource = Resource("audit_sql", "/audit/sql", Tag.AUDIT, AuditServices)

_EXPORTS: Final = {
    SqlFormat.CSV: ExportFormat.CSV,
    SqlFormat.PARQUET: ExportFormat.PARQUET,
}


_Row = Annotated[list[Any], Meta(extra_json_schema={"items": {"description": "A value in JSON."}})]


class SqlRequest(Request):
    """A statement to run. `csv` and `parquet` are files of all rows: exports, with their rights."""

    sql: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=SQL_CHARS_MAX,
            description="One SELECT of DuckDB over the view `audit`, whose columns are the members"
            " of a row.",
        ),
    ]
    format: SqlFormat = SqlFormat.JSON
    raw: Annotated[bool, Meta(description="As for exports: CSV without its guard.")] = False


class SqlColumn(Struct, kw_only=True):
    """A column of the result, and its type in DuckDB."""

    name: str
    type: str


class SqlResult(Answer):
    """The first rows of the result. What JSON has no number or type for is text."""

    org: str
    columns: list[SqlColumn]
    rows: Annotated[list[_Row], Meta(max_length=ROWS_MAX)]
    truncated: Annotated[bool, Meta(description="Whether there are more rows.")]
    ms: NonNegative
    retention_floor: TimestampUs | None


@dataclass(frozen=True, slots=True)
class Ran:
    """A statement that was run over `log`, and how long that took."""

    log: TenantLog
    answer: SqlAnswer
    ms: int


@resource.post_read(
    "run_audit_sql",
    needs=Capability.AUDIT_READ,
    body=SqlRequest,
    example={"sql": "SELECT event, count(*) AS rows FROM audit GROUP BY event ORDER BY rows DESC"},
    returns=SqlResult,
    media={_EXPORTS[each].facts.media_type.partition(";")[0]: None for each in _EXPORTS},
    refuses=[SQL_REFUSED, SQL_TOO_LARGE, SQL_TOO_SLOW, SQL_DIED, *QUERY_REFUSALS, *EXPORT_REFUSALS],
)
async def run(call: Call[AuditServices], body: SqlRequest) -> Response:
    """Answer a question in SQL over the organisation's audit log, within its retention.

    At most 1,000 rows as JSON; CSV and Parquet have all rows of the result, up to 32 MiB, need
    `audit:export`, and have the headers of an export. Each run is an audit row with its text.
    """
    if body.format is not SqlFormat.JSON:
        return await sql_file(call.services, call.org, call.caller, body)
    ran = await run_sql(call.services, call.org, call.caller, body)
    return json_answer(sql_result(call.org, ran, msgspec.Raw(ran.answer.content)))


async def sql_file(
    services: AuditServices, org: Organisation, caller: Caller, asked: SqlRequest
) -> Response:
    """The file that was asked for: an export. Raises Forbidden, and what `run_sql` raises."""
    caller.require(Capability.AUDIT_EXPORT, org)
    ran = await run_sql(services, org, caller, asked)
    encoding = FileEncoding(_EXPORTS[asked.format], is_raw=asked.raw)
    made = MadeFile(ran.log, ran.answer.outcome.rows, ran.answer.content)
    query, by = Query(given={"sql": [asked.sql]}), caller.audit_context
    begun = await services.exporter.prepare(org, query, encoding, by, services.clock(), made)
    return await file_response(services, org.slug, begun)


def sql_result(org: Organisation, ran: Ran, rows: Any) -> SqlResult:  # noqa: ANN401 - or as JSON
    """The answer to a statement, with `rows` as they are, or as they are encoded."""
    outcome = ran.answer.outcome
    return SqlResult(
        org=org.slug,
        columns=[SqlColumn(name=name, type=kind) for name, kind in outcome.columns],
        rows=rows,
        truncated=outcome.is_truncated,
        ms=ran.ms,
        retention_floor=optional_us(ran.log.floor),
    )


async def run_sql(
    services: AuditServices, org: Organisation, caller: Caller, asked: SqlRequest
) -> Ran:
    """Run what was asked in the organisation's turn, and record it before it is answered.

    A run that is refused or stopped is recorded, too, and so is one whose caller goes away.
    """
    if not is_encodable(asked.sql):
        raise NOT_STORABLE_TEXT
    is_file = asked.format is not SqlFormat.JSON
    job = SqlJob(
        sql=asked.sql,
        format=asked.format,
        guarded="" if asked.raw else GUARDED,
        rows_max=None if is_file else ROWS_MAX,
        memory_mb=services.sql.memory_mb,
        time_max_s=services.sql.time_max_s,
    )
    async with services.sql.turn(org.id):
        log = await open_log(services.store, services.lake, org, services.clock())
        began_at, rows = time.monotonic(), 0
        outcome: Outcome = "stopped"
        try:
            answer = await services.sql.run(log, job)
            outcome, rows = "answered", answer.outcome.rows
        except Refusal as refusal:
            outcome = "stopped" if isinstance(refusal, QueryTooSlow) else "refused"
            raise
        finally:
            ms = int((time.monotonic() - began_at) * 1000)
            ended = AuditSqlRun(sql=asked.sql, outcome=outcome, rows=rows, ms=ms)
            await asyncio.shield(_record(services, org, caller, ended))
    return Ran(log, answer, ms)


async def _record(
    services: AuditServices, org: Organisation, caller: Caller, ended: AuditSqlRun
) -> None:
    async with services.store.write() as work:
        work.record(org.id, ended, caller.audit_context)
