"""Kept sums: whatever came, went and was merged, they are what a fresh count of the rows says."""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from analytics.cache.row_groups import Decoded
from analytics.model.filters import FILTER_COLUMNS, Query, parse_query
from analytics.model.rows import AuditRow
from analytics.query import closed_sums, counted_rows, kept_sums
from analytics.query.buckets import Bucket
from analytics.query.kept_sums import KeptSums, Sum
from analytics.query.summaries import summary_of
from analytics.statistics.value_index import ValueIndex
from analytics.storage import index_blocks, index_builder, segment_writer
from analytics.storage.compaction import merge_segments
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.reindex import reindex
from analytics.storage.segment_index import HEAD_COLUMNS
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import LocalFolder
from analytics.storage.segment_writer import newest_first, write_segment
from analytics.storage.snapshot import Snapshot
from tests.analytics.models import counted, matching, most_frequent, of_buckets
from tests.analytics.samples import TENANT, batch_of, sample_row, table_by_seq
from tests.budgets import budget

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
TOPS = ("event", "package", "actor", "subject", "ecosystem", "decision")
STEPS_MAX = 200


@dataclass
class LivingLake:
    """A lake in which rows arrive, and are sealed, merged, imported and pruned."""

    root: Path
    random: random.Random
    sums: KeptSums
    segments: dict[str, tuple[Segment, dict[int, AuditRow]]] = field(default_factory=dict)
    batches: dict[int, tuple[JournalBatch, dict[int, AuditRow]]] = field(default_factory=dict)
    last_seq: int = 0
    files: int = 0
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(TENANT, 0, (), ()))

    @property
    def rows(self) -> dict[int, AuditRow]:
        """All of them, by seq."""
        held = [*self.segments.values(), *self.batches.values()]
        return {seq: row for _, rows in held for seq, row in rows.items()}

    def of_day(self, day: date) -> list[Segment]:
        return [segment for segment, _ in self.segments.values() if segment.day == day]

    def new_rows(self) -> dict[int, AuditRow]:
        """Some of one day, with the next seqs."""
        day = MIDNIGHT + self.random.randrange(6) * DAY
        rows = [
            sample_row(
                day + self.random.randrange(24 * 60) * HOUR / 60,
                event=self.random.choice(["blocklist_hit", "install_allowed", "org_created"]),
                decision=self.random.choice(["ALLOWED", "BLOCKED", "BLOCKED", "", None]),
                package_name=self.random.choice([*"aaabbbccddefghijklmnopq", "é", "", None]),
                actor=self.random.choice(["key_1", "key_2"]),
                subject=self.random.choice([f"repo:{n}" for n in range(30)] + [None]),
                ecosystem=self.random.choice(["npm", "pypi", None]),
            )
            for _ in range(self.random.randint(1, 9))
        ]
        first = self.last_seq + 1
        self.last_seq += len(rows)
        return dict(enumerate(rows, start=first))

    def ingest(self) -> None:
        rows = self.new_rows()
        batch = batch_of(list(rows.values()), min(rows))
        self.batches[min(rows)] = (batch, rows)

    def seal(self) -> None:
        """All batches of a day."""
        if not self.batches:
            return
        day = self.random.choice(list(self.batches.values()))[0].day
        due = [seq for seq, (batch, _) in self.batches.items() if batch.day == day]
        rows = {seq: row for one in due for seq, row in self.batches.pop(one)[1].items()}
        self.write(rows)

    def bring_in(self) -> None:
        """An import: a segment of new rows, whose file counts from 0."""
        self.write(self.new_rows(), is_imported=True)

    def write(self, rows: dict[int, AuditRow], *, is_imported: bool = False) -> None:
        base = min(rows) if is_imported else 0
        index_builder.HEAD_COLUMNS = self.random.choice([(), HEAD_COLUMNS, HEAD_COLUMNS])
        table = newest_first(table_by_seq(rows, base))
        day = next(iter(rows.values())).created_at.date()
        segment = write_segment(self.root, TENANT, day, self.next_id(), table)
        segment = segment.with_seq_base(base) if base else segment
        self.segments[segment.segment_id] = (segment, rows)

    def merge(self) -> None:
        """Some segments of a day."""
        for segment, _ in self.random.sample(list(self.segments.values()), self.segments != {}):
            due = self.of_day(segment.day)
            due = self.random.sample(due, self.random.randint(1, len(due)))
            if len(due) > 1:
                merged = merge_segments(self.root, due, self.next_id())
                parts = [self.segments.pop(one.segment_id)[1] for one in due]
                rows = {seq: row for part in parts for seq, row in part.items()}
                self.segments[merged.segment_id] = (merged, rows)
                self.unlink(due)

    def prune(self) -> None:
        """The oldest day, with its journal."""
        days = {one.day for one, _ in [*self.segments.values(), *self.batches.values()]}
        if len(days) < 5:
            return
        gone = self.of_day(min(days))
        for one in gone:
            del self.segments[one.segment_id]
        self.batches = {seq: held for seq, held in self.batches.items() if held[0].day != min(days)}
        self.unlink(gone)

    def unlink(self, segments: list[Segment]) -> None:
        """As after the grace period, or not yet."""
        if self.random.random() < 0.5:
            for segment in segments:
                segment.path(self.root).unlink()
                segment.index_path(self.root).unlink(missing_ok=True)

    def lose_index(self) -> None:
        """Of a segment that may not have been read before."""
        for segment, _ in self.random.sample(list(self.segments.values()), self.segments != {}):
            segment.index_path(self.root).unlink(missing_ok=True)

    def rebuild_indexes(self) -> None:
        for segment, _ in self.segments.values():
            if not segment.index_path(self.root).exists():
                reindex(self.root, segment)

    def next_id(self) -> str:
        self.files += 1
        return f"seg_{self.files}"

    def look(self) -> Snapshot:
        """All there is; the same tuples as before while they are the same."""
        live = [segment for segment, _ in self.segments.values()]
        segments = sorted(live, key=lambda one: one.max_created_at, reverse=True)
        batches = tuple(self.batches[seq][0] for seq in sorted(self.batches))
        before = self.snapshot
        self.snapshot = Snapshot(
            TENANT,
            self.last_seq,
            before.segments if list(before.segments) == segments else tuple(segments),
            before.batches if before.batches == batches else batches,
        )
        return self.snapshot


