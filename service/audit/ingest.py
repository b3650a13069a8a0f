"""Taking rows in: checked one by one, committed together, answered once they are durable."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import msgspec

from analytics.model.ingest_validation import Rejection, read_items
from analytics.model.retention import Tier, retention_floor
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import AuditRow, Stamp
from analytics.storage.journal_batches import EncodedBatch, encode_days
from service.access.callers import Sender
from service.clock import Clock
from service.errors import Busy, JournalFull
from service.lake import Lake
from service.orgs.repository import find_trust_revision, get_org_by_id
from service.store.group_commit import GroupCommit
from service.store.idempotency import Attempt, check_room, find_answer, keep_answer
from service.store.store import Store, SyncWork
from service.store.tables import Organisation
from service.verifier.verifier import Verifier

ATTRIBUTIONS_MAX: Final = 3
"""How often rows are made anew because trust has changed before they were written."""
FEW_ROWS: Final = 16
"""Up to so many rows of a request share a batch with those that are committed with them."""
FEW_BYTES: Final = 16_384
"""As long as so few items are read right here: to hand them to a thread takes longer."""
BATCH_ROWS: Final = 16
"""So many rows a batch has at least, on average, in a journal that is as full as it may be."""
BATCHES_MIN: Final = 16_384
"""Batches that may wait however few rows may: more than one request makes on top of those that make
days due to be sealed. Else a journal of single rows could be full before anybody seals it."""
ROW_BYTES: Final = 512
"""What a row takes in memory at most, on average, in a journal as full as it may be: most take
half of that, but a row can have an envelope of kilobytes, and a query decodes all of them."""
BYTES_MIN: Final = 128 * 2**20
"""Bytes that may wait however few rows may, with as much room for requests as BATCHES_MIN."""
WAITING_MAX: Final = 64
"""Requests of one organisation that may wait for their commit at a time."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The good items of a request, as rows or as batches, and the others."""

    rows: list[AuditRow]
    batches: list[EncodedBatch]
    rejected: list[Rejection]

    @property
    def accepted(self) -> int:
        return len(self.rows) + sum(batch.rows for batch in self.batches)

    @property
    def bytes(self) -> int:
        """What the batches take in memory; the bytes of a few rows count once they are written."""
        return sum(batch.size for batch in self.batches)


def _prepare(
    items: Sequence[bytes | msgspec.Raw], stamp: Stamp, window: AcceptedInterval
) -> _Prepared:
    rows, rejected = read_items(items, stamp, window)
    if len(rows) <= FEW_ROWS:
        return _Prepared(rows, [], rejected)
    return _Prepared([], encode_days(rows), rejected)


class Ingest:
    """Takes rows from organisations; no flood of one of them holds up the others."""

    def __init__(
        self,
        store: Store,
        group_commit: GroupCommit,
        lake: Lake,
        verifier: Verifier,
        clock: Clock,
        journal_rows_max: int,
    ) -> None:
        self._store = store
        self._group_commit = group_commit
        self._lake = lake
        self._verifier = verifier
        self._clock = clock
        self._journal_rows_max = journal_rows_max
        self._waiting: Counter[str] = Counter()

    async def take(
        self,
        org: Organisation,
        sender: Sender,
        items: Sequence[bytes | msgspec.Raw],
        idempotency_key: str | None,
        body: bytes,
    ) -> bytes:
        """The JSON answer to `items`: how many are durable now, and why the others are not.

        With a key, a repeat of `body` is answered as it was the first time and adds nothing. The
        rows are of the CI job of `sender` if it is trusted by the time they are committed.
        Raises Busy, JournalFull, AnswersFull, KeyReused, StoreUnavailable.
        """
        now = self._clock()
        window = AcceptedInterval(now, retention_floor(Tier(org.tier), now))
        attempt = None
        if idempotency_key is not None:
            digest = hashlib.sha256(body).hexdigest()
            attempt = Attempt(org.id, sender.stamp.actor, idempotency_key, digest)
        with self._waits(org.id):
            for _ in range(ATTRIBUTIONS_MAX):
                answer = await self._try(org.id, sender, items, window, attempt)
                if answer is not None:
                    return answer
                sender = await self._as_trusted_now(org.id, sender)
            # Trust that changes all the time must not hold up what was installed.
            alone = sender.with_ci(None)
            return cast("bytes", await self._try(org.id, alone, items, window, attempt))

    async def _try(
        self,
        tenant_id: str,
        sender: Sender,
        items: Sequence[bytes | msgspec.Raw],
        window: AcceptedInterval,
        attempt: Attempt | None,
    ) -> bytes | None:
        """The answer; or None, and nothing is stored, if what the organisation trusts changed.

        Since the sender was let in, the body had to come and others to be written.
        """
        prepare = partial(_prepare, items, sender.stamp, window)
        is_quick = len(items) <= FEW_ROWS and sum(map(len, items)) <= FEW_BYTES
        prepared = prepare() if is_quick else await self._lake.aside(prepare)
        ci = sender.door.ci

        def change(work: SyncWork) -> bytes | None:
            known = find_answer(work.transaction, attempt, work.now) if attempt else None
            if known is not None:
                return known
            if ci and ci.trust_revision != find_trust_revision(work.transaction, tenant_id):
                return None
            return self._commit(work, tenant_id, prepared, attempt)

        return await self._group_commit.commit(change)

    async def _as_trusted_now(self, tenant_id: str, sender: Sender) -> Sender:
        """`sender`, of the CI job they had as far as it is still trusted."""
        ci = sender.door.ci
        if ci is None:
            return sender
        async with self._store.read() as session:
            org = await get_org_by_id(session, tenant_id)
        return sender.with_ci(await self._verifier.attribute_again(ci, org))

    def _commit(
        self, work: SyncWork, tenant_id: str, prepared: _Prepared, attempt: Attempt | None
    ) -> bytes:
        accepted = prepared.accepted
        if accepted:
            self._check_room(work, tenant_id, prepared)
        answer = msgspec.json.encode({"accepted": accepted, "rejected": prepared.rejected})
        # Where nothing was taken a repeat has nothing to add, and may be judged anew.
        if attempt is not None and accepted:
            check_room(work.transaction, attempt, answer)
            keep_answer(work.transaction, attempt, answer, work.now)
        work.journal.add(tenant_id, prepared.rows)
        work.journal.add_batches(tenant_id, prepared.batches)
        return answer

    def _check_room(self, work: SyncWork, tenant_id: str, prepared: _Prepared) -> None:
        """Raise JournalFull if what is prepared has no room in the tenant's journal."""
        waiting = work.journal.count(work.transaction, tenant_id)
        rows_max = self._journal_rows_max
        if (
            waiting.rows + prepared.accepted > rows_max
            # Rows of many days are as many batches, each of which is read and decoded by itself.
            or waiting.batches + len(prepared.batches) > max(rows_max // BATCH_ROWS, BATCHES_MIN)
            or waiting.bytes + prepared.bytes > max(rows_max * ROW_BYTES, BYTES_MIN)
        ):
            raise JournalFull

    @contextmanager
    def _waits(self, tenant_id: str) -> Iterator[None]:
        if self._waiting[tenant_id] >= WAITING_MAX:
            raise Busy
        self._waiting[tenant_id] += 1
        try:
            yield
        finally:
            self._waiting[tenant_id] -= 1
