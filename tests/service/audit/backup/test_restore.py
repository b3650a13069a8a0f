"""Putting a backup back: all of it, checked, in one step; or nothing, and nothing is lost."""

import asyncio
import random
import shutil
import tarfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update

from analytics.model.schema import SCHEMA_VERSION
from analytics.storage.integrity import FaultKind
from service.app.application import create_app
from service.app.bootstrap import prepare
from service.app.composition import EXTENSION
from service.audit.backup.manifest import (
    DATABASE,
    FORMAT,
    NAME,
    KeptFile,
    read_manifest,
    write_manifest,
)
from service.audit.backup.refusals import (
    BACKUP_INSIDE,
    DATA_DIR_IN_THE_WAY,
    DATA_DIR_IN_USE,
    DATA_DIR_IS_MOUNT,
    DATABASE_ELSEWHERE,
    NEWER_BACKUP,
    NOT_A_BACKUP,
    TOO_LITTLE_SPACE,
    BackupDamaged,
)
from service.audit.backup.restore import _put_in_place, restore_backup
from service.audit.evidence.continuity import RESTORED, resume
from service.audit.integrity_check import Check
from service.core.clock import utc_now
from service.core.settings import REPOSITORY
from service.store.catalog import list_live_segments
from service.store.journal import append
from service.store.migrate import LAST_WITH_ALL_STEPS, NEWER_DATABASE, UNRELEASED_DATABASE
from service.store.tables import EvidenceCheckpoint, EvidenceTree, Lease
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import BY_OPERATOR
from tests.crashes import at, full_disk
from tests.service.audit.backup.conftest import (
    NO_ROOM,
    entries,
    entries_of,
    left_over,
    restore,
    restored_entries,
    serving,
    take,
    tree,
)
from tests.service.audit.conftest import start_worker
from tests.service.audit.evidence.proving import checkpoints

pytestmark = pytest.mark.sqlite_only(reason="copies a file; PostgreSQL: test_postgresql.py")

STORED = REPOSITORY / "tests" / "stored" / "version_1.tar.gz"
"""A data dir and a backup of it, as the first version wrote them."""


@pytest.fixture
async def backup(filled, target):
    await take(filled.services, target)
    return target


@pytest.fixture
def place(tmp_path) -> Path:
    """Where it is put back: nothing is there yet."""
    return tmp_path / "restored"


def state(place: Path) -> object:
    """What is in the folder, or that there is none."""
    return tree(place) if place.is_dir() else place.exists()


async def refused(error, *arguments, **options) -> str:
    """What the refusal says; nothing may have come of the attempt."""
    place = arguments[2]
    before = state(place)
    with pytest.raises(error) as raised:
        await asyncio.to_thread(restore, *arguments, **options)
    assert state(place) == before
    assert left_over(place.parent) == []
    return str(raised.value)


async def test_an_empty_folder_is_as_good_as_none(filled, backup, place):
    """It was created with the owner and rights it is to have."""
    place.mkdir()
    before = await entries(filled)

    assert await restored_entries(filled, backup, place) == before


async def test_a_backup_is_left_as_it_is(filled, backup, place):
    before = tree(backup)

    await restored_entries(filled, backup, place)

    assert tree(backup) == before


async def test_every_flipped_bit_is_found_before_anything_is_in_place(filled, backup, place):
    chance = random.Random(20261120)
    for name in sorted(tree(backup)):
        path = backup / name
        content = path.read_bytes()
        for index in chance.sample(range(len(content)), 4):
            flipped = bytearray(content)
            flipped[index] ^= 1 << chance.randrange(7)
            if name == NAME and bytes([content[index]]).isspace():
                continue  # between values, where it means nothing
            path.write_bytes(flipped)
            said = await refused((BackupDamaged, NEWER_BACKUP), filled, backup, place)
            assert name in said or name == NAME
        path.write_bytes(content)

    await asyncio.to_thread(restore, filled, backup, place)


