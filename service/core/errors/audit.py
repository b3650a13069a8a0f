"""Refusals of requests that send, read, export, hold or prune audit rows."""

from datetime import datetime
from enum import StrEnum

from service.core.errors.base import (
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Refusal,
    ServerBusy,
    TooManyWaiting,
    TooManyWaitingOfCaller,
    WaitedTooLong,
)
from service.core.errors.requests import BodyTooLarge, NotJson


class NotItems(Invalid):
    """The body is neither a JSON array nor newline-delimited JSON."""

    text = "request body must be a JSON array, or one JSON object a line (application/x-ndjson)"


class IdempotencyKeyInvalid(Invalid):
    """The idempotency key is empty, too long, or not printable ASCII."""

    text = "Idempotency-Key must be 1..255 printable ASCII characters"


class HoldReasonMissing(Invalid):
    """A legal hold without a readable reason."""

    field = "reason"
    text = "a legal hold needs a reason"


class NotForSessions(Forbidden):
    """A person's session sent what only machines may send."""

    text = "audit rows are sent with an API key or the admin token"


class AuditRowNotFound(NotFound):
    """The id is unknown, another organisation's, or past retention."""

    text = "Audit row not found for this org"


class ExportNotFound(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Export not found for this org"


class ExportNotFinished(Conflict):
    """The export has no receipt, because it is still running or broke off."""

    text = "the export is {value}: only a finished export has a receipt"


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


class KeyReused(Conflict):
    """The idempotency key was used with another body."""

    text = "Idempotency-Key was used with another body"


class TooManyItems(BodyTooLarge):
    """The request has too many rows."""

    text = "at most 10000 rows in one request"


class NotIngestType(NotJson):
    """The body is not declared as a type that ingest accepts."""

    text = "content-type must be application/json or application/x-ndjson"


class JournalFull(Busy):
    """Too many of the organisation's rows wait to be sealed."""

    text = "the journal of this organisation is full"
    retry_after_s = 5


class AnswersFull(Busy):
    """Too many long answers of the organisation are kept for repeated requests."""

    text = "too many rejected items of this organisation are kept for their Idempotency-Key"
    retry_after_s = 60


class TooManyExports(Refusal):
    """The organisation has the maximum number of exports under way."""

    status = 429
    text = "too many exports of this organisation at once: wait until one of them ends"
    retry_after_s = 30


class TooManyOwnExports(TooManyExports):
    """The caller has the maximum number of exports under way."""

    text = "too many exports of yours at once: wait until one of them ends"


class TooManyExportsOfAll(ServerBusy):
    """The process has the maximum number of exports of all organisations under way."""

    text = "too many exports run on this server: try again later"
    retry_after_s = 30


class TooManyStreams(Refusal):
    """The maximum number of pages that show live rows are open."""

    status = 429
    text = "too many pages show live rows at once: close one of them"
    retry_after_s = 30


class QueryTooSlow(Refusal):
    """The query exceeded its time limit and was stopped."""

    status = 503
    text = "the query took too long and was stopped: ask for a shorter window"


QUERY_REFUSALS: tuple[type[Refusal], ...] = (
    QueryTooSlow,
    TooManyWaiting,
    TooManyWaitingOfCaller,
    ServerBusy,
    WaitedTooLong,
)
"""What a query may be refused for, besides what is wrong with it."""
