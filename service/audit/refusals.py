"""Refusals of requests that send, read, export or prune audit rows."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from service.core.errors import (
    DAMAGED,
    TOO_MANY_WAITING_OF_CALLER,
    WAITED_TOO_LONG,
    Busy,
    Conflict,
    Invalid,
    NotFound,
    Refusal,
    ServerBusy,
    StoreUnavailable,
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


class NotSignedYet(Conflict):
    """No checkpoint covers the row yet."""

    text = "the row is newer than the last checkpoint: ask again in a minute"
    retry_after_s = 60


NO_CHECKPOINT: Final = Conflict.of(
    "no checkpoint of this org is signed yet: ask again in a minute", retry_after_s=60
)
CHECKPOINT_NOT_FOUND: Final = NotFound.of("Checkpoint not found for this org")
TILE_NOT_FOUND: Final = NotFound.of("Tile not found for this org")
ROW_PRUNED: Final = Refusal.of(
    "retention deleted rows {first} to {last} of this org: {value}",
    status=410,
    first="aud_0000000000000000001",
    last="aud_0000000000000000009",
    value="audit row aud_0000000000000000042 says so, and can be proved",
)
LEAVES_PRUNED: Final = Refusal.of(
    "retention deleted the rows from number {value} to before {first}, and what is asked for needs"
    " them: ask for a size or tile outside of these",
    status=410,
    value="256",
    first="512",
)
SIZES_INVALID: Final = Invalid.of(
    "old must be at most new, and new at most {value}, the size of the last checkpoint",
    field="old",
    value="1204",
)
EVIDENCE_DIFFERS: Final = StoreUnavailable.of(
    f"{DAMAGED}: the rows around row {{value}} are not those that were signed; the operator finds"
    " out more with `countersign evidence monitor`",
    value="aud_0000000000000000042",
)

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


RULE_TOO_WIDE: Final = Invalid.of(
    "the filters match more than {limit} rows, which conditions on payloads or hours look at one by"
    " one: add filters, such as an event",
    field="query",
    limit=50_000,
)

RULE_TOO_FINE: Final = Invalid.of(
    "what the rule counts by has too many values: add filters, or ask for fewer days", field="per"
)

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