def sum_of(sums: KeptSums, snapshot: Snapshot, query: Query) -> Sum | None:
    """The sum, after as many steps as it takes."""
    steps = 0
    while not sums.step(snapshot, query):
        steps += 1
        assert steps < STEPS_MAX
    return sums.find(snapshot, query)


FILTERS = [{}, {"decision": ["BLOCKED"]}, {"decision": ["!BLOCKED"]}]


def windows(floor: datetime) -> list[tuple[datetime | None, datetime | None]]:
    """Open, whole days, from the floor on, and an end inside a day."""
    return [
        (None, None),
        (MIDNIGHT + DAY, MIDNIGHT + 4 * DAY),
        (floor, None),
        (floor, None),
        (None, floor + 2 * DAY),
        (floor, floor + HOUR),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(budget(3, 60)))
def test_a_kept_sum_is_a_fresh_count_whatever_came_and_went(tmp_path, monkeypatch, seed):
    chance = random.Random(seed)
    monkeypatch.setattr(index_builder, "HEAD_VALUES", 3)
    monkeypatch.setattr(index_builder, "HEAD_COLUMNS", HEAD_COLUMNS)  # sets it back in the end
    monkeypatch.setattr(index_blocks, "BLOCK_LINES", chance.choice([4, 2048]))
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(closed_sums, "STEP_SEGMENTS", chance.choice([1, 3]))
    monkeypatch.setattr(counted_rows, "STEP_BATCHES", 2)
    monkeypatch.setattr(kept_sums, "QUICK_BATCHES", 2)
    files = LocalFolder(tmp_path)
    sums = KeptSums(ValueIndex(files, 2**14), Decoded(files, 2**18), 2**22)
    lake = LivingLake(tmp_path, chance, sums)
    changes = [
        *[lake.ingest] * 6,
        *[lake.seal] * 3,
        *[lake.merge] * 3,
        *[lake.bring_in] * 2,
        lake.prune,
        lake.lose_index,
        lake.rebuild_indexes,
    ]
    told, floor = 0, MIDNIGHT + 2 * DAY
    for _ in range(40):
        chance.choice(changes)()
        # Time goes on, and now and then an earlier one is asked for.
        floor = max(floor + chance.randrange(-20, 60) * HOUR / 60, MIDNIGHT)
        since, until = chance.choice(windows(floor))
        query = replace(parse_query(chance.choice(FILTERS)), since=since, until=until)
        snapshot = lake.look()
        if chance.random() < 0.3:
            found = sums.find(snapshot, query)
        else:
            found = sum_of(sums, snapshot, query)
            assert found is not None, seed
        if found is not None:
            told += check(found, lake, query)
    assert told, seed