async def test_what_the_manifest_does_not_name_is_not_put_back(filled, backup, place):
    (backup / "notes.txt").write_text("of 2026")

    await asyncio.to_thread(restore, filled, backup, place)

    assert not (place / "notes.txt").exists()


@pytest.mark.parametrize("source", ["nowhere", "data", "a file"])
async def test_a_folder_without_a_manifest_is_no_backup(filled, tmp_path, place, source):
    (tmp_path / "a file").write_text("")

    said = await refused(NOT_A_BACKUP, filled, tmp_path / source, place)
    assert said == f"{tmp_path / source} is no backup: it has no manifest.json"


def with_manifest(**changes: Any) -> Callable[[Path], None]:
    """Its manifest is another one, which is whole in itself."""

    def change(backup: Path) -> None:
        known = read_manifest(backup)
        made = {name: made(known) if callable(made) else made for name, made in changes.items()}
        write_manifest(backup, msgspec.structs.replace(known, **made).with_digest())

    return change


def with_file(path: str) -> Callable[[Path], None]:
    """However well it is signed: the digest guards against accidents."""
    return with_manifest(files=lambda known: (*known.files, KeptFile(path, 0, "")))


def of_newer_form(backup: Path) -> None:
    """Its manifest may have members that this version does not know."""
    (backup / NAME).write_bytes(msgspec.json.encode({"format": FORMAT + 1, "parts": []}))


PATHS = ("../escaped", "/escaped", "audit/../../escaped", "a//b", "", "a\0b")
NEWER = "by a newer version of Countersign: update this one"
OLDER = f"run `countersign init`, or `restore` of a backup, with commit {LAST_WITH_ALL_STEPS} first"
without_database = with_manifest(files=lambda known: known.files[1:])


@sample(7)
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        *((with_file(path), BackupDamaged, f"is damaged: {NAME}") for path in PATHS),
        (lambda backup: (backup / DATABASE).unlink(), BackupDamaged, f"{DATABASE} is missing"),
        (without_database, BackupDamaged, f"{DATABASE} is not in {NAME}"),
        (of_newer_form, NEWER_BACKUP, f"the backup was taken {NEWER}"),
        (with_manifest(audit_schema=SCHEMA_VERSION + 1), NEWER_BACKUP, f"was taken {NEWER}"),
        (with_manifest(schema="9999"), NEWER_DATABASE, f"the database was written {NEWER}"),
        (
            with_manifest(schema="0022"),
            UNRELEASED_DATABASE,
            f"0022 is from before the first release: {OLDER}",
        ),
    ],
)
async def test_a_backup_that_cannot_be_restored_says_why(
    filled, backup, place, change, error, text
):
    change(backup)

    assert (await refused(error, filled, backup, place)).endswith(text)


async def test_a_data_dir_with_something_in_it_is_left_alone(filled, backup, place):
    place.mkdir()
    (place / "precious").write_text("as it was")

    said = await refused(DATA_DIR_IN_THE_WAY, filled, backup, place)
    assert "--force" in said

    restored = await asyncio.to_thread(restore, filled, backup, place, is_forced=True)
    assert restored.moved_to is not None
    assert tree(restored.moved_to) == {"precious": b"as it was"}
    assert restored.moved_to.parent == place.parent
    async with serving(filled, place):
        pass


async def test_a_data_dir_a_service_works_on_is_left_alone(filled, backup):
    """It would go on writing into the folder that was moved, and lose all of it."""
    data_dir = filled.services.settings.data_dir

    said = await refused(DATA_DIR_IN_USE, filled, backup, data_dir, is_forced=True)
    assert said == f"{data_dir} is in use: stop the service first"

    await filled.services.close()
    await asyncio.to_thread(restore, filled, backup, data_dir, is_forced=True)
    async with serving(filled, data_dir):
        pass


