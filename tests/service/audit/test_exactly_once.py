"""Exactly once, always visible: any history of the lake against a plain list of rows.

Rows come in or are imported, and are sealed, merged, pruned and swept, the power goes at any
step, the service starts again, and whatever is asked in between is answered as the list would: by
the process that did all this, and by another that has only ever been asked, and remembers.
"""

import asyncio
import contextlib
import io
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    precondition,
    rule,
)

from analytics.imports.chunks import FileKind, ImportFormat
from analytics.model.filters import Query
from analytics.model.instants import format_us
from analytics.model.retention import RETENTION_DAYS, Tier, retention_floor
from service.app.application import create_app
from service.app.bootstrap import prepare
from service.app.composition import EXTENSION, Services
from service.audit.importer import ImportFile, ImportJob, ImportWatch
from service.orgs.organisations import create_org, hold, release, set_tier
from service.store.journal import append
from service.store.organisations import get_org
from tests.analytics.forced import KINDS, forced
from tests.analytics.samples import sample_row
from tests.budgets import budget, only_full
from tests.conftest import ADMIN_TOKEN, BY_OPERATOR, START, SettableClock, settings_over
from tests.crashes import PowerCut, power_cut_after

EVENT = "blocklist_hit"
GRACE_S = 3600.0
HEADERS = {"x-service-admin-token": ADMIN_TOKEN}
AUDIT = "/api/v1/admin/orgs/acme/audit"
ORDERS = st.sampled_from(["desc", "asc"])


@dataclass(frozen=True)
class Row:
    """What the list knows of a row; `label` is unique."""

    label: str
    created_at: datetime
    package: str


@dataclass(frozen=True)
class Cursor:
    """A page that was not the last, and the rows behind it."""

    text: str
    asked: dict[str, str]
    rest: tuple[Row, ...]


FILTERS: dict[str, Callable[[Row], bool]] = {
    f"event={EVENT}": lambda row: True,
    "decision=BLOCKED": lambda row: True,
    "decision=!ALLOWED&package=p*": lambda row: True,
    "package=p1": lambda row: row.package == "p1",
    f"event={EVENT}&package=!p1": lambda row: row.package != "p1",
    "package=nowhere": lambda row: False,
}

# Few instants, so that many rows share one; days ago, and seconds before noon.
INSTANTS = st.tuples(st.integers(0, 8), st.integers(0, 2))
RUNS = st.lists(st.tuples(INSTANTS, st.sampled_from(["p1", "p2"])), min_size=1, max_size=6)


def item(row: Row) -> dict[str, Any]:
    """The row as its sender writes it."""
    return {
        "event": EVENT,
        "created_at": format_us(row.created_at),
        "packageName": row.package,
        "version": row.label,
        "envelope": {"rule_id": "r1", "source": "osv"},
    }


def lines(rows: list[Row]) -> bytes:
    """`rows` as NDJSON."""
    return b"".join(json.dumps(item(row)).encode() + b"\n" for row in rows)


