"""Queries of the audit log, in pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from msgspec import Raw

from analytics.export.wire import json_objects
from analytics.model.cursors import InvalidCursor as WrongCursor
from analytics.model.cursors import Position, decode_cursor, encode_cursor
from analytics.model.filters import Query, only, parse_query
from analytics.model.instants import optional_us
from analytics.model.schema import audit_id, parse_audit_id
from analytics.query.executor import ScanReport
from analytics.query.newest_texts import position_of
from service.audit.lake import Lake
from service.audit.refusals import AuditRowNotFound
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import Invalid
from service.store.store import Store
from service.store.tables import Organisation
from service.web.refusals import INVALID_CURSOR
from service.web.request_parsing import parse_limit

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
PAGE_PARAMETERS: Final = ("limit", "cursor")
ACCEPTED_PARAMETERS: Final = ("limit", "after")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A query, and the page of it to return."""

    query: Query
    limit: int
    cursor: str | None


@dataclass(frozen=True, slots=True)
class RowPage:
    """`entries` are JSON objects as text; `next_cursor` is None on the last page."""

    entries: list[str]
    next_cursor: str | None
    retention_floor: datetime | None


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """The rows to follow: those accepted after the seq `after`; None begins with the next one."""

    query: Query
    limit: int
    after: int | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """`entries` are JSON objects as text, in the order of acceptance; `last` is an audit id."""

    entries: list[str]
    last: str


def parse_accepted_request(parameters: Mapping[str, list[str]]) -> AcceptedRequest:
    """The rows to follow in the query parameters. Raises InvalidQuery, Invalid.

    There is no `order`: it is that of acceptance.
    """
    filters = {name: each for name, each in parameters.items() if name not in ACCEPTED_PARAMETERS}
    query = parse_query(filters, has_order=False)
    after = only(parameters, "after")
    seq = None if after is None else parse_audit_id(after)
    if after is not None and seq is None:
        raise Invalid("after must be the id of an audit row", field="after")
    return AcceptedRequest(
        query, parse_limit(only(parameters, "limit"), LIMIT_DEFAULT, LIMIT_MAX), seq
    )


def parse_page_request(parameters: Mapping[str, list[str]]) -> PageRequest:
    """The page in the query parameters. Raises InvalidQuery, Invalid."""
    query = parse_query(
        {name: values for name, values in parameters.items() if name not in PAGE_PARAMETERS}
    )
    return PageRequest(
        query,
        parse_limit(only(parameters, "limit"), LIMIT_DEFAULT, LIMIT_MAX),
        only(parameters, "cursor"),
    )


def page_answer(slug: str, page: RowPage) -> dict[str, Any]:
    """A page in the API's representation."""
    return {
        "org": slug,
        "entries": [Raw(entry) for entry in page.entries],
        "next_cursor": page.next_cursor,
        "retention_floor": optional_us(page.retention_floor),
    }


def accepted_answer(slug: str, accepted: Accepted) -> dict[str, Any]:
    """Rows in the order of acceptance, in the API's representation."""
    entries = [Raw(entry) for entry in accepted.entries]
    return {"org": slug, "entries": entries, "last": accepted.last}


async def find_entry(log: TenantLog, audit_id: str) -> str:
    """The row `audit_id` as a JSON object. Raises AuditRowNotFound, StoreFault, QueryTooSlow."""
    seq = parse_audit_id(audit_id)
    rows = None if seq is None else await log.row(seq)
    if rows is None or rows.num_rows == 0:
        raise AuditRowNotFound
    return json_objects(rows, log.org.id)[0]


@dataclass(frozen=True, slots=True)
class AuditQueryService:
    """Answers audit queries within each organisation's retention."""

    _store: Store
    _lake: Lake
    _cursor_key: bytes

    async def page(
        self,
        org: Organisation,
        wanted: PageRequest,
        now: datetime,
        log: TenantLog | None = None,
        reports: list[ScanReport] | None = None,
    ) -> RowPage:
        """One page of rows, of `log` if given. Raises INVALID_CURSOR, StoreFault.

        Appends to `reports` what each scan of the plan has read.
        """
        after = self._position(org, wanted)
        log = log or await open_log(self._store, self._lake, org, now)
        # One extra row tells whether there is a next page.
        rows = await log.texts(wanted.query, wanted.limit + 1, after, reports)
        shown, next_cursor = rows[: wanted.limit], None
        if len(rows) > wanted.limit:
            position = position_of(shown[-1], log.snapshot, after)
            next_cursor = encode_cursor(position, self._cursor_key, org.id, wanted.query)
        return RowPage([text for _, text in shown], next_cursor, log.floor)

    async def accepted(self, org: Organisation, wanted: AcceptedRequest, now: datetime) -> Accepted:
        """The rows accepted after a given one, none of them twice. Raises StoreFault.

        If the whole service has no new row, this reads a single database row.
        """
        newest = await self._store.last_seq()
        if wanted.after is None or wanted.after >= newest:
            # After a backup is restored, a client may have seen newer rows than there are.
            return Accepted([], audit_id(newest))
        log = await open_log(self._store, self._lake, org, now)
        rows = await log.accepted_after(wanted.query, wanted.after, wanted.limit + 1, None)
        if rows.num_rows <= wanted.limit:
            return Accepted(json_objects(rows, org.id), audit_id(log.snapshot.watermark))
        shown = rows.slice(0, wanted.limit)
        last = shown["seq"][wanted.limit - 1].as_py()
        return Accepted(json_objects(shown, org.id), audit_id(last))

    async def entry(self, org: Organisation, audit_id: str, now: datetime) -> str:
        """One row as a JSON object. Raises AuditRowNotFound, StoreFault."""
        return await find_entry(await open_log(self._store, self._lake, org, now), audit_id)

    def _position(self, org: Organisation, wanted: PageRequest) -> Position | None:
        if wanted.cursor is None:
            return None
        try:
            return decode_cursor(wanted.cursor, self._cursor_key, org.id, wanted.query)
        except WrongCursor as error:
            raise INVALID_CURSOR from error
