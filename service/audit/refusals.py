"""Refusals of requests that send, read, export or prune audit rows."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from service.core.errors import (
    TOO_MANY_WAITING_OF_CALLER,
    WAITED_TOO_LONG,
    Busy,
    Conflict,
    Invalid,
    NotFound,
    Refusal,
    ServerBusy,
    TooManyWaiting,
    UnsupportedMediaType,
)

NOT_ITEMS: Final = Invalid.of(
    "request body must be a JSON array, or one JSON object a line (application/x-ndjson)"
)
NOT_INGEST_TYPE: Final = UnsupportedMediaType.of(
    "content-type must be application/json or application/x-ndjson"
)


class JournalFull(Busy):
    """Too many of the organisation's rows wait to be sealed."""

    text = "the journal of this organisation is full"
    retry_after_s = 5


class AuditRowNotFound(NotFound):
    """The id is unknown, another organisation's, or past retention."""

    text = "Audit row not found for this org"


EXPORT_NOT_FOUND: Final = NotFound.of("Export not found for this org")
EXPORT_NOT_FINISHED: Final = Conflict.of(
    "the export is {value}: only a finished export has a receipt", value="running"
)
TOO_MANY_EXPORTS: Final = Busy.of(
    "too many exports of this organisation at once: wait until one of them ends", retry_after_s=30
)
TOO_MANY_OWN_EXPORTS: Final = Busy.of(
    "too many exports of yours at once: wait until one of them ends", retry_after_s=30
)
TOO_MANY_EXPORTS_OF_ALL: Final = ServerBusy.of(
    "too many exports run on this server: try again later", retry_after_s=30
)


class ClockRefusal(StrEnum):
    """Why pruning is refused, see `service.audit.clock_guard`."""

    LATE = "late"
    AHEAD = "ahead"
    DIFFERENT = "different"
    NO_RECORD = "no_record"


class ClockNotTrusted(Conflict):
    """The clock may have jumped ahead; pruning by it could drop recent rows."""

    text = (
        "{why}; correct the clock, or if it is right, run `countersign audit prune --accept-clock`"
        " (with --dry-run first to see what would go)"
    )

    def __init__(
        self, reason: ClockRefusal, why: str, now: datetime, last_run_at: datetime | None
    ) -> None:
        super().__init__(why=why)
        self.reason = reason
        self.why = why
        self.now = now
        self.last_run_at = last_run_at


class QueryTooSlow(Refusal):
    """The query exceeded its time limit and was stopped."""

    status = 503
    text = "the query took too long and was stopped: ask for a shorter window"


SQL_REFUSED: Final = Invalid.of("{value}", field="sql", value="sql must be one SELECT statement")
SQL_TOO_SLOW: Final = QueryTooSlow.of(
    "the statement ran for {seconds} s and was stopped: ask for fewer days or columns", seconds="30"
)
SQL_TOO_LARGE: Final = Invalid.of(
    "the statement needs more memory than it may have, or its result is too large: ask for fewer"
    " days, columns or rows",
    field="sql",
)
SQL_DIED: Final = Refusal.of(
    "the process of the statement died ({value}), which is a fault of the service: ask in another"
    " way",
    status=500,
    value="SIGSEGV",
)

QUERY_REFUSALS: Final[tuple[type[Refusal], ...]] = (
    QueryTooSlow,
    TooManyWaiting,
    TOO_MANY_WAITING_OF_CALLER,
    ServerBusy,
    WAITED_TOO_LONG,
)
"""What a query may be refused for, besides what is wrong with it."""
