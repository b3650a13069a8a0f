"""Newest rows kept as text: whatever came, went and was moved, a page of them is a fresh one."""

import random
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from analytics.cache.row_groups import Decoded
from analytics.export.wire import json_objects
from analytics.model.cursors import Position
from analytics.model.filters import Query, parse_query
from analytics.model.instants import midnight
from analytics.model.rows import AuditRow
from analytics.query import newest_texts
from analytics.query.kept_sums import KeptSums
from analytics.query.newest_texts import NewestTexts, Row, position_of
from analytics.statistics.value_index import ValueIndex
from analytics.storage import index_builder
from analytics.storage.segment_index import HEAD_COLUMNS
from analytics.storage.segment_store import LocalFolder
from tests.analytics.models import in_order, matching
from tests.analytics.query.test_kept_sums import DAY, HOUR, MIDNIGHT, LivingLake
from tests.analytics.samples import TENANT, table_of
from tests.budgets import budget


class Pages:
    """A lake whose pages are asked of what is kept first, and of its rows otherwise."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        files = LocalFolder(root)
        decoded = Decoded(files, 2**20)
        self.lake = LivingLake(root, chance, KeptSums(ValueIndex(files, 2**14), decoded, 2**10))
        self.newest = NewestTexts(decoded, json_objects, 2**20)

    def fresh(self, query: Query, limit: int, after: Position | None) -> list[Row]:
        """The page, of the rows themselves."""
        mark = self.lake.last_seq if after is None else after.watermark
        rows = matching(self.lake.rows, query, mark)
        if after is not None:
            place = after.created_at, after.seq
            rows = {seq: row for seq, row in rows.items() if (row.created_at, seq) < place}
        seqs = in_order(rows, query.order)[:limit]
        if not seqs:
            return []
        table = pa.concat_tables(table_of([rows[seq]], seq) for seq in seqs)
        return self.newest.rows_of(table, TENANT)

    def ask(self, query: Query, limit: int, after: Position | None = None) -> bool:
        """Whether the page was kept; if not it is learnt. It is what the rows say."""
        snapshot, fresh = self.lake.look(), self.fresh(query, limit, after)
        found = self.newest.page(snapshot, query, limit, after)
        if found is None:
            self.newest.learn(snapshot, query, limit, after, fresh)
            return False
        assert found == fresh
        return True

    def give_up(self) -> None:
        """A segment that cannot be read any more."""
        for name in self.lake.random.sample(list(self.lake.segments), self.lake.segments != {}):
            del self.lake.segments[name]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(budget(3, 300)))
def test_a_kept_page_is_a_fresh_one_whatever_came_and_went(tmp_path, monkeypatch, seed):
    chance = random.Random(seed)
    monkeypatch.setattr(index_builder, "HEAD_COLUMNS", HEAD_COLUMNS)  # sets it back in the end
    monkeypatch.setattr(newest_texts, "ROWS_MAX", chance.choice([3, 12, 1_000]))
    monkeypatch.setattr(newest_texts, "QUICK_BATCHES", 3)
    pages = Pages(tmp_path, chance)
    lake = pages.lake
    changes = [*[lake.ingest] * 6, *[lake.seal] * 3, *[lake.merge] * 3]
    changes += [lake.bring_in, lake.prune, pages.give_up]
    cursors: list[Position] = []
    floor, kept = MIDNIGHT, 0
    for _ in range(60):
        for _ in range(chance.choice([0, 1, 1, 3])):
            chance.choice(changes)()
        floor = max(floor + chance.randrange(-20, 60) * HOUR / 60, MIDNIGHT)
        until = chance.choice([None, None, MIDNIGHT + chance.randrange(7 * 24) * HOUR])
        query = Query(since=chance.choice([None, floor, floor]), until=until)
        after = chance.choice([None, None, *cursors[-2:]])
        limit = chance.choice([1, 2, 5, 30])
        kept += pages.ask(query, limit, after)
        shown = pages.fresh(query, limit, after)
        cursors += [position_of(row, lake.look(), after) for row in shown[-1:]]
    assert kept, seed


@pytest.fixture
def pages(tmp_path, monkeypatch) -> Pages:
    monkeypatch.setattr(index_builder, "HEAD_COLUMNS", HEAD_COLUMNS)
    return Pages(tmp_path, random.Random(1))


def test_pages_by_cursor_follow_as_far_as_rows_are_known(pages):
    for _ in range(8):
        pages.lake.ingest()
    assert not pages.ask(Query(), 4)
    assert pages.ask(Query(), 4)
    third = pages.fresh(Query(), 4, None)[2]
    after = position_of(third, pages.lake.look(), None)

    assert not pages.ask(Query(), 4, after)
    assert pages.ask(Query(), 4, after)
    assert pages.ask(Query(), 7)


def test_a_seal_a_merge_and_an_import_of_old_days_change_nothing(pages):
    for _ in range(12):
        pages.lake.ingest()
    assert not pages.ask(Query(), 2)
    newest_day = max(batch.day for batch, _ in pages.lake.batches.values())
    for _ in range(40):
        pages.lake.seal()
        pages.lake.merge()
    pages.lake.write(
        {pages.lake.last_seq + 1: row_of(pages, newest_day - 3 * DAY)}, is_imported=True
    )
    pages.lake.last_seq += 1

    assert pages.ask(Query(), 2)


def row_of(pages: Pages, day: date) -> AuditRow:
    """A row at the beginning of that day."""
    return structs.replace(next(iter(pages.lake.new_rows().values())), created_at=midnight(day))


def test_too_much_to_add_at_once_is_read_by_a_scan(pages, monkeypatch):
    """The event loop does not decode a thousand batches."""
    pages.lake.ingest()
    assert not pages.ask(Query(), 4)
    monkeypatch.setattr(newest_texts, "QUICK_BATCHES", 2)
    for _ in range(3):
        pages.lake.ingest()

    assert not pages.ask(Query(), 4)
    assert pages.ask(Query(), 4)


@pytest.mark.parametrize("parameters", [{"order": ["asc"]}, {"event": ["org_created"]}])
def test_what_has_another_order_or_a_filter_is_not_kept(pages, parameters):
    pages.lake.ingest()

    assert not pages.ask(parse_query(parameters), 4)
    assert not pages.ask(parse_query(parameters), 4)


def test_what_one_tenant_has_is_not_shown_to_another(pages):
    pages.lake.ingest()
    assert not pages.ask(Query(), 1)

    assert (
        pages.newest.page(replace(pages.lake.look(), tenant_id="org_2"), Query(), 1, None) is None
    )