class Lake(RuleBasedStateMachine):
    """One organisation's audit log, and the list that it must equal."""

    cursors = Bundle("cursors")
    histories = 0

    @initialize()
    def start(self) -> None:
        Lake.histories += 1
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.clock = SettableClock(START)
        self.settings = msgspec.structs.replace(
            settings_over(self.folder),
            orphan_grace_s=GRACE_S,
            export_max_s=GRACE_S / 2,
            query_max_s=GRACE_S / 2,
            decoded_memory_mb=1,
        )
        self.accepted: list[Row] = []
        self.labels = 0
        self.tier = Tier.FREE
        self.left_at: dict[Tier, datetime] = {}
        self.is_held = False
        self.is_file_taken = False
        self.sent: tuple[str, bytes] | None = None
        self.settings = self.run(prepare(self.settings))
        self.open()
        self.run(self.found())

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.close()
            self.loop.close()
            shutil.rmtree(self.folder)

    def open(self) -> None:
        app, other = (create_app(self.settings, self.clock) for _ in range(2))
        self.client = app.test_client()
        self.services: Services = app.extensions[EXTENSION]
        self.others_client = other.test_client()
        self.others: Services = other.extensions[EXTENSION]
        self.readers = [(own, own.lake.queries._reader) for own in (self.services, self.others)]

    def close(self) -> None:
        for services in (self.services, self.others):
            self.run(services.close())

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def found(self) -> None:
        async with self.services.store.write() as work:
            self.acme = await create_org(work, "acme", self.tier, BY_OPERATOR)

    # What happens.

    def new_rows(self, run: list[tuple[tuple[int, int], str]]) -> list[Row]:
        rows = []
        for (days, seconds), package in run:
            self.labels += 1
            at = self.clock().replace(microsecond=0) - timedelta(days=days, seconds=seconds)
            rows.append(Row(f"v{self.labels}", at, package))
        return rows

    async def journal(self, rows: list[Row]) -> None:
        async with self.services.store.write() as work:
            await append(
                work.session,
                self.acme.id,
                [
                    sample_row(row.created_at, version=row.label, package_name=row.package)
                    for row in rows
                ],
                now=work.now,
            )

    @rule(run=RUNS)
    def append_rows(self, run: list[Any]) -> None:
        rows = self.new_rows(run)
        self.run(self.journal(rows))
        self.accepted += rows

    @rule(run=RUNS)
    def ingest(self, run: list[Any]) -> None:
        rows = self.new_rows(run)
        self.sent = (f"key-{self.labels}", json.dumps([item(row) for row in rows]).encode())
        kept = self.visible(rows)
        assert self.post(*self.sent)["accepted"] == len(kept)
        self.accepted += kept
        self.sent_at = self.clock()

    @precondition(lambda self: self.sent and self.clock() - self.sent_at < timedelta(hours=23))
    @rule()
    def ingest_again(self) -> None:
        self.post(*self.sent)

    def post(self, key: str, body: bytes) -> Any:
        headers = {**HEADERS, "idempotency-key": key, "content-type": "application/json"}
        response = self.run(self.client.post(f"{AUDIT}/events", headers=headers, data=body))
        assert response.status_code == 200, self.run(response.get_data(as_text=True))
        return self.run(response.get_json())

    async def take_file(self, content: bytes) -> int:
        """The rows that came of a file."""
        async with self.services.store.read() as session:
            acme = await get_org(session, "acme")
        source = ImportFile(
            "rows", io.BytesIO(content), len(content), FileKind(ImportFormat.NDJSON)
        )
        job = ImportJob(acme, source, BY_OPERATOR, is_partial=False)
        watch = ImportWatch(on_progress=lambda _: None, on_refused=lambda refused: None)
        return (await self.services.importer.take(job, watch, wait_s=0)).rows

    @rule(run=RUNS)
    def import_file(self, run: list[Any]) -> None:
        """A file whole or not at all; the same file again brings nothing."""
        rows = self.new_rows(run)
        self.file = lines(rows)
        taken = rows if len(self.visible(rows)) == len(rows) else []
        assert self.run(self.take_file(self.file)) == len(taken)
        self.accepted += taken
        self.is_file_taken = bool(taken)

    @precondition(lambda self: self.is_file_taken)
    @rule()
    def import_file_again(self) -> None:
        assert self.run(self.take_file(self.file)) == 0

    @rule(hours=st.sampled_from([0.1, 1, 5, 24, 80]))
    def time_passes(self, hours: float) -> None:
        self.clock.advance(hours=hours)

    @rule(tier=st.sampled_from([Tier.FREE, Tier.TEAM]))
    def change_tier(self, tier: Tier) -> None:
        async def change() -> None:
            async with self.services.store.write() as work:
                org = await get_org(work.session, "acme")
                await set_tier(work, org, tier, BY_OPERATOR)

        self.run(change())
        if tier is not self.tier:
            self.left_at[self.tier] = self.clock()
        self.tier = tier

    @rule()
    def change_hold(self) -> None:
        async def change() -> None:
            async with self.services.store.write() as work:
                org = await get_org(work.session, "acme")
                if self.is_held:
                    await release(work, org, "over", BY_OPERATOR)
                else:
                    await hold(work, org, "a case", BY_OPERATOR)

        self.run(change())
        self.is_held = not self.is_held

    def past(self) -> set[date]:
        """The days of accepted rows that no tier of the last week shows any more."""
        now = self.clock()
        tiers = {self.tier} | {
            tier for tier, at in self.left_at.items() if now - at <= timedelta(days=7)
        }
        kept = max(RETENTION_DAYS[tier] or 0 for tier in tiers)
        days = {row.created_at.date() for row in self.accepted}
        midnight = {day: datetime.combine(day, time(), UTC) + timedelta(days=1) for day in days}
        return {day for day in days if midnight[day] <= now - timedelta(days=kept)}

    @rule()
    def prune(self) -> None:
        """What is past retention is gone, unless it is held."""
        self.run(self.services.pruner.prune(BY_OPERATOR, is_clock_accepted=True))
        self.accept_what_was_dropped(set() if self.is_held else self.past())

    def accept_what_was_dropped(self, *may_be: set[date]) -> None:
        seen = self.run(self.services.store.snapshot(self.acme.id))
        stored = {segment.day for segment in seen.segments} | {batch.day for batch in seen.batches}
        dropped = {row.created_at.date() for row in self.accepted} - stored
        assert dropped in may_be, (dropped, may_be)
        self.accepted = [row for row in self.accepted if row.created_at.date() not in dropped]

    def protocols(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """What goes on in the background; none of it changes what is seen."""
        return {
            "seal": lambda: self.services.sealer.seal_due(everything=True),
            "compact": lambda: self.services.compactor.compact_due(everything=True),
            "unlink": self.services.garbage_collector.unlink_retired,
            "orphans": self.services.garbage_collector.clear_orphans,
        }

    @rule(name=st.sampled_from(["seal", "seal", "compact", "unlink", "orphans"]))
    def maintain(self, name: str) -> None:
        self.run(self.protocols()[name]())

    @rule()
    def restart(self) -> None:
        self.close()
        self.open()

    # The power goes.

    def cut(self, work: Awaitable[Any], steps: int) -> None:
        with power_cut_after(steps, self.services.store), contextlib.suppress(PowerCut):
            self.run(work)
        self.restart()

    @rule(name=st.sampled_from(["seal", "compact", "unlink", "orphans"]), steps=st.integers(0, 14))
    def power_goes_in_the_background(self, name: str, steps: int) -> None:
        self.cut(self.protocols()[name](), steps)

    @rule(steps=st.integers(0, 14))
    def power_goes_while_pruning(self, steps: int) -> None:
        """All days or none."""
        past = set() if self.is_held else self.past()
        self.cut(self.services.pruner.prune(BY_OPERATOR, is_clock_accepted=True), steps)
        self.accept_what_was_dropped(set(), past)

    @rule(run=RUNS, steps=st.integers(0, 6))
    def power_goes_during_a_write(self, run: list[Any], steps: int) -> None:
        """All of it or none of it; which one, only the lake can say."""
        rows = self.new_rows(run)
        self.cut(self.journal(rows), steps)
        self.accept_all_or_none(rows)

    @rule(run=RUNS, steps=st.integers(0, 30))
    def power_goes_during_an_import(self, run: list[Any], steps: int) -> None:
        """As if the file had not been there, or all of it."""
        rows = self.visible(self.new_rows(run))
        if rows:
            self.cut(self.take_file(lines(rows)), steps)
            self.accept_all_or_none(rows)

    def accept_all_or_none(self, rows: list[Row]) -> None:
        async def stored() -> set[str]:
            seen = await self.services.store.snapshot(self.acme.id)
            table = await self.services.lake.queries.run(
                lambda reader: reader.page(seen, Query(), 100_000, None)
            )
            return set(table.column("version").to_pylist())

        labels = self.run(stored())
        there = [row for row in rows if row.label in labels]
        assert there in ([], rows)
        self.accepted += there

    # What is asked.

    def expected(self, asked: str, order: str) -> list[Row]:
        """The rows of a query in its order, as of now."""
        return self.visible(self.asked_for(asked, order))

    def asked_for(self, asked: str, order: str) -> tuple[Row, ...]:
        """The same with those past retention: a higher tier shows them again."""
        rows = [row for row in self.accepted if FILTERS[asked](row)]
        rows.sort(key=lambda row: row.created_at)  # stable: of equals, the first accepted first
        return tuple(rows if order == "asc" else reversed(rows))

    def visible(self, rows: Any) -> list[Row]:
        floor = retention_floor(self.tier, self.clock())
        assert floor is not None
        return [row for row in rows if row.created_at >= floor]

    def get(self, path: str, asked: str, **more: str) -> Any:
        """What the other process answers; a page also this one, and the other once more."""
        query = "&".join([asked, *(f"{name}={value}" for name, value in more.items())])
        clients = [self.others_client]
        if path != "/export":  # each leaves rows of its own
            clients += [self.client, self.others_client]
        answers = []
        for client in clients:
            response = self.run(client.get(f"{AUDIT}{path}?{query}", headers=HEADERS))
            answers.append(self.run(response.get_data()))
            assert response.status_code == 200, answers
        self.run(self.others.exporter.drain())  # that an export has ended is a row, too
        assert answers == answers[:1] * len(answers)
        return response

    @rule(
        target=cursors,
        asked=st.sampled_from(sorted(FILTERS)),
        order=ORDERS,
        limit=st.sampled_from([1, 2, 5, 1000]),
    )
    def first_page(self, asked: str, order: str, limit: int) -> Any:
        rows = self.asked_for(asked, order)
        return self.check_page(asked, {"order": order, "limit": str(limit)}, rows, limit)

    @rule(target=cursors, cursor=consumes(cursors))
    def next_page(self, cursor: Cursor) -> Any:
        rest = tuple(row for row in cursor.rest if row in self.accepted)
        asked = dict(cursor.asked)
        filters = asked.pop("filters")
        return self.check_page(filters, asked | {"cursor": cursor.text}, rest, int(asked["limit"]))

    def check_page(
        self, asked: str, more: dict[str, str], rows: tuple[Row, ...], limit: int
    ) -> Any:
        page = self.run(self.get("", asked, **more).get_json())
        shown = self.visible(rows)
        assert [entry["version"] for entry in page["entries"]] == [
            row.label for row in shown[:limit]
        ]
        assert (page["next_cursor"] is None) is (len(shown) <= limit)
        if page["next_cursor"] is None:
            return multiple()
        kept = {name: value for name, value in more.items() if name != "cursor"}
        behind = rows[rows.index(shown[limit - 1]) + 1 :]
        return Cursor(page["next_cursor"], kept | {"filters": asked}, behind)

    @rule(asked=st.sampled_from(sorted(FILTERS)))
    def summary(self, asked: str) -> None:
        summed = self.run(self.get("/summary", asked).get_json())
        expected = self.expected(asked, "desc")
        assert summed["total"] == len(expected)
        assert sum(bucket["BLOCKED"] for bucket in summed["buckets"]) == len(expected)
        packages = Counter(row.package for row in expected)
        top = {one["value"]: one["count"] for one in summed["top"]["package"]}
        assert top == packages

    @rule(kind=st.none() | st.sampled_from(KINDS))
    def force(self, kind: str | None) -> None:
        """From here on every answer is by one kind of scan; None: as the planner chooses."""
        for services, reader in self.readers:
            services.lake.queries._reader = reader if kind is None else forced(reader, kind)

    @rule(number=st.integers(0, 99), damage=st.sampled_from(["remove", "cut off", "flip"]))
    def damage_an_index(self, number: int, damage: str) -> None:
        """As a disk might; nothing that is asked may show it."""
        paths = sorted(self.settings.audit_dir.glob("tenant=*/day=*/*.index"))
        if not paths:
            return
        path = paths[number % len(paths)]
        content = bytearray(path.read_bytes())
        if damage == "remove":
            path.unlink()
        elif damage == "cut off":
            path.write_bytes(content[:-1])
        else:
            content[number % len(content)] ^= 1
            path.write_bytes(content)

    @rule()
    def rebuild_indexes(self) -> None:
        """Those that are missing, or that something asked has met damaged."""
        self.run(self.services.indexer.build_missing())

    @rule(asked=st.sampled_from(sorted(FILTERS)), order=ORDERS)
    def export(self, asked: str, order: str) -> None:
        response = self.get("/export", asked, format="ndjson", order=order)
        lines = self.run(response.get_data()).splitlines()
        expected = self.expected(asked, order)
        assert [json.loads(line)["version"] for line in lines] == [row.label for row in expected]
        assert response.headers["x-row-count"] == str(len(expected))

    @rule()
    def no_two_rows_share_an_id(self) -> None:
        page = self.run(self.get("", "limit=1000").get_json())
        ids = [entry["id"] for entry in page["entries"]]
        assert len(set(ids)) == len(ids)


def _histories(examples: int, steps: int) -> int:
    """How many histories were compared with a list, step by step."""
    from hypothesis.stateful import run_state_machine_as_test

    before = Lake.histories
    run_state_machine_as_test(
        Lake,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return Lake.histories - before


def test_any_short_history_equals_a_list() -> None:
    assert _histories(examples=budget(3, 8), steps=25) > 0


@only_full
@pytest.mark.slow
def test_any_history_equals_a_list() -> None:
    assert _histories(examples=24, steps=60) > 0
