"""The scrubber: it finds damage of every kind, names it until it is gone, and stops nothing."""

import asyncio
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.model.instants import format_us, utc_day
from analytics.storage.bucket_place import parse_place
from analytics.storage.objects import Objects
from analytics.storage.segment_metadata import Segment
from analytics.storage.verified_files import rows_file
from service.app.background_jobs import scrubbing
from service.audit.scrubber import ROUND_S, Pace
from service.audit.stats import verification_data
from service.store.catalog import list_live_segments, set_index
from service.store.lease import SCRUB, LeaseKeeper, LeaseTaken
from service.store.tables import JournalEntry
from tests.analytics.samples import sample_row
from tests.conftest import SCRAPER, START, settings_over
from tests.polling import HANG_S

DAYS = 5
WEEK = timedelta(days=7)


@pytest.fixture(params=["folder", "bucket"])
def settings(request, tmp_path):
    """Segments in a folder, and in a bucket."""
    if request.param == "folder":
        return settings_over(tmp_path)
    return request.getfixturevalue("bucket").settings(settings_over(tmp_path))


@pytest.fixture
async def filled(audit):
    """Acme has a segment on each of several days, and a week has passed since."""
    audit.waits = []
    audit.services.scrubber.pace = Pace(1e6, lambda seconds: bool(audit.waits.append(seconds)))
    for day in range(DAYS):
        await audit.accept([sample_row(START - timedelta(days=day)) for _ in range(4)])
    await audit.seal()
    audit.clock.advance(seconds=WEEK.total_seconds() + 1)
    return audit


