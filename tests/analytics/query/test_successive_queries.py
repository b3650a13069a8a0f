"""What queries leave in caches never changes the answer of a later one."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from analytics.model.cursors import Position
from analytics.model.filters import Condition, Order, Query, Term
from analytics.model.rows import AuditRow
from analytics.query import planner
from analytics.query.buckets import Bucket
from analytics.query.summaries import TOP_PARAMETERS, summarise
from analytics.storage import index_blocks, index_builder, segment_writer
from analytics.storage.compaction import merge_segments
from analytics.storage.reindex import reindex
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot
from tests.analytics.index_version_2 import write_version_2
from tests.analytics.models import in_order, matching, most_frequent
from tests.analytics.samples import SampleLake, sample_row
from tests.budgets import budget

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
HOURS = 120
COLUMNS = ("package_name", "subject", "ecosystem", "event", "decision")
RARE = (Condition("package_name", (Term("rare-1", is_prefix=False, is_negated=False),)),)
TEXTS = ["a", "ab", "abc", "b", "", "é"]


def some_row(dice: random.Random) -> AuditRow:
    """Its values are few, so that conditions often meet rows and often none of a segment."""
    names = [*TEXTS, None, f"rare-{dice.randrange(6)}"]
    return sample_row(
        some_instant(dice),
        package_name=dice.choice(names),
        subject=dice.choice(["a", "ab", "", None]),
        ecosystem=dice.choice(["npm", "pypi"]),
        event=dice.choice(["blocklist_hit", "a"]),
        decision=dice.choice(["ALLOWED", "BLOCKED", "", None]),
    )


def some_instant(dice: random.Random) -> datetime:
    return MIDNIGHT - timedelta(hours=dice.randrange(HOURS))


def some_conditions(dice: random.Random) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            column,
            tuple(
                Term(
                    dice.choice([*TEXTS, "rare-1", "rare-", "npm", "ALLOWED"]),
                    is_prefix=dice.random() < 0.3,
                    is_negated=dice.random() < 0.3,
                )
                for _ in range(dice.randrange(1, 3))
            ),
        )
        for column in dice.sample(COLUMNS, dice.randrange(1, 3))
    )


def change(lake: SampleLake, dice: random.Random, accepted: dict[int, AuditRow]) -> None:
    if not lake.segments or dice.random() < 0.3:
        rows = [some_row(dice) for _ in range(dice.randrange(1, 12))]
        accepted |= lake.add(rows, is_sealed=dice.random() < 0.8)
        return
    place = dice.randrange(len(lake.segments))
    segment = lake.segments[place]
    path = segment.index_path(lake.root)
    step = dice.randrange(5)
    if step == 0 and path.exists():
        content = bytearray(path.read_bytes())
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
    elif step == 1:
        path.unlink(missing_ok=True)
    elif step == 2:
        lake.segments[place] = reindex(lake.root, segment)
    elif step == 3:
        lake.segments[place] = reindex(lake.root, segment)
        write_version_2(lake.root, segment, block_lines=3)
    else:
        merge(lake, segment, f"seg_m{dice.getrandbits(40)}")


def merge(lake: SampleLake, segment: Segment, segment_id: str) -> None:
    own = [one for one in lake.segments if one.day == segment.day]
    if len(own) > 1:
        merged = merge_segments(lake.root, own, segment_id)
        lake.segments[:] = [one for one in lake.segments if one not in own] + [merged]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(budget(2, 40)))
def test_no_answer_depends_on_the_queries_before_it(lake, monkeypatch, seed):
    dice = random.Random(seed)
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS", dice.choice([2, 5, 100]))
    monkeypatch.setattr(planner, "FEW_ROWS_MAX", dice.choice([2, 512]))
    monkeypatch.setattr(index_builder, "HEAD_VALUES", dice.choice([1, 2, 32]))
    monkeypatch.setattr(index_blocks, "BLOCK_LINES", dice.choice([2, 2_048]))
    asked = [(), RARE, RARE, *(some_conditions(dice) for _ in range(3))]
    accepted: dict[int, AuditRow] = {}
    for _ in range(40):
        for _ in range(dice.randrange(3)):
            # Some files have heads of short columns, and some do not.
            monkeypatch.setattr(index_builder, "HEAD_ROWS_MIN", dice.choice([1, 6, 4_096]))
            change(lake, dice, accepted)
        conditions = dice.choice(asked)
        for check in dice.sample(CHECKS, len(CHECKS)):
            since, until = (dice.choice([None, None, some_instant(dice)]) for _ in range(2))
            query = Query(since, until, conditions, dice.choice(list(Order)))
            watermark = max(0, lake.last_seq - dice.choice([0, 0, 5, 20]))
            rows = matching(accepted, query, watermark)
            check(lake, dice, replace(lake.snapshot(), watermark=watermark), query, rows)


Rows = dict[int, AuditRow]


def check_page(
    lake: SampleLake, dice: random.Random, snapshot: Snapshot, query: Query, rows: Rows
) -> None:
    """Behind any row."""
    seqs = in_order(rows, query.order)
    limit, skipped = dice.randrange(1, 20), dice.randrange(len(seqs) + 1)
    last = rows[seqs[skipped - 1]] if skipped else None
    after = last and Position(snapshot.watermark, last.created_at, seqs[skipped - 1])
    page = lake.reader.page(snapshot, query, limit, after)
    assert page["seq"].to_pylist() == seqs[skipped : skipped + limit]


def check_stream(
    lake: SampleLake, _: random.Random, snapshot: Snapshot, query: Query, rows: Rows
) -> None:
    tables = lake.reader.stream(snapshot, query)
    streamed = [seq for table in tables for seq in table["seq"].to_pylist()]
    assert streamed == in_order(rows, query.order)


def check_later_rows(
    lake: SampleLake, dice: random.Random, snapshot: Snapshot, query: Query, rows: Rows
) -> None:
    seen = dice.randrange(snapshot.watermark + 1)
    later = lake.reader.accepted_after(snapshot, query, seen, 20)
    assert later["seq"].to_pylist() == [seq for seq in sorted(rows) if seq > seen][:20]


def check_summary(
    lake: SampleLake, _: random.Random, snapshot: Snapshot, query: Query, rows: Rows
) -> None:
    summary = summarise(lake.reader, snapshot, query, None, Bucket.DAY)
    found = list(rows.values())
    assert summary.total == len(found)
    assert summary.top == {name: most_frequent(found, name) for name in TOP_PARAMETERS}


CHECKS = (check_page, check_stream, check_later_rows, check_summary)
