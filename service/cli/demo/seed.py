"""Store the demo organisation, completely or not at all."""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.filters import parse_query
from analytics.model.log_envelopes import AuditExported, AuditExportFinished
from analytics.model.retention import Tier, retention_floor
from analytics.model.schema import AUDIT_SCHEMA, JOURNAL_SCHEMA
from analytics.storage.journal_batches import JournalBatch, decode_batches
from service.access.sessions import issue_session
from service.app.composition import Services
from service.cli.demo.calendar import Calendar, from_us
from service.cli.demo.history import Day, History
from service.cli.demo.profile import load_profile
from service.cli.demo.setup import OrganisationBuilder
from service.cli.progress import Show
from service.core.ids import new_id
from service.core.version import service_version
from service.store.catalog import add_segment
from service.store.journal import list_batches, remove_batches, take_seq
from service.store.organisations import find_org
from service.store.store import UnitOfWork
from service.store.tables import Binding, ExportEntry, Member, Organisation
from service.trust.rejected.rows import RejectionRecord, write_records
from service.trust.rejected.subjects import KEPT_FOR, record_of

DEMO_ORG: Final = "acme"


async def seed_demo(services: Services, now: datetime, on_progress: Show) -> bool:
    """Create the organisation DEMO_ORG with 90 days of history up to `now`.

    False, and nothing changes, if it exists already. `on_progress` receives the number of rows
    stored so far and in total. Everything is one transaction: until its commit none of it is
    visible, and after a crash only files remain that no catalog names.
    """
    profile, calendar = load_profile(), Calendar(now)
    async with services.store.write() as work:
        if await find_org(work.session, DEMO_ORG) is not None:
            return False
        builder = OrganisationBuilder(work, services, profile, calendar)
        org = await builder.build(DEMO_ORG)
        history = await services.lake.run_in_thread(
            partial(History, profile, calendar, builder.actors())
        )
        usage = history.usage()
        for binding in builder.bindings.values():
            _mark_used(binding, usage)
        for name, last_used_at in history.last_uses().items():
            builder.keys[name].last_used_at = last_used_at
        await _sign_members_in(work, builder.members, history)
        await _store_rejections(work, org.id, history)
        await _store(work, services, org, history, on_progress)
    return True


def _mark_used(binding: Binding, usage: Mapping[str, tuple[int, int]]) -> None:
    """Set the usage that the verifier would have recorded on the binding."""
    uses, last_us = usage.get(binding.id, (0, None))
    binding.use_count = uses
    binding.last_used_at = None if last_us is None else from_us(last_us)


async def _sign_members_in(work: UnitOfWork, members: Collection[Member], history: History) -> None:
    """Link the members to accounts as their first sign-in did, with the session of the last one.

    Its secret is thrown away: the session tells when they were last seen, and opens nothing.
    """
    last = history.last_sign_ins()
    for member in members:
        if member.id in last and member.removed_at is None:
            member.identity_namespace = "demo"
            member.identity_subject = member.id
            await issue_session(work.session, member, last[member.id])


async def _store_rejections(work: UnitOfWork, tenant_id: str, history: History) -> None:
    """Store the rejections that the verifier would still keep."""
    records: dict[str, RejectionRecord] = {}
    for rejection in history.rejections(tenant_id):
        record = record_of(rejection)
        if (first := records.setdefault(record.digest, record)) is not record:
            first.add(record)
    recent = [record for record in records.values() if record.last_at >= work.now - KEPT_FOR]
    await write_records(work.session, tenant_id, recent)


async def _store(
    work: UnitOfWork,
    services: Services,
    org: Organisation,
    history: History,
    on_progress: Show,
) -> None:
    """Store each day's rows as one segment, including the rows of that day's changes.

    The changes' rows go through the journal as always, but are sealed here: otherwise they would
    become a second, tiny segment for many days. Their seq numbers and the history's are
    consecutive, as this transaction holds the counter, and are assigned by time.
    """
    await work.journal_rows()
    batches = await list_batches(work.session, org.id)
    await remove_batches(work.session, batches)
    await take_seq(work.session, history.rows, work.now)
    seq, done = min(batch.first_seq for batch in batches), 0
    total = history.rows + sum(batch.rows for batch in batches)
    for day in history.days:
        recorded = [batch for batch in batches if batch.day == day.day]
        rows = await services.lake.run_in_thread(partial(_rows, history, day, recorded, seq + done))
        if rows.num_rows == 0:
            continue
        segment = await services.lake.store_rows(org.id, day.day, new_id("seg"), rows)
        await add_segment(work.session, segment, work.now)
        work.session.add_all(export_entries(org.id, Tier(org.tier), rows))
        done += segment.rows
        on_progress(done, total)


def _rows(history: History, day: Day, recorded: list[JournalBatch], first_seq: int) -> pa.Table:
    """All rows of `day` as AUDIT_SCHEMA, oldest first, with seq counting up from `first_seq`."""
    changes = decode_batches(recorded).select(JOURNAL_SCHEMA.names)
    rows = pa.concat_tables([changes, history.table(day)]).sort_by("created_at")
    seq = pa.array(range(first_seq, first_seq + rows.num_rows), pa.int64())
    return rows.add_column(0, AUDIT_SCHEMA.field("seq"), seq)


def export_entries(tenant_id: str, tier: Tier, rows: pa.Table) -> Iterator[ExportEntry]:
    """The exports that begin and end within `rows` (AUDIT_SCHEMA), by an organisation's tier."""
    events = pa.array([AuditExported.event, AuditExportFinished.event], pa.string())
    begun: dict[str, dict[str, Any]] = {}
    about = rows.filter(pc.is_in(rows["event"], value_set=events)).sort_by("seq")
    for row in about.to_pylist():
        keys = json.loads(row["payload"])
        if row["event"] == AuditExported.event:
            begun[keys["export_id"]] = row
        else:
            yield _entry(tenant_id, tier, begun[keys["export_id"]], row, keys)


def _entry(
    tenant_id: str,
    tier: Tier,
    begun: dict[str, Any],
    ended: dict[str, Any],
    finished: dict[str, Any],
) -> ExportEntry:
    asked = json.loads(begun["payload"])
    floor = retention_floor(tier, begun["created_at"])
    within = parse_query(asked["filters"]).not_before(floor)
    return ExportEntry(
        id=asked["export_id"],
        tenant_id=tenant_id,
        actor=begun["actor"],
        actor_source=begun["actor_source"],
        verdict_source=begun["verdict_source"],
        request_id=begun["request_id"],
        format=asked["format"],
        compression=None,
        is_raw=False,
        filters=asked["filters"],
        since=within.since,
        until=within.until,
        retention_floor=floor,
        watermark=begun["seq"] - 1,
        rows=asked["rows"],
        version=service_version(),
        started_at=begun["created_at"],
        progress_at=ended["created_at"],
        sent_rows=finished["rows"],
        sent_bytes=finished["bytes"],
        ended_at=ended["created_at"],
        is_complete=finished["complete"],
        sha256=finished["sha256"],
    )
