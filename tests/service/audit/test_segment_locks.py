"""Object locks of segments, in a real S3 server: what is locked, how long, and what that keeps."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from analytics.model import retention
from analytics.model.errors import StoreFault
from analytics.model.instants import midnight, utc_day
from analytics.model.retention import Tier, prunable_before, pruned_at
from analytics.storage.layout import checkpoint_key
from analytics.storage.object_lock import LOCKED_FOR, ObjectLocks, RequestRefused
from analytics.storage.segment_metadata import Segment
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.audit import segment_locks
from service.audit.backup.segment_restore import Result, SegmentRestore, open_sources
from service.audit.installation import renew_installation
from service.audit.segment_locks import LOCK_TERM, NO_LOCKS, load_probe
from service.audit.stats import list_stats
from service.core.errors import Conflict
from service.orgs.organisations import hold, release
from service.store.catalog import list_live_segments, list_segment_ids
from service.store.store import UnitOfWork
from service.store.tables import SegmentEntry
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import BY_OPERATOR, START, settings_over
from tests.crashes import PowerCut, at, kill_process, power_cut
from tests.polling import eventually
from tests.seaweedfs import locking
from tests.service.audit.backup.test_by_version import back_up, restore
from tests.service.audit.backup.test_by_version import check as backup_findings
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.pruning import always_on, change, prune
from tests.service.audit.test_s3_maintenance import check

DAY = timedelta(days=1)


@pytest.fixture
def settings(tmp_path, bucket):
    return locking(bucket).settings(
        settings_over(tmp_path), object_lock="compliance", export_max_s=1.0, query_max_s=1.0
    )


def half_day_before(server_time: datetime) -> datetime:
    """10 to 22 hours before, and the next 10 hours are of one day.

    The server refuses locks that end in its past: those of probes end a day after this.
    """
    latest = server_time - timedelta(hours=10)
    return latest.replace(hour=latest.hour // 12 * 12, minute=0, second=0, microsecond=0)


@pytest.mark.parametrize("minutes", range(0, 24 * 60, 30))
def test_tests_of_this_file_do_not_depend_on_the_hour(minutes):
    server_time = START + timedelta(minutes=minutes) - timedelta(microseconds=1)

    begin = half_day_before(server_time)

    assert begin + timedelta(hours=10) <= server_time
    assert begin + LOCKED_FOR > server_time + timedelta(hours=2)
    assert utc_day(begin + timedelta(hours=10)) == utc_day(begin)


@pytest.fixture
async def locked(audit):
    """Acme, with 365 days of retention, before the time of the server, which judges ends."""
    audit.clock.now = half_day_before(datetime.now(UTC))
    await always_on(audit, "org")
    return audit


async def add_day(audit: AuditWorld, days_ago: int, segments: int = 1) -> date:
    """A closed day that has so many segments and has been quiet for long enough."""
    day = utc_day(audit.clock.now) - days_ago * DAY
    for number in range(segments):
        row = sample_row(midnight(day) + timedelta(hours=3), version=f"{days_ago}.{number}")
        await audit.accept([row])
        await audit.seal()
    audit.clock.advance(hours=2)
    return day


async def live(audit: AuditWorld) -> dict[date, Segment]:
    """Acme's segments by day; of a day with several, any."""
    async with audit.services.store.read() as session:
        found = await list_live_segments(session, audit.world.acme.id)
    return {segment.day: segment for segment in found}


async def lines(audit: AuditWorld) -> dict[date, SegmentEntry]:
    async with audit.services.store.read() as session:
        return {
            day: await session.get(SegmentEntry, segment.segment_id)
            for day, segment in (await live(audit)).items()
        }


def locks(audit: AuditWorld) -> ObjectLocks:
    return audit.services.lake.segments.locks


def key_of(segment: Segment) -> str:
    return segment.path(Path()).as_posix()


async def ends(audit: AuditWorld) -> dict[date, datetime | None]:
    """When the bucket says that the locks of acme's live segments end."""
    return {
        day: locks(audit).locked_until(key_of(segment))
        for day, segment in (await live(audit)).items()
    }


async def lock_all(audit: AuditWorld) -> int:
    """Until nothing is due; how many segments were locked."""
    rounds = [await audit.services.locker.lock_due() for _ in range(2)]
    assert rounds[1] == 0, "what was locked is still due"
    return rounds[0]


@pytest.mark.parametrize("tier", list(Tier))
def test_a_lock_ends_when_the_day_is_pruned(tier):
    day = date(2026, 2, 27)

    end = pruned_at(tier, day)

    if end is None:
        assert prunable_before([tier], START) is None
        return
    judged_at = end - retention.PRUNE_DELAY
    assert prunable_before([tier], judged_at) == day + DAY
    assert prunable_before([tier], judged_at - timedelta(microseconds=1)) == day


