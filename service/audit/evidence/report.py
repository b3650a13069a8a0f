"""The auditor's report: what there is for each clause as of now, and the reviews, which are rows.

A review is recorded in the log and nowhere else.
"""

import base64
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.notes import Note, VerifierKey
from analytics.model.events import Event
from analytics.model.filters import FILTER_COLUMNS, InvalidQuery, Query, parse_query
from analytics.model.instants import format_us, optional_us
from analytics.model.log_envelopes import (
    AuditExported,
    AuditRead,
    AuditReviewed,
    AuditSqlRun,
    EvidenceDiffers,
)
from analytics.model.retention import RETENTION_DAYS, Tier
from service.access.roles import Capability
from service.audit.clock_guard import ClockGuard
from service.audit.evidence.clauses import CLAUSES, Clause
from service.audit.evidence.prover import note_of
from service.audit.evidence.trees import log_name, read_last_checkpoint
from service.audit.evidence.witnesses import list_witnesses
from service.audit.refusals import QUERY_REFUSALS
from service.audit.segment_locks import load_probe
from service.audit.services import AuditServices
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import Invalid
from service.core.text_rules import REASON_MAX, parse_note
from service.store.tables import EvidenceTree, Organisation, SegmentEntry
from service.store.transaction import within
from service.web.dependencies import group_of
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, InstantOrDate, NonNegative, Parsed, Request, TimestampUs

READERS_SINCE: Final = timedelta(days=90)
READERS_MAX: Final = 200
REVIEWS_MAX: Final = 50
WINDOW_OPEN: Final = Invalid.of("until must not be in the future", field="until")
_READS: Final = (AuditRead.event, AuditExported.event, AuditSqlRun.event)

resource = Resource("evidence_report", "/audit", Tag.EVIDENCE, AuditServices)


class ReviewRequest(Request):
    """The window that was reviewed, as in filters."""

    since: InstantOrDate
    until: InstantOrDate
    note: Annotated[str, Meta(extra_json_schema={"maxLength": REASON_MAX})] = ""


class ReviewedWindow(Answer):
    """The rows of a window, as they were counted, and the last checkpoint when they were."""

    since: TimestampUs
    until: TimestampUs
    note: str | None
    rows: NonNegative
    checkpoint_size: NonNegative | None
    checkpoint_root: Annotated[str | None, Meta(description="In base64.")]


class Review(ReviewedWindow):
    """A review, and the row that records it: when, and by whom."""

    id: str
    created_at: TimestampUs
    actor: str


class LastCheckpoint(Struct):
    """The last checkpoint. `suspended` says why none is signed any more."""

    origin: str
    size: NonNegative
    signed_at: TimestampUs
    key_id: str
    suspended: str | None


class ObjectLock(Struct):
    """Whether stored files are locked in their bucket, how many, and what the last probe broke."""

    mode: str
    files: NonNegative
    locked: NonNegative
    probed_at: TimestampUs | None
    broken: list[str]


class LogReader(Struct):
    """An actor who read the log, how (an event), how many rows say so, and when."""

    actor: str
    event: str
    rows: NonNegative
    first: TimestampUs
    last: TimestampUs


class EvidenceReport(Answer):
    """What this service shows for each clause. Whether that is enough is the auditor's to say."""

    org: str
    made_at: TimestampUs
    checkpoint: LastCheckpoint | None
    witnesses: Annotated[dict[str, bool], Meta(description="Whether each cosigned it.")]
    compared_at: Annotated[TimestampUs | None, Meta(description="All rows, with what was signed.")]
    difference_id: Annotated[str | None, Meta(description="The last row that says it differed.")]
    tier: Tier
    retention_days: NonNegative | None
    retention_floor: TimestampUs | None
    held_since: TimestampUs | None
    held_reason: str | None
    object_lock: ObjectLock
    clock_refusal: Annotated[str | None, Meta(description="Why nothing is deleted by the clock.")]
    records_reads: Annotated[bool, Meta(description="Exports and SQL are recorded in any case.")]
    readers: Annotated[list[LogReader], Meta(description="Of the last 90 days.")]
    reviews: Annotated[list[Review], Meta(description="The newest 50, newest first.")]
    clauses: list[Clause]


@resource.get(
    "report_evidence",
    "/evidence",
    needs=Capability.AUDIT_READ,
    returns=EvidenceReport,
    refuses=QUERY_REFUSALS,
)
async def evidence_report(call: Call[AuditServices]) -> EvidenceReport:
    """What there is for an auditor: clauses of rules for logs, with live evidence for each."""
    return await report_evidence(call.services, call.org)