def check(found: Sum, lake: LivingLake, query: Query) -> bool:
    """Whether `found`, which is right, tells all that a summary says."""
    rows = list(matching(lake.rows, query, lake.last_seq).values())
    for name in TOPS[:-1]:
        top = found.tops[FILTER_COLUMNS[name]]
        assert top is None or top == [(one.value, one.count) for one in most_frequent(rows, name)]
    summary = summary_of(found, query, None, Bucket.DAY, TOPS)
    if summary is None:
        return False
    assert summary.total == len(rows)
    assert of_buckets(summary) == counted(rows, Bucket.DAY)
    assert summary.top == {name: most_frequent(rows, name) for name in TOPS}
    return True


@pytest.fixture
def living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LivingLake:
    monkeypatch.setattr(index_builder, "HEAD_COLUMNS", HEAD_COLUMNS)  # sets it back in the end
    files = LocalFolder(tmp_path)
    sums = KeptSums(ValueIndex(files, 2**20), Decoded(files, 2**20), 2**20)
    return LivingLake(tmp_path, random.Random(1), sums)


def put(living: LivingLake, *instants: datetime, is_sealed: bool = False) -> None:
    """One row of each instant, all of a day."""
    first = living.last_seq + 1
    rows = dict(enumerate(map(sample_row, instants), start=first))
    living.last_seq += len(rows)
    if is_sealed:
        living.write(rows)
    else:
        living.batches[first] = batch_of(list(rows.values()), first), rows


def test_what_came_since_is_added_at_once_and_no_file_is_read(living):
    """A summary of a growing log costs only what is new."""
    put(living, MIDNIGHT, MIDNIGHT + HOUR, is_sealed=True)
    assert sum_of(living.sums, living.look(), Query()) is not None
    for segment, _ in living.segments.values():
        segment.path(living.root).unlink()
        segment.index_path(living.root).unlink()
    put(living, MIDNIGHT + 2 * HOUR)

    found = living.sums.find(living.look(), Query())

    assert found is not None
    assert found.times == {(MIDNIGHT, "BLOCKED"): 3}
    assert found.tops["package_name"] == [("left-pad", 3)]
    assert living.sums.find(living.look(), Query()) is found


def test_a_merge_changes_no_sum_and_no_file_is_read(living, monkeypatch):
    """Otherwise each merge would have all others counted again."""
    for hour in range(3):
        put(living, MIDNIGHT + hour * HOUR, is_sealed=True)
    put(living, MIDNIGHT + DAY, is_sealed=True)
    assert sum_of(living.sums, living.look(), Query()) is not None
    monkeypatch.setattr(living.random, "sample", lambda population, _: list(population))
    living.merge()
    assert [segment.rows for segment, _ in living.segments.values()] == [1, 3]
    for path in living.root.rglob("*"):
        if path.is_file():
            path.unlink()

    assert living.sums.step(living.look(), Query())
    found = living.sums.find(living.look(), Query())

    assert found is not None
    assert found.times == {(MIDNIGHT, "BLOCKED"): 3, (MIDNIGHT + DAY, "BLOCKED"): 1}
    assert found.tops["package_name"] == [("left-pad", 4)]


def test_a_row_that_comes_late_is_not_counted_before_the_floor(living):
    """The floor has moved since the rows of its day were counted."""
    put(living, MIDNIGHT + 12 * HOUR, is_sealed=True)
    assert sum_of(living.sums, living.look(), Query(since=MIDNIGHT + HOUR)) is not None
    put(living, MIDNIGHT + 2 * HOUR)

    late = Query(since=MIDNIGHT + 3 * HOUR)
    assert living.sums.find(living.look(), late) is None
    found = sum_of(living.sums, living.look(), late)

    assert found is not None
    assert found.times == {(MIDNIGHT, "BLOCKED"): 1}


def test_there_is_no_sum_where_too_many_rows_would_be_counted(living, monkeypatch):
    monkeypatch.setattr(closed_sums, "CUT_ROWS_MAX", 2)
    put(living, *[MIDNIGHT + n * HOUR for n in range(3)], is_sealed=True)

    assert sum_of(living.sums, living.look(), Query(since=MIDNIGHT + HOUR)) is None
    assert sum_of(living.sums, living.look(), Query()) is not None


def test_a_sum_is_of_no_watermark_but_that_of_all_rows(living):
    put(living, MIDNIGHT, MIDNIGHT + HOUR, is_sealed=True)
    put(living, MIDNIGHT)
    snapshot = living.look()
    assert sum_of(living.sums, snapshot, Query()) is not None

    assert sum_of(living.sums, replace(snapshot, watermark=1), Query()) is None
    assert sum_of(living.sums, replace(snapshot, watermark=2), Query()) is None


def test_other_conditions_are_not_kept(living):
    """There would be as many sums as questions."""
    put(living, MIDNIGHT)

    assert living.sums.step(living.look(), parse_query({"package": ["left-pad"]}))
    assert living.sums.find(living.look(), parse_query({"package": ["left-pad"]})) is None