async def test_segments_of_closed_days_are_locked_until_the_day_is_pruned(locked):
    """Not those that are going to be merged, nor today's."""
    closed = await add_day(locked, 3)
    open_day = await add_day(locked, 2, segments=2)
    journalled = await add_day(locked, 4)
    today = await add_day(locked, 0)
    await locked.accept([sample_row(midnight(journalled), version="late")])

    assert await lock_all(locked) > 0

    found = await ends(locked)
    assert found[closed] == pruned_at(Tier.ORG, closed)
    assert (found[open_day], found[journalled], found[today]) == (None, None, None)
    assert (await lines(locked))[closed].locked_until == found[closed]
    segment = (await live(locked))[closed]
    ((_, version),) = [
        each for each in locks(locked).versions(key_of(segment)) if each[0].endswith(".parquet")
    ]
    with pytest.raises(RequestRefused):
        locks(locked).remove(key_of(segment), version)


async def test_a_day_is_locked_once_it_is_merged_and_quiet(locked):
    day = await add_day(locked, 2, segments=3)
    assert await locked.services.compactor.compact_due()
    await lock_all(locked)
    assert (await ends(locked))[day] is None

    locked.clock.advance(hours=2)
    await lock_all(locked)

    assert (await ends(locked))[day] == pruned_at(Tier.ORG, day)
    async with locked.services.store.read() as session:
        retired = select(SegmentEntry).where(SegmentEntry.retired_at.is_not(None))
        assert [line.locked_until for line in await session.scalars(retired)] == [None] * 3


async def test_rows_of_another_organisation_do_not_keep_a_day_open(locked):
    day = await add_day(locked, 2)
    await locked.accept([sample_row(midnight(day))], locked.world.other)

    await lock_all(locked)

    assert (await ends(locked))[day] == pruned_at(Tier.ORG, day)


async def test_what_is_locked_is_not_asked_for_again(locked, monkeypatch):
    await add_day(locked, 2)
    await lock_all(locked)
    monkeypatch.setattr(ObjectLocks, "extend", None)

    assert await locked.services.locker.lock_due() == 0


async def test_a_longer_tier_extends_locks_and_a_shorter_one_leaves_them(locked):
    await always_on(locked, "team")
    day = await add_day(locked, 5)
    await lock_all(locked)
    assert (await ends(locked))[day] == pruned_at(Tier.TEAM, day)

    await always_on(locked, "org")
    assert await lock_all(locked) > 0
    assert (await ends(locked))[day] == pruned_at(Tier.ORG, day)

    await always_on(locked, "team")
    assert await lock_all(locked) == 0
    assert (await ends(locked))[day] == pruned_at(Tier.ORG, day)


async def test_a_tier_without_an_end_locks_for_a_year(locked):
    await always_on(locked, "team")
    day = await add_day(locked, 5)
    await lock_all(locked)

    await always_on(locked, "enterprise")
    assert await lock_all(locked) > 0

    assert (await ends(locked))[day] == (locked.clock.now + LOCK_TERM).replace(microsecond=0)


async def test_locks_of_a_day_that_is_never_pruned_are_renewed(locked):
    await always_on(locked, "enterprise")
    day = await add_day(locked, 2)
    await lock_all(locked)
    first = (await ends(locked))[day]
    assert first == (locked.clock.now + LOCK_TERM).replace(microsecond=0)
    locked.clock.now = first - segment_locks.RENEWED_AHEAD
    assert await lock_all(locked) == 0

    locked.clock.advance(seconds=1)
    assert await lock_all(locked) > 0

    assert (await ends(locked))[day] == (locked.clock.now + LOCK_TERM).replace(microsecond=0)


async def under_hold(audit: AuditWorld, is_held: bool) -> None:
    async def set_it(work: UnitOfWork, acme: Any) -> None:
        if is_held:
            await hold(work, acme, "case 4711", BY_OPERATOR)
        else:
            await release(work, acme, "closed", BY_OPERATOR)

    await change(audit.services, set_it)


def is_held(audit: AuditWorld, segment: Segment) -> bool:
    found = locks(audit)._send("head_object", key_of(segment))
    return bool(found.get("ObjectLockLegalHoldStatus") == "ON")


