"""The list of exports: one entry each, written in the transactions of its audit rows."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, and_, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.export.writers import Piece
from analytics.model.log_envelopes import AuditExported, AuditExportFinished
from analytics.model.rows import AuditContext
from service.audit.evidence.prover import note_of
from service.audit.evidence.trees import read_last_checkpoint
from service.audit.refusals import EXPORT_NOT_FOUND
from service.core.settings import Settings
from service.store.batching import execute_many
from service.store.store import Store, UnitOfWork
from service.store.tables import EvidenceTree, ExportEntry
from service.store.tables.base import Instant
from service.store.transaction import within
from service.web.paging import ListCursors, newest_page

SILENT_AFTER: Final = timedelta(seconds=60)
"""An export whose process has not reported for this long is broken: the process has died."""

CLOSED_MAX: Final = 100
"""Silent exports that are closed in one transaction; what is left is for the next round."""

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000


class ExportState(StrEnum):
    """What became of an export. Only a finished one is complete."""

    RUNNING = "running"
    FINISHED = "finished"
    BROKEN = "broken"


def state_of(entry: ExportEntry, now: datetime) -> ExportState:
    """The state of `entry` at `now`."""
    if entry.ended_at is not None:
        return ExportState.FINISHED if entry.is_complete else ExportState.BROKEN
    is_silent = now - entry.progress_at >= SILENT_AFTER
    return ExportState.BROKEN if is_silent else ExportState.RUNNING


async def add_export(work: UnitOfWork, entry: ExportEntry, by: AuditContext) -> None:
    """Record that the export `entry` has begun."""
    entry.progress_at = work.now  # counting its rows may have taken long
    work.session.add(entry)
    await work.session.flush()
    begun = AuditExported(
        export_id=entry.id, format=entry.format, filters=entry.filters, rows=entry.rows
    )
    work.record(entry.tenant_id, begun, by)


async def end_export(
    work: UnitOfWork,
    tenant_id: str,
    export_id: str,
    sent: Piece,
    by: AuditContext,
    *,
    is_complete: bool,
) -> None:
    """Record how an export ended, and what was sent: everything up to and including `sent`.

    Replaces the end that `close_silent_exports` recorded of a process that was only suspended.
    """
    sha256 = sent.sha256 if is_complete else None
    await work.session.execute(
        update(ExportEntry)
        .where(ExportEntry.tenant_id == tenant_id, ExportEntry.id == export_id)
        .values(
            sent_rows=sent.rows,
            sent_bytes=sent.size,
            sha256=sha256,
            is_complete=is_complete,
            progress_at=work.now,
            ended_at=work.now,
            **(await _last_checkpoint(work.session, tenant_id) if is_complete else {}),
        )
    )
    finished = AuditExportFinished(
        export_id=export_id,
        complete=is_complete,
        rows=sent.rows,
        bytes=sent.size,
        sha256=sha256,
    )
    work.record(tenant_id, finished, by)


async def _last_checkpoint(session: AsyncSession, tenant_id: str) -> dict[str, str]:
    """The organisation's last checkpoint, as columns of an export that ends; none without one."""
    tree = await session.get(EvidenceTree, tenant_id)
    signed = await within(session, read_last_checkpoint, tenant_id)
    if tree is None or signed is None or tree.suspended or tree.generation != signed.generation:
        return {}
    return {"checkpoint": note_of(tree.origin, signed), "checkpoint_key_id": signed.key_id}


_NOTE_PROGRESS: Final = (
    update(ExportEntry)
    # Progress that is written late must not change an end that is recorded.
    .where(ExportEntry.id == bindparam("export_id"), ExportEntry.ended_at.is_(None))
    .values(
        sent_rows=bindparam("rows_so_far"),
        sent_bytes=bindparam("bytes_so_far"),
        progress_at=bindparam("reported_at", type_=Instant()),
    )
)


async def record_progress(work: UnitOfWork, sent: Mapping[str, Piece]) -> None:
    """Update what was sent so far of running exports, by export id."""
    so_far = [
        {
            "export_id": export_id,
            "rows_so_far": piece.rows,
            "bytes_so_far": piece.size,
            "reported_at": work.now,
        }
        for export_id, piece in sent.items()
    ]
    await execute_many(work.session, _NOTE_PROGRESS, so_far)


async def close_silent_exports(store: Store, by: AuditContext) -> int:
    """Record the end of exports whose process has died, CLOSED_MAX at most; returns how many."""
    async with store.read() as session:
        found = select(ExportEntry.id).where(_is_silent(store.clock())).limit(CLOSED_MAX)
        silent = (await session.scalars(found)).all()
    if not silent:
        return 0
    async with store.write() as work:
        closed = await work.session.execute(
            update(ExportEntry)
            # Asked again under the write lock: one may have ended or reported since.
            .where(ExportEntry.id.in_(silent), _is_silent(work.now))
            .values(is_complete=False, sha256=None, progress_at=work.now, ended_at=work.now)
            .returning(
                ExportEntry.tenant_id,
                ExportEntry.id,
                ExportEntry.sent_rows,
                ExportEntry.sent_bytes,
            )
        )
        ends = closed.all()
        for tenant_id, export_id, rows, size in ends:
            finished = AuditExportFinished(
                export_id=export_id, complete=False, rows=rows, bytes=size, sha256=None
            )
            work.record(tenant_id, finished, by)
    return len(ends)


def _is_silent(now: datetime) -> ColumnElement[bool]:
    return and_(ExportEntry.ended_at.is_(None), ExportEntry.progress_at <= now - SILENT_AFTER)


async def list_ended(session: AsyncSession, tenant_id: str | None) -> Sequence[ExportEntry]:
    """All exports that have ended, of one organisation or of all (None)."""
    query = select(ExportEntry).where(ExportEntry.ended_at.is_not(None))
    if tenant_id is not None:
        query = query.where(ExportEntry.tenant_id == tenant_id)
    return (await session.scalars(query)).all()


async def find_latest_export(session: AsyncSession, tenant_id: str, actor: str) -> str | None:
    """The id of the export that `actor` began last, or None."""
    return await session.scalar(
        select(ExportEntry.id)
        .where(ExportEntry.tenant_id == tenant_id, ExportEntry.actor == actor)
        .order_by(ExportEntry.started_at.desc(), ExportEntry.id.desc())
        .limit(1)
    )


async def get_export(session: AsyncSession, tenant_id: str, export_id: str) -> ExportEntry:
    """The organisation's export with this id. Raises EXPORT_NOT_FOUND."""
    entry = await session.scalar(
        select(ExportEntry).where(ExportEntry.tenant_id == tenant_id, ExportEntry.id == export_id)
    )
    if entry is None:
        raise EXPORT_NOT_FOUND
    return entry


async def list_exports(
    session: AsyncSession, settings: Settings, tenant_id: str, limit: int, cursor: str | None = None
) -> tuple[Sequence[ExportEntry], str | None]:
    """The organisation's exports that follow `cursor`, newest first. Raises INVALID_CURSOR.

    And the next cursor, None on the last page.
    """
    statement = select(ExportEntry).where(ExportEntry.tenant_id == tenant_id)
    order = ExportEntry.started_at, ExportEntry.id
    cursors = ListCursors.of(settings, "exports", tenant_id)
    return await newest_page(session, statement, order, cursors, limit, cursor)
