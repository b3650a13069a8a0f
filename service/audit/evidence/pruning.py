"""What a tree keeps of rows that are pruned: without it, the rows that stay could not be proved.

A group all of whose rows are pruned lives on in its hash of level 1. Of a group that is left in
part, the places and hashes of pruned leaves are kept. The key of a pruned day is destroyed, so that
hashes that stay tell nothing of its rows.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Final

import structlog
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.groups import (
    Group,
    LeavesDiffer,
    PrunedLeaf,
    days_between,
    leaves_between,
    pack_pruned,
    rows_between,
)
from analytics.evidence.merkle import GROUP, split
from analytics.storage.segment_store import SegmentStore
from analytics.storage.snapshot import Snapshot
from service.audit.evidence.trees import find_tree, list_groups, list_tiles, load_day_keys
from service.audit.lake import Lake
from service.store.store import Store
from service.store.tables import EvidenceTile, EvidenceTree, PrunedLeaves

RANGES_MAX: Final = 100
"""The most ranges of leaves that an audit row names."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PrunePlan:
    """How a tree changes when days are pruned, and what is said of it.

    `left` has the pruned leaves of each group of which rows are left, earlier ones included.
    """

    tenant_id: str
    days: frozenset[date]
    rows: int = 0
    seqs: tuple[int, int] | None = None
    """The first and the last of them."""

    whole: list[int] = field(default_factory=list)
    left: dict[int, list[PrunedLeaf]] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """The leaves, first and last of each range."""

    def add(self, indexes: Iterable[int]) -> None:
        """Count these leaves, in order."""
        for index in indexes:
            if self.ranges and self.ranges[-1][1] == index - 1:
                self.ranges[-1] = self.ranges[-1][0], index
            elif len(self.ranges) <= RANGES_MAX:
                self.ranges.append((index, index))

    @property
    def leaf_ranges(self) -> list[str] | None:
        """The ranges as an audit row has them; None if there are too many."""
        if len(self.ranges) > RANGES_MAX:
            return None
        return [f"{first}-{last}" for first, last in self.ranges]


async def plan_pruning(
    store: Store, lake: Lake, tenant_id: str, days: Collection[date]
) -> PrunePlan | None:
    """What to keep of the rows of `days`; None without a tree. Raises StoreFault.

    The caller holds the lease of evidence.
    """
    async with store.read() as session:
        tree = await find_tree(session, tenant_id)
        keys = {} if tree is None else await load_day_keys(session, tenant_id, days)
    if tree is None:
        return None
    snapshot = await store.snapshot(tenant_id)
    past = snapshot.of_days(days)
    plan = PrunePlan(tenant_id, frozenset(days))
    async with store.read() as session:
        tiles = await list_tiles(session, tree)
    for number, first, end in tiles:
        if not days_between(past, first, end):
            continue
        async with store.read() as session:
            groups = await list_groups(session, tree, number)
        read = partial(_read, lake.segments, snapshot, past, first, end, keys)
        pruned, others = await lake.run_in_thread(read)
        for located in groups:
            _plan_group(plan, located.group, located.pruned, pruned, others)
    # Rows that the tree never had, such as those of a suspended one, need no hashes.
    behind = partial(_count_rows, lake.segments, past, tree.last_seq + 1)
    plan.rows += await lake.run_in_thread(behind)
    return plan


def _count_rows(segments: SegmentStore, past: Snapshot, first: int) -> int:
    parts = rows_between(segments, past, first, past.watermark + 1, only_seqs=True)
    return sum(rows.num_rows for _, rows in parts)


def _read(
    segments: SegmentStore,
    snapshot: Snapshot,
    past: Snapshot,
    first: int,
    end: int,
    keys: dict[date, bytes],
) -> tuple[list[tuple[int, bytes]], list[int]]:
    """The leaves that go, with their seqs, and the seqs of those that stay, in order."""
    leaves = leaves_between(segments, past, first, end, keys)
    gone = set(leaves.seqs)
    others = [
        seq
        for _, rows in rows_between(segments, snapshot, first, end, only_seqs=True)
        for seq in rows.column("seq").to_pylist()
        if seq not in gone
    ]
    return list(zip(leaves.seqs, split(leaves.hashes), strict=True)), sorted(others)


def _plan_group(
    plan: PrunePlan,
    group: Group,
    before: Collection[PrunedLeaf],
    pruned: list[tuple[int, bytes]],
    others: list[int],
) -> None:
    start = bisect_left(pruned, (group.first_seq, b""))
    own = dict(pruned[start : bisect_left(pruned, (group.end_seq, b""))])
    if not own:
        return
    kept = others[bisect_left(others, group.first_seq) : bisect_left(others, group.end_seq)]
    least, most = plan.seqs or (min(own), 0)
    plan.rows += len(own)
    plan.seqs = min(least, *own), max(most, *own)
    try:
        places = group.places(sorted([*own, *kept]), list(before))
    except LeavesDiffer as fault:
        # Rows were lost before: those that are left of the group can be proved no more.
        _log.error("pruned_without_hashes", tenant=plan.tenant_id, reason=str(fault))
        return
    leaves = [PrunedLeaf(place, seq, own[seq]) for place, seq in places if seq in own]
    plan.add(group.first_index + leaf.place for leaf in leaves)
    if len(leaves) + len(before) == GROUP:
        plan.whole.append(group.number)
    else:
        plan.left[group.number] = [*before, *leaves]


async def apply_pruning(session: AsyncSession, plan: PrunePlan) -> None:
    """Change the tree as planned, in the transaction that deletes the rows."""
    by_tile: dict[int, list[int]] = {}
    for number in plan.whole:
        by_tile.setdefault(number // GROUP, []).append(number % GROUP)
    for number, places in by_tile.items():
        tile = await session.get_one(EvidenceTile, (plan.tenant_id, 1, number))
        flags = bytearray((tile.pruned or b"").ljust(GROUP, b"\0"))
        for place in places:
            flags[place] = 1
        tile.pruned = bytes(flags)
    groups = [*plan.whole, *plan.left]
    for start in range(0, len(groups), GROUP):
        part = groups[start : start + GROUP]
        await session.execute(
            delete(PrunedLeaves).where(
                PrunedLeaves.tenant_id == plan.tenant_id, PrunedLeaves.group_number.in_(part)
            )
        )
    for number, leaves in plan.left.items():
        session.add(
            PrunedLeaves(tenant_id=plan.tenant_id, group_number=number, leaves=pack_pruned(leaves))
        )
    await session.flush()
    tree = await session.get_one(EvidenceTree, plan.tenant_id)
    tree.min_index = await _min_index(session, tree)


async def _min_index(session: AsyncSession, tree: EvidenceTree) -> int:
    """The first leaf of the first group that is not pruned as a whole."""
    number, at = divmod(tree.min_index // GROUP, GROUP)
    while True:
        pruned = await session.scalar(
            select(EvidenceTile.pruned).where(
                EvidenceTile.tenant_id == tree.tenant_id,
                EvidenceTile.level == 1,
                EvidenceTile.number == number,
            )
        )
        place = (pruned or b"").ljust(GROUP, b"\0").find(b"\0", at)
        if place >= 0:
            return (number * GROUP + place) * GROUP
        number, at = number + 1, 0