async def test_a_legal_hold_is_one_in_the_bucket_until_it_is_lifted(locked):
    day = await add_day(locked, 2)
    await lock_all(locked)
    segment = (await live(locked))[day]
    assert not is_held(locked, segment)

    await under_hold(locked, True)
    assert await lock_all(locked) > 0
    assert is_held(locked, segment)
    assert await lock_all(locked) == 0

    await under_hold(locked, False)
    assert await lock_all(locked) > 0
    assert not is_held(locked, segment)
    assert (await ends(locked))[day] == pruned_at(Tier.ORG, day)


async def test_a_held_day_past_its_retention_is_under_the_hold_alone(locked):
    """A lock that would have ended already is refused."""
    day = await add_day(locked, 400)
    await under_hold(locked, True)

    await lock_all(locked)

    segment = (await live(locked))[day]
    assert is_held(locked, segment)
    assert locks(locked).locked_until(key_of(segment)) is None
    assert await lock_all(locked) == 0


async def stats(audit: AuditWorld) -> dict[str, Any]:
    async with audit.services.store.read() as session:
        found = await list_stats(session, audit.services.lake)
    return next(line for line in found["organisations"] if line["org"] == "acme")


async def listed(audit: AuditWorld) -> set[str]:
    async with audit.services.store.read() as session:
        return await list_segment_ids(session)


async def lock_shortly(audit: AuditWorld, patch: pytest.MonkeyPatch, day: date) -> datetime:
    """Lock with a retention that ends in a moment; when that is.

    The server refuses a lock that ended before the request arrived: then the next one is longer.
    """
    await always_on(audit, "free")
    days = timedelta(days=1 + (retention.RETENTION_DAYS[Tier.FREE] or 0))
    for length in (3, 10, 30):
        end = (datetime.now(UTC) + timedelta(seconds=length)).replace(microsecond=0)
        patch.setattr(retention, "PRUNE_DELAY", end - midnight(day) - days)
        try:
            await lock_all(audit)
        except StoreFault:
            continue
        assert (await ends(audit))[day] == end
        return end
    raise AssertionError(f"no lock of {day}")


@pytest.mark.slow
async def test_a_merged_segment_is_kept_until_its_lock_ends(locked, monkeypatch):
    """Then no version of it is left, so that its bytes are free."""
    day = await add_day(locked, 2)
    end = await lock_shortly(locked, monkeypatch, day)
    old = (await live(locked))[day]
    await locked.accept([sample_row(midnight(day), version="late")])
    await locked.seal()
    await locked.services.compactor.compact_due(everything=True)
    locked.clock.now = end - timedelta(microseconds=1)
    collector = locked.services.garbage_collector
    unlocked = await collector.unlink_retired()

    assert unlocked == 1
    assert old.segment_id in await listed(locked)
    kept = await stats(locked)
    assert (kept["lock_kept_segments"], kept["lock_kept_bytes"]) == (1, old.size)
    assert kept["retired_segments"] == 1
    assert await check(locked, is_quick=True) == []

    eventually(lambda: datetime.now(UTC) > end, "the end of the lock")
    locked.clock.advance(seconds=60)
    assert await collector.unlink_retired() == 1

    assert old.segment_id not in await listed(locked)
    assert locks(locked).versions(key_of(old).removesuffix("parquet")) == []
    kept = await stats(locked)
    assert (kept["lock_kept_segments"], kept["lock_kept_bytes"]) == (0, 0)


async def test_a_segment_whose_lock_the_store_still_keeps_stays_in_the_catalog(locked):
    """Its clock may be behind, or the lock was extended by hand."""
    day = await add_day(locked, 2)
    await lock_all(locked)
    old = (await live(locked))[day]
    await always_on(locked, "free")
    locked.clock.advance(days=12)
    assert await prune(locked)
    async with locked.services.store.write() as work:
        entry = await work.session.get(SegmentEntry, old.segment_id)
        entry.locked_until = locked.clock.now
    locked.clock.advance(days=1)

    await locked.services.garbage_collector.unlink_retired()

    assert old.segment_id in await listed(locked)
    assert len(locks(locked).versions(key_of(old))) == 2  # the object, and a marker of a deletion


async def test_a_retired_segment_under_a_hold_is_kept(locked):
    day = await add_day(locked, 400)
    await under_hold(locked, True)
    await lock_all(locked)
    old = (await live(locked))[day]
    await locked.accept([sample_row(midnight(day), version="late")])
    await locked.seal()
    await locked.services.compactor.compact_due(everything=True)
    locked.clock.advance(days=1)
    collector = locked.services.garbage_collector

    await collector.unlink_retired()
    assert old.segment_id in await listed(locked)
    assert (await stats(locked))["lock_kept_segments"] == 1

    await under_hold(locked, False)
    await lock_all(locked)
    await collector.unlink_retired()
    assert old.segment_id not in await listed(locked)


