"""What a tree keeps of rows that are pruned: without it, the rows that stay could not be proved.

A group all of whose rows are pruned lives on in its hash of level 1. Of a group that is left in
part, the places and hashes of pruned leaves are kept. The key of a pruned day is destroyed, so that
hashes that stay tell nothing of its rows.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

import structlog
from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.groups import (
    Group,
    Leaf,
    LeavesDiffer,
    PrunedLeaf,
    Rows,
    days_between,
    leaves_between,
    pack_pruned,
    rows_between,
)
from analytics.evidence.merkle import GROUP, merge_into_ranges
from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.segment_store import SegmentStore
from analytics.storage.snapshot import Snapshot
from service.audit.evidence.trees import (
    read_bounds,
    read_day_keys,
    read_groups,
    read_tree,
    set_rows,
)
from service.audit.lake import Lake
from service.store.lost_segments import list_losses
from service.store.store import Store
from service.store.tables import LostSegment, PrunedLeaves
from service.store.transaction import within

RANGES_MAX: Final = 100
"""The most ranges of leaves that an audit row names."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PrunePlan:
    """How a tree changes when days are pruned, and what is said of it.

    `left` has the pruned leaves of each group of which rows are left, earlier ones included, and
    `rows_of` the groups of which none are left, or of which some were lost.
    """

    tenant_id: str
    days: frozenset[date]
    rows: int = 0
    is_counted: bool = True
    """Whether all rows that go could be read."""

    seqs: tuple[int, int] | None = None
    """The first and the last of them."""

    rows_of: dict[int, Rows] = field(default_factory=dict)
    left: dict[int, list[PrunedLeaf]] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """The leaves, first and last of each range."""

    def is_of(self, days: Collection[date], rows: int) -> bool:
        """Whether these days, with so many rows, are what it was made for."""
        return self.days == frozenset(days) and (self.rows == rows or not self.is_counted)

    def lose(self, fault: StoreFault, groups: Iterable[Group] = ()) -> None:
        """Rows of `groups` cannot be read: they go without hashes. Raises StoreUnreachable."""
        if isinstance(fault, StoreUnreachable):
            raise fault
        _log.error("pruned_without_hashes", tenant=self.tenant_id, reason=str(fault))
        self.is_counted = False
        self.rows_of |= {group.number: Rows.LOST for group in groups}

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
        tree = await within(session, read_tree, tenant_id)
        if tree is None:
            return None
        keys = await within(session, read_day_keys, tenant_id, days)
        bounds = await within(session, read_bounds, tree)
        losses = await list_losses(session, tenant_id)
    snapshot = await store.snapshot(tenant_id)
    past = snapshot.of_days(days)
    plan = PrunePlan(tenant_id, frozenset(days))
    for number, first, end, has_lost in bounds:
        is_lost = has_lost or any(loss.touches(first, end) for loss in losses)
        if not is_lost and not days_between(past, first, end):
            continue
        groups = await store.read_at_once(read_groups, tree, number * GROUP, (number + 1) * GROUP)
        try:
            leaves = await lake.run_in_thread(
                _read, lake.segments, snapshot, past, first, end, keys
            )
        except StoreFault as fault:
            going = (each for each in groups if days_between(past, each.first_seq, each.end_seq))
            plan.lose(fault, going)
            continue
        for group in groups:
            _plan_group(plan, group, group.among(leaves), losses)
    # Rows that the tree never had, such as those of a suspended one, need no hashes.
    try:
        plan.rows += await lake.run_in_thread(_count_rows, lake.segments, past, tree.last_seq + 1)
    except StoreFault as fault:
        plan.lose(fault)
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
) -> list[Leaf]:
    """Those of rows that go, and seqs without a hash of those that stay, in order."""
    gone = dict(leaves_between(segments, past, first, end, keys))
    parts = rows_between(segments, snapshot, first, end, only_seqs=True)
    seqs = (seq for _, rows in parts for seq in rows.column("seq").to_pylist())
    return [(seq, gone.get(seq, b"")) for seq in sorted(seqs)]


def _plan_group(
    plan: PrunePlan, group: Group, rows: Sequence[Leaf], losses: Sequence[LostSegment]
) -> None:
    """Add the group, whose stored rows are `rows`."""
    own = [seq for seq, leaf in rows if leaf]
    lost = [loss.day for loss in losses if loss.touches(group.first_seq, group.end_seq)]
    if own:
        first, last = plan.seqs or (own[0], own[-1])
        plan.rows, plan.seqs = plan.rows + len(own), (min(first, own[0]), max(last, own[-1]))
    if group.rows is Rows.LOST or (lost and len(rows) < group.unpruned):
        # What is remembered of lost rows goes with their day: from then on the group says it.
        is_over = len(own) == len(rows) and max(lost, default=date.min) <= max(plan.days)
        plan.rows_of[group.number] = Rows.PRUNED if is_over and group.is_full else Rows.LOST
        return
    if not own:
        return
    try:
        placed = group.places(rows)
    except LeavesDiffer as fault:
        _log.error("pruned_without_hashes", tenant=plan.tenant_id, reason=str(fault))
        return
    leaves = [PrunedLeaf(place, seq, leaf) for place, (seq, leaf) in placed if leaf]
    for leaf in leaves:
        merge_into_ranges(plan.ranges, group.first_index + leaf.place)
    del plan.ranges[RANGES_MAX + 1 :]
    if len(leaves) + len(group.pruned) == GROUP:
        plan.rows_of[group.number] = Rows.PRUNED
    else:
        plan.left[group.number] = [*group.pruned, *leaves]


async def apply_pruning(session: AsyncSession, plan: PrunePlan) -> None:
    """Change the tree as planned, in the transaction that deletes the rows."""
    groups = [*plan.rows_of, *plan.left]
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
    await set_rows(session, plan.tenant_id, plan.rows_of)
