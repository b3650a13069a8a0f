"""Records rejected CI identities per organisation.

Rejections are collected in memory and written every few seconds; a killed process loses those not
yet written. A rejection is *verified* if the token's signature, audience and times were valid, so
that its claims come from the issuer. Unverified claims may be forged, so unverified rejections
never take the space of verified ones.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from service.ci.verifier.rejections import TokenRejection
from service.core.errors import StoreUnavailable
from service.core.metrics import Metrics
from service.store.store import Store
from service.trust.rejected.rows import RejectionRecord, delete_before, keep_newest, write_records

SUB_CHARS_MAX: Final = 1024
TEXT_CHARS_MAX: Final = 256
PENDING_PER_ORG_MAX: Final = 200
"""Distinct rejections of one organisation waiting to be written."""
PENDING_MAX: Final = 2_000
"""Distinct rejections of all organisations waiting to be written."""
ENTRIES_PER_ORG_MAX: Final = 1_000
LISTED_FOR: Final = timedelta(days=30)
KEPT_FOR: Final = 2 * LISTED_FOR
"""After the last rejection; twice as long as they are listed, to compare two such times."""

_CUT: Final = "…"


@dataclass(slots=True)
class _PendingRejections:
    """One organisation's rejections waiting to be written, by identity."""

    verified: dict[tuple[object, ...], RejectionRecord] = field(default_factory=dict)
    unverified: dict[tuple[object, ...], RejectionRecord] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.verified) + len(self.unverified)

    def __iter__(self) -> Iterator[RejectionRecord]:
        yield from self.verified.values()
        yield from self.unverified.values()


class RejectedSubjects:
    """Collects rejections in memory; `flush` writes them."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        dropped = metrics.counter(
            "countersign_rejections_dropped",
            "Rejected tokens that were not remembered: too many waited to be written.",
            "verified",
        )
        self._dropped = {True: dropped.labels("true"), False: dropped.labels("false")}
        self._pending: dict[str, _PendingRejections] = {}
        self._size = 0

    def record(self, rejection: TokenRejection) -> None:
        """Record a rejection; equal ones are counted together.

        Texts are truncated first. Without room the rejection is dropped, unless it is verified and
        can replace an unverified one.
        """
        self._add(record_of(rejection))

    async def flush(self) -> None:
        """Write the collected rejections, all or none.

        If the write fails (StoreUnavailable), they are kept for the next call while there is room.
        """
        # Replaced before the write is awaited: later rejections wait for the next call.
        taken, self._pending, self._size = self._pending, {}, 0
        if not taken:
            return
        try:
            async with self._store.write() as work:
                for tenant_id, pending in taken.items():
                    await write_records(work.session, tenant_id, list(pending))
                    await keep_newest(work.session, tenant_id, ENTRIES_PER_ORG_MAX)
        except (StoreUnavailable, asyncio.CancelledError):
            for pending in taken.values():
                for record in pending:
                    self._add(record)
            raise

    async def delete_expired(self) -> None:
        """Delete rows last seen longer than KEPT_FOR ago, in all organisations."""
        await self._store.write_at_once(
            lambda work: delete_before(work.transaction, work.now - KEPT_FOR)
        )

    def _add(self, record: RejectionRecord) -> None:
        pending = self._pending.setdefault(record.tenant_id, _PendingRejections())
        entries = pending.verified if record.is_verified else pending.unverified
        known = entries.get(record.identity)
        if known is not None:
            known.add(record)
        # Unverified ones never displace others: a client can forge as many as it likes.
        elif self._has_room(pending) or (record.is_verified and self._make_room(pending)):
            entries[record.identity] = record
            self._size += 1
        else:
            self._count_dropped(record)

    def _has_room(self, pending: _PendingRejections) -> bool:
        return len(pending) < PENDING_PER_ORG_MAX and self._size < PENDING_MAX

    def _make_room(self, pending: _PendingRejections) -> bool:
        """Drop an unverified rejection; False if there is none.

        Of the same organisation if that is at its limit, else of the one with the most.
        """
        if len(pending) < PENDING_PER_ORG_MAX:
            pending = max(self._pending.values(), key=lambda other: len(other.unverified))
        if not pending.unverified:
            return False
        _, record = pending.unverified.popitem()
        self._size -= 1
        self._count_dropped(record)
        return True

    def _count_dropped(self, record: RejectionRecord) -> None:
        self._dropped[record.is_verified].inc(record.count)


def is_cut(sub: str) -> bool:
    """True if the stored `sub` may be truncated."""
    return len(sub) == SUB_CHARS_MAX and sub.endswith(_CUT)


def _bounded(text: str | None, chars_max: int = TEXT_CHARS_MAX) -> str | None:
    if text is None or len(text) <= chars_max:
        return text
    return text[: chars_max - 1] + _CUT


def record_of(rejection: TokenRejection) -> RejectionRecord:
    """`rejection` as a record with count 1 and texts truncated for storage."""
    return RejectionRecord(
        tenant_id=rejection.tenant_id,
        is_verified=rejection.is_verified,
        code=rejection.code.value,
        detail=rejection.detail.value if rejection.detail else None,
        issuer=_bounded(rejection.issuer),
        sub=_bounded(rejection.sub, SUB_CHARS_MAX),
        repository_id=_bounded(rejection.repository_id),
        event_name=_bounded(rejection.event_name),
        owner=_bounded(rejection.owner),
        project_id=_bounded(rejection.project_id),
        count=1,
        first_at=rejection.at,
        last_at=rejection.at,
        last_request_id=rejection.request_id,
    )