async def report_evidence(services: AuditServices, org: Organisation) -> EvidenceReport:
    """The report of an organisation as of now. Raises StoreFault, and QUERY_REFUSALS."""
    settings, now, tier = services.settings, services.clock(), Tier(org.tier)
    log = await open_log(services.store, services.lake, org, now)
    refusal = await group_of(ClockGuard).refusal()
    differences = await _newest(log, EvidenceDiffers.event, 1)
    async with services.store.read() as session:
        tree = await session.get(EvidenceTree, org.id)
        checkpoint, witnesses = await _signed(session, tree)
        object_lock = await _object_lock(session, settings.object_lock, org, now)
    return EvidenceReport(
        org=org.slug,
        made_at=format_us(now),
        checkpoint=checkpoint,
        witnesses=witnesses,
        compared_at=optional_us(None if tree is None else tree.monitored_at),
        difference_id=differences[0]["id"] if differences else None,
        tier=tier,
        retention_days=RETENTION_DAYS[tier],
        retention_floor=optional_us(log.floor),
        held_since=optional_us(org.held_since),
        held_reason=org.held_reason,
        object_lock=object_lock,
        clock_refusal=None if refusal is None else refusal.why,
        records_reads=settings.record_reads,
        readers=await _readers(log, now, settings.query_max_s),
        reviews=msgspec.convert(await _newest(log, AuditReviewed.event, REVIEWS_MAX), list[Review]),
        clauses=[*CLAUSES],
    )


async def _signed(
    session: AsyncSession, tree: EvidenceTree | None
) -> tuple[LastCheckpoint | None, dict[str, bool]]:
    """The last checkpoint of the tree, and whether each witness cosigned it."""
    keys = [VerifierKey.parse(witness.vkey) for witness in await list_witnesses(session)]
    signed = None if tree is None else await within(session, read_last_checkpoint, tree.tenant_id)
    if tree is None or signed is None:
        return None, {key.name: False for key in keys}
    cosigners = Note.parse(note_of(tree.origin, signed)).signers(keys)
    name, signed_at = log_name(tree.origin, signed.generation), format_us(signed.signed_at)
    last = LastCheckpoint(name, signed.size, signed_at, signed.key_id, tree.suspended)
    return last, {key.name: key in cosigners for key in keys}


async def _object_lock(
    session: AsyncSession, mode: str, org: Organisation, now: datetime
) -> ObjectLock:
    locked = func.count().filter(SegmentEntry.locked_until > now)
    query = select(func.count(), locked).where(
        SegmentEntry.tenant_id == org.id, SegmentEntry.retired_at.is_(None)
    )
    files, locked_files = (await session.execute(query)).one()
    probe = None if mode == "off" else await load_probe(session)
    probed_at, broken = (None, []) if probe is None else (format_us(probe.probed_at), probe.broken)
    return ObjectLock(mode, files, locked_files, probed_at, broken)


async def _readers(log: TenantLog, now: datetime, time_max_s: float) -> list[LogReader]:
    """Who read the log and how, those with the most rows first."""
    query = parse_query({"event": _READS, "since": [format_us(now - READERS_SINCE)]})
    columns = [FILTER_COLUMNS["actor"], FILTER_COLUMNS["event"]]
    found = await log.groups(query, columns, READERS_MAX, time_max_s)
    return [
        LogReader(str(actor), str(event), group.rows, format_us(group.first), format_us(group.last))
        for group in found
        for actor, event in [group.values]
    ]


async def _newest(log: TenantLog, event: Event, limit: int) -> list[dict[str, Any]]:
    """The newest rows of `event`, with the members of their payloads beside their own."""
    rows = await log.texts(parse_query({"event": [event]}), limit)
    entries = [msgspec.json.decode(text) for _, text in rows]
    return [entry | entry["payload"] for entry in entries]


class NewReview(NamedTuple):
    """A review to record; `rows` are counted before its transaction."""

    query: Query
    note: str | None
    rows: int = 0


def parse_review(given: dict[str, Any]) -> NewReview:
    """The review in a request's body. Raises Invalid."""
    body = ReviewRequest.parse(given)
    try:
        query = parse_query({"since": [body.since], "until": [body.until]}, has_order=False)
    except InvalidQuery as error:
        raise Invalid(str(error), field=error.field) from error
    return NewReview(query, parse_note(body.note))


async def count_rows(call: Call[AuditServices], new: NewReview) -> NewReview:
    """The review with the number of its rows. Raises WINDOW_OPEN, QueryTooSlow, StoreFault."""
    services, now = call.services, call.services.clock()
    if new.query.until is not None and new.query.until > now:
        raise WINDOW_OPEN
    log = await open_log(services.store, services.lake, call.org, now)
    return new._replace(rows=await log.count(new.query, services.settings.query_max_s))


@resource.post(
    "review_audit_log",
    "/reviews",
    needs=Capability.AUDIT_READ,
    body=Parsed(ReviewRequest, parse_review),
    example={"since": "2026-01-01", "until": "2026-01-31", "note": "Monthly review"},
    prepare=count_rows,
    returns=ReviewedWindow,
    status=201,
    refuses=QUERY_REFUSALS,
)
async def review(call: WriteCall[AuditServices], new: NewReview) -> ReviewedWindow:
    """Record that the caller reviewed the rows of a window: as a row of the log."""
    signed = await within(call.session, read_last_checkpoint, call.org.id)
    reviewed = AuditReviewed(
        since=optional_us(new.query.since) or "",
        until=optional_us(new.query.until) or "",
        note=new.note,
        rows=new.rows,
        checkpoint_size=None if signed is None else signed.size,
        checkpoint_root=None if signed is None else base64.b64encode(signed.root).decode(),
    )
    call.work.record(call.org.id, reviewed, call.by)
    return msgspec.convert(reviewed, ReviewedWindow, from_attributes=True)