@pytest.mark.parametrize("step", ["UPDATE segments", "COMMIT"])
async def test_a_crash_between_bucket_and_catalog_repeats_the_lock(locked, step):
    day = await add_day(locked, 2)
    await locked.services.locker.probe()
    number = {"UPDATE segments": 1, "COMMIT": 2}[step]  # the lease is a commit, too

    with power_cut(locked.services.store, at(step, number)), pytest.raises(PowerCut):
        await locked.services.locker.lock_due()

    assert (await ends(locked))[day] == pruned_at(Tier.ORG, day)
    assert (await lines(locked))[day].locked_until is None
    assert await lock_all(locked) > 0
    assert (await lines(locked))[day].locked_until == pruned_at(Tier.ORG, day)


@pytest.mark.slow
@only_full
@pytest.mark.parametrize("step", ["UPDATE segments", "COMMIT"])
async def test_kill_9_between_bucket_and_catalog_repeats_the_lock(locked, step):
    day = await add_day(locked, 2)
    await locked.services.locker.probe()
    number = {"UPDATE segments": 1, "COMMIT": 2}[step]

    await kill_process(locked.services.settings, locked.clock.now, "lock", step, number)

    assert (await ends(locked))[day] == pruned_at(Tier.ORG, day)
    assert (await lines(locked))[day].locked_until is None
    assert await lock_all(locked) > 0
    assert (await lines(locked))[day].locked_until == pruned_at(Tier.ORG, day)


@pytest.mark.slow
async def test_a_crash_of_an_unlink_repeats_it(locked, monkeypatch):
    day = await add_day(locked, 2)
    end = await lock_shortly(locked, monkeypatch, day)
    old = (await live(locked))[day]
    eventually(lambda: datetime.now(UTC) > end, "the end of the lock")
    locked.clock.advance(days=30)
    assert await prune(locked)
    locked.clock.advance(days=1)

    with (
        power_cut(locked.services.store, at("DELETE FROM segments")),
        pytest.raises(PowerCut),
    ):
        await locked.services.garbage_collector.unlink_retired()
    assert old.segment_id in await listed(locked)

    await locked.services.garbage_collector.unlink_retired()
    assert old.segment_id not in await listed(locked)
    assert locks(locked).versions(key_of(old)) == []


async def test_a_segment_that_cannot_be_locked_does_not_block_others(locked):
    days = [await add_day(locked, days_ago) for days_ago in (2, 3)]
    segments = await live(locked)
    locked.services.lake.segments._objects.delete([key_of(segments[days[0]])])

    with pytest.raises(StoreFault, match="missing"):
        await locked.services.locker.lock_due()

    assert (await lines(locked))[days[1]].locked_until == pruned_at(Tier.ORG, days[1])
    assert (await lines(locked))[days[0]].locked_until is None


async def test_a_segment_that_was_put_back_is_locked_again(locked):
    """It is another version of the object, and only that one."""
    first, second = await add_day(locked, 2), await add_day(locked, 3)
    await lock_all(locked)
    segments = await live(locked)
    locked.services.lake.segments._objects.delete([key_of(segments[first])])
    sources = open_sources(locked.services.settings, [])

    restored = await SegmentRestore(locked.services, sources, BY_OPERATOR).restore(segments[first])

    assert restored.result is Result.RESTORED
    assert (await ends(locked))[first] is None
    assert (await lines(locked))[first].locked_until is None
    assert (await lines(locked))[second].locked_until == pruned_at(Tier.ORG, second)
    assert await lock_all(locked) == 1
    assert (await ends(locked))[first] == pruned_at(Tier.ORG, first)


async def test_a_restored_database_locks_again(locked):
    """It may be over another bucket, or older than the locks that are there."""
    day = await add_day(locked, 2)
    await lock_all(locked)
    async with locked.services.store.write() as work:
        entry = await work.session.get(SegmentEntry, (await live(locked))[day].segment_id)
        entry.locked_until = locked.clock.now + timedelta(days=4_000)
        await renew_installation(work.session)
    locked.services.lake._guard._owner.take_over(
        await segment_locks.installation_id(locked.services.store)
    )

    assert await lock_all(locked) > 0

    assert (await lines(locked))[day].locked_until == pruned_at(Tier.ORG, day)


async def test_the_bucket_is_probed_before_the_first_lock_and_every_week(locked):
    await locked.services.locker.lock_due()
    async with locked.services.store.read() as session:
        first = await load_probe(session)
    assert first.held == {"delete": True, "shorten": True, "bypass": True}
    assert first.probed_at == locked.clock.now

    locked.clock.advance(days=6)
    await locked.services.locker.lock_due()
    async with locked.services.store.read() as session:
        assert await load_probe(session) == first
    locked.clock.advance(days=1)
    await locked.services.locker.lock_due()
    async with locked.services.store.read() as session:
        assert (await load_probe(session)).probed_at == locked.clock.now