async def test_a_service_that_starts_while_the_backup_is_copied_is_left_alone(filled, backup):
    """Copying takes hours, and a supervisor starts what has stopped."""
    settings = filled.services.settings
    await filled.services.close()
    loop, started = asyncio.get_running_loop(), []

    async def start():
        started.append(start_worker(settings, filled.clock))
        await started[0].store.ping()

    def show(done, total):
        if not started:
            asyncio.run_coroutine_threadsafe(start(), loop).result()

    with pytest.raises(DATA_DIR_IN_USE):
        await asyncio.to_thread(restore_backup, settings, backup, show, is_forced=True)

    async with started[0].store.write() as work:
        await append(work.session, filled.world.acme.id, [sample_row()], now=work.now)
    await started[0].close()
    assert left_over(settings.data_dir.parent) == []
    async with serving(filled, settings.data_dir) as app:
        path = "/api/v1/admin/orgs/acme/audit?package=left-pad&limit=1000"
        response = await app.test_client().get(path, headers=filled.world.admin)
        assert response.status_code == 200


async def test_a_damaged_database_can_be_replaced(filled, backup, place):
    place.mkdir()
    (place / DATABASE).write_bytes(b"no database" * 1000)

    restored = await asyncio.to_thread(restore, filled, backup, place, is_forced=True)

    assert tree(restored.moved_to) == {DATABASE: b"no database" * 1000}


async def test_a_mount_point_is_refused_before_anything_is_copied(
    filled, backup, place, monkeypatch
):
    """It cannot be replaced in one step."""
    place.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda self: True)

    assert "a folder in it" in await refused(DATA_DIR_IS_MOUNT, filled, backup, place)


async def test_backup_and_data_dir_must_lie_apart(filled, backup):
    """Otherwise one would move with the other."""
    for place, is_forced in ((backup / "data", False), (backup.parent, True)):
        said = await refused(BACKUP_INSIDE, filled, backup, place, is_forced=is_forced)
        assert "lie within each other" in said