class Stored:
    """The files of segments where they are stored: in the folder, or as objects."""

    def __init__(self, audit, bucket=None) -> None:
        self._root = audit.services.settings.audit_dir
        self._bucket = bucket if audit.services.settings.segments_url else None

    def _key(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def read(self, path: Path) -> bytes:
        return self._bucket.content(self._key(path)) if self._bucket else path.read_bytes()

    def write(self, path: Path, content: bytes) -> None:
        if self._bucket:
            self._bucket.write(self._key(path), content)
        else:
            path.write_bytes(content)

    def remove(self, path: Path) -> None:
        if self._bucket:
            self._bucket.objects().delete([self._key(path)])
        else:
            path.unlink()

    def flip(self, path: Path) -> None:
        content = self.read(path)
        self.write(path, content[:200] + bytes([content[200] ^ 1]) + content[201:])


@pytest.fixture
def stored(filled, request):
    is_bucket = bool(filled.services.settings.segments_url)
    return Stored(filled, request.getfixturevalue("bucket") if is_bucket else None)


async def live(audit) -> list[Segment]:
    """Acme's segments, by day."""
    async with audit.services.store.read() as session:
        return await list_live_segments(session, audit.world.acme.id)


async def scrub(audit) -> list[dict]:
    """All rounds that are due; the damage that they log."""
    with capture_logs() as logs:
        while await audit.services.scrubber.scrub_due():
            pass
    return [line for line in logs if line["event"].endswith("_damaged")]


async def verification(audit) -> dict:
    async with audit.services.store.read() as session:
        return await verification_data(session, audit.clock() - WEEK)


async def ready(audit) -> dict:
    return await (await audit.world.client.get("/readyz")).get_json()


def paths(audit, segments: list[Segment]) -> list[Path]:
    return [segment.path(audit.services.settings.audit_dir) for segment in segments]


async def test_each_file_is_verified_once_in_an_interval(filled):
    before = await verification(filled)
    assert (before["verified"], before["unread"], before["oldest_at"]) == (0, 0, None)
    assert before["segments"] > DAYS

    assert await scrub(filled) == []

    after = await verification(filled)
    assert (after["segments"], after["verified"]) == (before["segments"], before["segments"])
    assert after["oldest_at"] == format_us(filled.clock())
    filled.waits.clear()
    assert await filled.services.scrubber.scrub_due() is False
    assert filled.waits == []
    assert await ready(filled) == {"status": "ready"}


async def test_what_was_only_written_is_not_called_verified(filled):
    """A file that was right when it was written has not been read since."""
    await scrub(filled)
    before = await verification(filled)
    await filled.accept([sample_row(START) for _ in range(2)])
    await filled.seal()

    after = await verification(filled)

    assert (before["verified"], before["unread"]) == (before["segments"], 0)
    assert after["verified"] == before["segments"]
    assert after["unread"] == after["segments"] - before["segments"] > 0


async def test_each_kind_of_damage_is_found_and_named(filled, stored):
    missing, cut, changed, swapped, whole = await live(filled)
    at = dict(
        zip(
            ("missing", "cut", "changed", "swapped"),
            paths(filled, await live(filled)),
            strict=False,
        )
    )
    stored.remove(at["missing"])
    stored.write(at["cut"], stored.read(at["cut"])[:-1])
    stored.flip(at["changed"])
    (stranger,) = paths(filled, [whole])
    stored.write(at["swapped"], stored.read(stranger))

    logs = await scrub(filled)

    found = {line["segment"]: line["kind"] for line in logs}
    assert found == {
        missing.segment_id: "missing_file",
        cut.segment_id: "wrong_size",
        changed.segment_id: "wrong_sha256",
        swapped.segment_id: found[swapped.segment_id],
    }
    assert {line["event"] for line in logs} == {"segment_damaged"}
    damaged = (await verification(filled))["damaged"]
    assert [(line["org"], line["day"], line["segment"], line["rows"]) for line in damaged] == [
        ("acme", str(each.day), each.segment_id, each.rows)
        for each in (missing, cut, changed, swapped)
    ]
    assert all(line["path"].endswith(f"{line['segment']}.parquet") for line in damaged)
    assert await ready(filled) == {"status": "ready", "damaged": 4}
    shown = await (await filled.world.client.get("/metrics", headers=SCRAPER)).get_data(
        as_text=True
    )
    assert "countersign_damaged_segments 4.0" in shown
    assert 'countersign_scrub_damage_total{kind="wrong_sha256"} ' in shown


async def day_of(audit, segment: Segment):
    """The answer to a request for the rows of the segment's day."""
    begin = segment.day.isoformat()
    end = (segment.day + timedelta(days=1)).isoformat()
    bounds = {"since": f"{begin}T00:00:00Z", "until": f"{end}T00:00:00Z"}
    return await audit.get("", limit="100", **bounds)


async def test_damage_that_a_request_meets_is_named_at_once(filled, stored):
    await scrub(filled)
    segment, *_ = await live(filled)
    (path,) = paths(filled, [segment])
    stored.flip(path)
    if filled.services.settings.segments_url:
        path.unlink()  # the copy, which would answer
    answer = await day_of(filled, segment)
    assert answer.status_code == 503
    assert segment.segment_id in (await answer.get_json())["error"]

    assert await filled.services.scrubber.verify_suspects() is True

    (damaged,) = (await verification(filled))["damaged"]
    assert damaged["segment"] == segment.segment_id
    assert await ready(filled) == {"status": "ready", "damaged": 1}
    filled.waits.clear()
    await day_of(filled, segment)
    await filled.services.scrubber.verify_suspects()
    assert filled.waits == []
    assert await filled.services.scrubber.verify_suspects() is False


async def test_damage_that_an_export_meets_is_named_at_once(filled, stored):
    """Its rows are counted by the catalog: the file is read only while it is sent."""
    segment, *_ = await live(filled)
    (path,) = paths(filled, [segment])
    stored.flip(path)
    if filled.services.settings.segments_url:
        path.unlink()  # the copy, which would answer
    with pytest.raises(StoreFault):
        await (await filled.export(format="csv")).get_data()

    await filled.services.scrubber.verify_suspects()

    assert [each["segment"] for each in (await verification(filled))["damaged"]] == [
        segment.segment_id
    ]


async def test_a_damaged_batch_that_a_request_meets_is_named_at_once(filled):
    """However young it is; once it is whole again, so is the statistic."""
    await filled.accept([sample_row(START)])
    seq = await damage_a_batch(filled)
    answer = await filled.get("", limit="100")
    assert answer.status_code == 503

    await filled.services.scrubber.verify_suspects()

    (damaged,) = (await verification(filled))["damaged"]
    assert damaged["path"] == f"journal batch from seq {seq}"


async def damage_a_batch(audit) -> int:
    """Damage the first batch of the journal; its first seq."""
    async with audit.services.store.write() as work:
        seq = (await work.session.scalars(JournalEntry.__table__.select())).first()
        assert seq is not None
        await work.session.execute(
            JournalEntry.__table__.update()
            .where(JournalEntry.first_seq == seq)
            .values(data=b"damaged")
        )
    return int(seq)


async def test_damage_stays_named_until_the_file_is_whole_when_verified_again(filled, stored):
    segment, *_ = await live(filled)
    (path,) = paths(filled, [segment])
    content = stored.read(path)
    stored.flip(path)
    await scrub(filled)
    stored.write(path, content)
    await scrub(filled)
    assert len((await verification(filled))["damaged"]) == 1

    filled.clock.advance(seconds=WEEK.total_seconds() + 1)
    assert await scrub(filled) == []

    assert (await verification(filled))["damaged"] == []


async def test_a_damaged_index_is_named_once_and_built_again(filled, stored):
    """It is derived: nothing is lost, so nothing stays damaged."""
    segment, *_ = await live(filled)
    path = segment.index_path(filled.services.settings.audit_dir)
    whole = stored.read(path)
    stored.flip(path)

    (line,) = await scrub(filled)
    assert (line["event"], line["segment"]) == ("index_damaged", segment.segment_id)
    while await filled.services.indexer.build_missing():
        pass

    assert stored.read(path) == whole
    assert (await verification(filled))["damaged"] == []


async def test_a_segment_that_is_merged_meanwhile_is_not_damaged(filled, stored):
    """Its file is gone, and so is its line of the catalog."""
    verify = filled.services.lake.verify
    merged = []

    async def while_merging(segment, pace):
        if not merged:
            merged.append(await filled.services.compactor.compact_due(everything=True))
            for path in paths(filled, [segment]):
                stored.remove(path)
        return await verify(segment, pace)

    await filled.accept([sample_row(START) for _ in range(2)])
    await filled.seal()
    filled.clock.advance(seconds=WEEK.total_seconds() + 1)
    first = next(each for each in await live(filled) if each.day == utc_day(START))
    filled.services.lake.verify = lambda segment, pace: (
        while_merging(segment, pace) if segment == first else verify(segment, pace)
    )

    assert await scrub(filled) == []

    assert merged
    assert (await verification(filled))["damaged"] == []


async def test_an_index_that_is_built_again_meanwhile_is_not_damaged(filled, stored):
    """The digest that it was compared with is no longer the catalog's."""
    services, verify = filled.services, filled.services.lake.verify
    segment, *_ = await live(filled)
    path = segment.index_path(services.settings.audit_dir)
    stored.flip(path)

    async def while_indexing(due, pace):
        faults = await verify(due, pace)
        if due.segment_id == segment.segment_id:
            async with services.store.write() as work:
                await set_index(work.session, replace(segment, index_sha256="another"))
        return faults

    services.lake.verify = while_indexing

    assert await scrub(filled) == []


@pytest.mark.parametrize("settings", ["folder"], indirect=True)
async def test_damage_that_leaves_a_files_times_is_no_longer_served(filled, stored):
    """A disk does not report a lost bit, and processes know a verified file by its times."""
    segment, *_ = await live(filled)
    (path,) = paths(filled, [segment])
    known, verified = (
        rows_file(filled.services.settings.audit_dir, segment),
        filled.services.lake.segments._verified,
    )
    stored.flip(path)
    verified.add(known)  # as if it had been verified before the flip, which changed no time
    assert verified.knows(known)

    await scrub(filled)

    assert not verified.knows(known)


@pytest.mark.parametrize("settings", ["bucket"], indirect=True)
async def test_a_bucket_that_does_not_answer_is_no_damage(filled, bucket):
    segments = filled.services.lake.segments
    segments._objects = Objects(parse_place(bucket.url), "http://127.0.0.1:9", 0.2)

    with pytest.raises(StoreUnreachable):
        await filled.services.scrubber.scrub_due()

    assert (await verification(filled))["damaged"] == []


async def test_old_journal_batches_are_verified_too(filled):
    """One that cannot be sealed may lie there for days."""
    await filled.accept([sample_row(START), sample_row(START)])
    await filled.accept([sample_row(START)])
    filled.clock.advance(seconds=3_601)
    entry = await damage_a_batch(filled)

    (line,) = await scrub(filled)

    assert line["event"] == "journal_batch_damaged"
    assert (line["organisation"], line["kind"]) == (filled.world.acme.id, "unreadable")
    (damaged,) = (await verification(filled))["damaged"]
    assert (damaged["org"], damaged["segment"]) == ("acme", None)
    assert damaged["path"] == f"journal batch from seq {entry}"


async def test_reading_keeps_to_the_rate_and_a_round_to_its_length(filled):
    """By the waits between reads, which add up to the time that the bytes may take."""
    segments = await live(filled)
    async with filled.services.store.read() as session:
        everything = await list_live_segments(session)
    size = sum(each.size + each.index_size for each in everything)
    pace = filled.services.scrubber.pace
    pace.bytes_per_s = (segments[0].size + segments[0].index_size) / ROUND_S

    rounds = 0
    while await filled.services.scrubber.scrub_due():
        rounds += 1

    assert sum(filled.waits) == pytest.approx(size / pace.bytes_per_s)
    assert rounds > 1


async def test_it_goes_on_where_it_was_stopped(filled):
    pace = filled.services.scrubber.pace
    read = 0

    def wait(seconds: float) -> bool:
        nonlocal read
        read += bool(seconds)
        if read == 4:  # two files and their indexes
            pace.stop()
        return False

    pace._wait = wait
    assert await filled.services.scrubber.scrub_due() is False
    done = (await verification(filled))["verified"]
    assert 0 < done < (await verification(filled))["segments"]

    filled.services.scrubber.pace = Pace(1e6, lambda seconds: bool(filled.waits.append(seconds)))
    filled.waits.clear()
    await scrub(filled)

    after = await verification(filled)
    assert after["verified"] == after["segments"]


async def test_stopping_ends_a_wait_at_once(filled):
    """At this rate the first file alone would take years."""
    scrubber = filled.services.scrubber
    scrubber.pace = Pace(1e-6)
    stop = asyncio.Event()
    running = asyncio.create_task(scrubbing(filled.services).run(stop))
    async with asyncio.timeout(HANG_S):
        while not filled.services.lake._scrub_thread._threads:
            await filled.services.store.ping()
        stop.set()
        scrubber.stop()
        await running

    assert (await verification(filled))["verified"] == 0


async def test_one_process_at_a_time_verifies(filled):
    services = filled.services
    lifetime = timedelta(seconds=60)
    other = LeaseKeeper(services.store, services.settings.data_dir, lifetime, SCRUB)
    async with other.hold():
        with pytest.raises(LeaseTaken):
            await services.scrubber.scrub_due()
        await services.compactor.compact_due(everything=True)

    assert await services.scrubber.scrub_due()


async def test_a_store_that_does_not_answer_is_no_damage(filled, monkeypatch):
    verify = filled.services.lake.verify
    asked = []

    async def fail_later(segment, pace):
        asked.append(segment)
        if len(asked) > 2:
            raise StoreUnreachable("away")
        return await verify(segment, pace)

    monkeypatch.setattr(filled.services.lake, "verify", fail_later)
    with pytest.raises(StoreUnreachable):
        await filled.services.scrubber.scrub_due()

    state = await verification(filled)
    assert (state["verified"], state["damaged"]) == (2, [])


@pytest.mark.parametrize("settings", ["folder"], indirect=True)
async def test_the_files_of_a_folder_are_no_copies(filled):
    assert await filled.services.scrubber.scrub_copies() is False


@pytest.mark.parametrize("settings", ["bucket"], indirect=True)
async def test_a_damaged_copy_is_dropped_and_fetched_again(filled):
    """With segments in a bucket, what readers open is a copy on this machine."""
    root = filled.services.settings.audit_dir
    pages = await filled.pages()
    segment, *_ = await live(filled)
    for path in root.rglob("*.parquet"):
        os.utime(path, (START.timestamp(), START.timestamp()))
    path = segment.path(root)
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    os.utime(path, (START.timestamp(), START.timestamp()))
    path.chmod(0o400)

    with capture_logs() as logs:
        while await filled.services.scrubber.scrub_copies():
            pass

    assert [line["event"] for line in logs] == ["copy_damaged"]
    assert not path.exists()
    assert await filled.pages() == pages


def test_the_rate_is_a_setting(settings):
    """Megabytes are millions of bytes."""
    faster = msgspec.structs.replace(settings, scrub_mb_per_s=0.5)
    waits = []
    pace = Pace(faster.scrub_mb_per_s * 1e6, lambda seconds: bool(waits.append(seconds)))
    pace(1_000_000)

    assert waits == [2.0]