async def test_a_broken_lock_is_told_after_a_restart_too(locked):
    """The tests' own credentials may end locks of mode governance."""
    own = msgspec.structs.replace(locked.services.settings, object_lock="governance")
    services = build_services(own, locked.clock)
    await services.locker.probe()
    await services.close()

    restarted = build_services(own, locked.clock)
    await restarted.locker.lock_due()
    shown = restarted.metrics.exposition()
    await restarted.close()

    assert b'countersign_object_lock_broken{attempt="bypass"} 1.0' in shown
    assert b'countersign_object_lock_broken{attempt="delete"} 0.0' in shown


async def test_objects_of_probes_and_checkpoints_are_no_segments(locked):
    """Neither for a check, nor for the sweep of orphans, nor for who owns the prefix."""
    segments, tenant_id = locked.services.lake.segments, locked.world.acme.id
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    keys = [checkpoint_key(tenant_id, 1, size) for size in (9, 10, 200)]
    assert keys[0] == f"checkpoints/tenant={tenant_id}/0001-00000000000000000009.txt"
    await locked.services.locker.probe()

    assert [segments.put_locked(key, b"first", until) for key in keys] == [True] * 3
    assert not segments.put_locked(keys[0], b"second", until)

    assert list(segments.list_keys(f"checkpoints/tenant={tenant_id}", after=keys[0])) == keys[1:]
    assert segments._objects.read(keys[0]) == b"first"
    assert locks(locked).locked_until(keys[0]) == until
    assert await check(locked, is_quick=True) == []
    locked.clock.advance(days=3_650)
    assert await locked.services.garbage_collector.clear_orphans() == 0
    assert locked.services.lake._guard._owner._has_only_unknown(()) is False


async def test_a_bucket_without_locks_takes_checkpoints_as_well(bucket, tmp_path, clock):
    settings = bucket.settings(settings_over(tmp_path))
    await prepare(settings, clock)
    services = build_services(settings, clock)
    try:
        put = services.lake.segments.put_locked
        assert put("checkpoints/a", b"first", clock.now)
        assert not put("checkpoints/a", b"second", clock.now)
        assert await services.locker.lock_due() == 0
        with pytest.raises(NO_LOCKS):
            await services.locker.probe()
    finally:
        await services.close()


async def test_a_service_does_not_start_where_the_bucket_has_no_object_lock(
    bucket, tmp_path, clock
):
    settings = bucket.settings(settings_over(tmp_path), object_lock="compliance")

    with pytest.raises(Conflict, match="created without object lock: create another bucket"):
        await prepare(settings, clock)


@pytest.mark.slow
@pytest.mark.sqlite_only(reason="a dump of PostgreSQL differs in the database alone")
async def test_a_backup_by_version_is_restored_without_what_was_pruned_since(
    locked, monkeypatch, tmp_path
):
    """The versions are gone then. All others are needed."""
    day, kept = await add_day(locked, 12), await add_day(locked, 2)
    end = await lock_shortly(locked, monkeypatch, day)
    segments, target = await live(locked), tmp_path / "backup"
    manifest = await back_up(locked, target)
    assert manifest.format == 5
    eventually(lambda: datetime.now(UTC) > end, "the end of the lock")
    locked.clock.now = end + timedelta(seconds=1)
    assert await prune(locked)
    locked.clock.advance(hours=1)
    await locked.services.garbage_collector.unlink_retired()
    assert locks(locked).versions(key_of(segments[day])) == []
    own = msgspec.structs.replace(locked.services.settings, data_dir=tmp_path / "new")

    assert await backup_findings(own, target) == []
    await restore(own, target)

    needed = {entry.key for entry in manifest.object_versions if entry.is_needed(end)}
    assert key_of(segments[kept]) in needed
    assert key_of(segments[day]) not in needed


async def test_the_auditors_report_counts_locked_files(locked):
    await add_day(locked, 2)
    await locked.services.locker.lock_due()
    lock = (await (await locked.get("/evidence")).get_json())["object_lock"]
    locked_now = [line for line in (await lines(locked)).values() if line.locked_until is not None]
    assert (lock["mode"], lock["locked"]) == ("compliance", len(locked_now))
    assert lock["files"] >= lock["locked"] > 0
    assert lock["broken"] == []
    assert lock["probed_at"] is not None