@pytest.mark.parametrize("error", [OSError("as expected"), KeyboardInterrupt()])
def test_whatever_ends_it_between_two_renames_what_was_there_comes_back(
    tmp_path, monkeypatch, error
):
    """The data dir is moved for a moment."""
    part, place = tmp_path / "part", tmp_path / "place"
    part.mkdir()
    place.mkdir()
    (place / "precious").write_text("as it was")
    rename = Path.rename

    def fail(self, target):
        if self == part:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)

    with pytest.raises(type(error)):
        _put_in_place(part, place, utc_now())

    assert tree(place) == {"precious": b"as it was"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part", "place"]


async def test_a_place_without_room_is_refused_before_anything_is_copied(
    filled, backup, place, monkeypatch
):
    monkeypatch.setattr("service.audit.backup.manifest.shutil.disk_usage", lambda _: NO_ROOM)

    assert "0 are free" in await refused(TOO_LITTLE_SPACE, filled, backup, place)


@sample(2)
@pytest.mark.parametrize("on_call", range(1, 12))
async def test_a_disk_that_is_full_at_any_step_leaves_nothing(filled, backup, place, on_call):
    with full_disk(at("fsync", on_call)):
        assert "No space" in await refused(OSError, filled, backup, place)


async def test_every_byte_and_name_is_durable_before_the_data_dir_has_its_own(
    filled,
    backup,
    place,
    file_steps,
):
    await asyncio.to_thread(restore, filled, backup, place)

    named = file_steps.index("rename", place)
    synced = {path: index for index, (what, path) in enumerate(file_steps.steps) if what == "fsync"}
    (part,) = {path.parent for path in synced if path.name == DATABASE}
    for path in place.rglob("*"):
        assert synced[part / path.relative_to(place)] < named
    assert file_steps.synced_bytes[part / DATABASE] == (place / DATABASE).stat().st_size
    assert synced[part] < named < synced[place.parent]


async def test_a_lease_that_was_held_does_not_come_back(filled, target, place, settings, clock):
    """Not even that of another machine, whose expiry would be waited for."""
    async with filled.services.store.write() as work:
        await work.session.execute(
            update(Lease).values(holder="elsewhere/1/x", expires_at=clock.now.replace(year=2999))
        )
    await take(filled.services, target)
    await asyncio.to_thread(restore, filled, target, place)

    worker = start_worker(msgspec.structs.replace(settings, data_dir=place), clock)
    try:
        assert len(await worker.sealer.seal_due(everything=True)) == 2
    finally:
        await worker.close()


async def test_retired_lines_in_a_backup_are_forgotten_in_time(filled, backup, place):
    """Their files were not copied, so none is missing."""
    await asyncio.to_thread(restore, filled, backup, place)
    worker = start_worker(
        msgspec.structs.replace(filled.services.settings, data_dir=place), filled.clock
    )
    filled.clock.advance(days=1)
    try:
        assert await worker.garbage_collector.unlink_retired() == 3
        assert await worker.garbage_collector.unlink_retired() == 0
    finally:
        await worker.close()
    async with serving(filled, place):
        pass


async def test_rows_written_after_a_restore_get_new_numbers(filled, backup, place):
    await asyncio.to_thread(restore, filled, backup, place)
    async with serving(filled, place) as app:
        here = app.extensions[EXTENSION]
        last = await here.store.last_seq()
        async with here.store.write() as work:
            await append(work.session, filled.world.acme.id, [sample_row()], now=work.now)
        held = await here.store.snapshot(filled.world.acme.id)

    assert last == await filled.services.store.last_seq()
    assert max(segment.max_seq for segment in held.segments) <= last
    assert max(batch.first_seq for batch in held.batches) == last + 1


async def test_a_database_outside_the_data_dir_is_backed_up_but_not_put_back_there(
    filled, backup, place, tmp_path
):
    """Two places cannot be changed in one step."""
    outside = f"sqlite+aiosqlite:///{tmp_path / 'elsewhere.db'}"
    assert "move countersign.db" in await refused(
        DATABASE_ELSEWHERE, filled, backup, place, database_url=outside
    )

    inside = f"sqlite+aiosqlite:///{place / 'other.db'}"
    await asyncio.to_thread(restore, filled, backup, place, database_url=inside)
    assert (place / "other.db").exists()
    assert not (place / DATABASE).exists()


@pytest.fixture
async def incomplete(filled, target):
    """A backup of `filled` without its segment of 2 March that has most rows."""
    async with filled.services.store.read() as session:
        segments = await list_live_segments(session)
    lost = max(segments, key=lambda segment: segment.rows)
    lost.path(filled.services.settings.audit_dir).unlink()
    await take(filled.services, target)
    return target, lost


async def test_a_day_without_its_segment_is_a_fault_and_never_an_empty_page(
    filled, incomplete, place
):
    backup, lost = incomplete
    restored = await asyncio.to_thread(restore, filled, backup, place)
    day = {"since": f"{lost.day}", "until": f"{lost.day}"}
    other_day = {"since": f"{lost.day + timedelta(days=1)}"}

    assert [one.rows for one in restored.manifest.missing_segments] == [lost.rows]
    settings = msgspec.structs.replace(filled.services.settings, data_dir=place)
    app = create_app(settings, filled.clock)
    here, client = app.extensions[EXTENSION], app.test_client()
    report = await Check(here.store, here.lake, None, lambda done, total: None).run()
    assert [(one.kind, one.segment) for one in report.findings] == [
        (FaultKind.MISSING_FILE, lost.segment_id)
    ]
    path = "/api/v1/admin/orgs/acme/audit"
    for query in (day, {"package": "left-pad"}, day | {"order": "asc"}):
        for asked in (query, query | {"format": "csv"}):
            page = f"{path}/export" if "format" in asked else path
            answer = await client.get(page, headers=filled.world.admin, query_string=asked)
            assert answer.status_code == 503, (page, asked)
    answer = await client.get(path, headers=filled.world.admin, query_string=other_day)
    assert answer.status_code == 200
    assert len((await answer.get_json())["entries"]) >= 5
    await here.close()


async def test_a_segment_that_is_put_back_makes_it_whole(filled, backup, place):
    before = await entries(filled)
    name = next(file.path for file in read_manifest(backup).files if "audit/" in file.path)
    (filled.services.settings.data_dir / name).unlink()
    later = backup.with_name("later")
    await take(filled.services, later)

    await asyncio.to_thread(restore, filled, later, place)
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(backup / name, place / name)

    async with serving(filled, place) as app:
        assert await entries_of(app.test_client(), filled) == before


async def test_a_whole_backup_says_nothing_of_missing_segments(filled, target):
    await take(filled.services, target)
    assert "missing" not in msgspec.json.decode((target / NAME).read_bytes())

    async with filled.services.store.read() as session:
        live = {segment.segment_id for segment in await list_live_segments(session)}
    for path in filled.services.settings.audit_dir.rglob("*.parquet"):
        path.unlink()
    lacking = await take(filled.services, target.with_name("lacking"))
    assert {Path(missing.path).stem for missing in lacking.missing_segments} == live


async def test_a_backup_of_the_first_version_comes_back(filled, place, tmp_path):
    with tarfile.open(STORED) as stored:
        stored.extractall(tmp_path / "first", filter="data")
    backup = tmp_path / "first" / "backup"

    restored = await asyncio.to_thread(restore, filled, backup, place)

    assert (restored.manifest.format, restored.manifest.missing_segments) == (1, ())
    settings = msgspec.structs.replace(filled.services.settings, data_dir=place)
    await prepare(settings)
    here = create_app(settings, filled.clock).extensions[EXTENSION]
    report = await Check(here.store, here.lake, None, lambda done, total: None).run()
    assert (report.findings, report.rows) == ([], restored.manifest.rows)
    await here.close()


@pytest.mark.parametrize("is_accepted", [False, True])
async def test_an_older_backup_gives_no_log_a_second_history(filled, target, tmp_path, is_accepted):
    """Rows were signed after it: what is restored is another log, or signs nothing."""
    checkpointer = filled.services.checkpointer
    await checkpointer.take_in()
    await take(filled.services, target)
    await filled.accept([sample_row(filled.clock())])
    await checkpointer.take_in()
    signed = {(each.generation, each.size): each.root for each in await checkpoints(filled)}
    elsewhere = tmp_path / "restored"
    await asyncio.to_thread(restore, filled, target, elsewhere)

    async with serving(filled, elsewhere) as app:
        here = app.extensions[EXTENSION]
        if is_accepted:
            await resume(here.store, BY_OPERATOR, (), is_rollback_accepted=True)
        async with here.store.write() as work:
            row = sample_row(filled.clock(), version="another")
            await append(work.session, filled.world.acme.id, [row], now=work.now)
        assert (await here.checkpointer.take_in() > 0) is is_accepted
        async with here.store.read() as session:
            tree = await session.get_one(EvidenceTree, filled.world.acme.id)
            stored = await session.scalars(select(EvidenceCheckpoint))
            again = {
                (each.generation, each.size): each.root
                for each in stored
                if each.tenant_id == filled.world.acme.id
            }
    assert tree.suspended == (None if is_accepted else RESTORED)
    assert (tree.generation > 1) is is_accepted
    assert all(signed.get(place, root) == root for place, root in again.items())


async def test_streams_are_paused_after_a_restore(filled, target, tmp_path):
    """The rows that follow get ids again that receivers may have seen."""
    body = {"name": "SIEM", "kind": "webhook", "url": "https://127.0.0.1/rows"}
    path = "/api/v1/admin/orgs/acme/streams"
    await filled.world.client.post(path, headers=filled.world.admin, json=body)
    await take(filled.services, target)
    elsewhere = tmp_path / "restored"
    await asyncio.to_thread(restore, filled, target, elsewhere)
    async with serving(filled, elsewhere) as app:
        answer = await app.test_client().get(path, headers=filled.world.admin)
        (stream,) = (await answer.get_json())["streams"]
    assert stream["state"] == "paused"
    assert "restored" in stream["answer"]
