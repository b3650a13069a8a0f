"""A backup of PostgreSQL: one snapshot, put back into an empty database or not at all."""

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import make_url, select

from service.app.composition import EXTENSION
from service.audit.backup import databases
from service.audit.backup.manifest import DUMP, NAME, Manifest
from service.audit.backup.refusals import (
    BACKUP_OF_POSTGRESQL,
    BACKUP_OF_SQLITE,
    DATA_DIR_IN_THE_WAY,
    DATABASE_IN_THE_WAY,
    DATABASE_IN_USE,
    BackupDamaged,
)
from service.core.errors import StoreUnavailable
from service.core.settings import Settings
from service.store.postgres import dump as dumping
from service.store.postgres.dump import PROGRAM_MISSING, ProgramFailed
from service.store.tables import Lease
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import settings_over
from tests.polling import until
from tests.postgres import EMPTY, PostgresServer
from tests.processes.homes import left_over
from tests.service.audit.backup.conftest import GRACE_S, entries, entries_of, restore, serving, take

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(tmp_path: Path, postgres: PostgresServer) -> Iterator[Settings]:
    """A service on a database of the server."""
    with postgres.database() as url:
        yield msgspec.structs.replace(
            settings_over(tmp_path, url),
            export_max_s=GRACE_S - 30,
            query_max_s=30.0,
            compact_quiet_s=1e6,
        )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The data dir to restore to."""
    return tmp_path / "elsewhere" / "data"


@pytest.fixture
def empty(postgres: PostgresServer) -> Iterator[str]:
    """The URL of the database to restore to."""
    with postgres.database(EMPTY) as url:
        yield url


def tables(server: PostgresServer, url: str) -> int:
    with server.connect(make_url(url).database or "") as connection:
        found = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchone()
    return int(found[0]) if found else -1


def connections(server: PostgresServer, url: str) -> int:
    with server.connect() as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [make_url(url).database]
        ).fetchone()
    return int(found[0]) if found else -1


async def test_what_is_put_back_is_what_was_there(filled, target, place, empty):
    before = await entries(filled)

    manifest = await take(filled.services, target)
    restored = await asyncio.to_thread(restore, filled, target, place, database_url=empty)

    assert manifest.format == 3
    assert manifest.rows == sum(map(len, before.values()))
    assert (target / DUMP).stat().st_mode & 0o777 == 0o600
    assert DUMP in {file.path for file in manifest.files}
    assert restored.manifest == manifest
    assert not (place / DUMP).exists()
    async with serving(filled, place, database_url=empty) as app:
        assert await entries_of(app.test_client(), filled) == before
        async with app.extensions[EXTENSION].store.read() as session:
            ended = datetime(1970, 1, 1, tzinfo=UTC)
            assert set(await session.scalars(select(Lease.expires_at))) == {ended}


@only_full
async def test_the_programs_find_the_same_one_of_several_hosts(filled, target, place, empty):
    """The primary has moved: the first host of the URL does not answer, the second one does."""

    def moved(url: str) -> str:
        given = make_url(url)
        hosts = ("127.0.0.1:1", f"127.0.0.1:{given.port}")
        options = {"host": hosts, "target_session_attrs": "read-write"}
        return given.set(host=None, port=None, query=options).render_as_string(hide_password=False)

    before = await entries(filled)
    settings = filled.services.settings
    async with serving(filled, settings.data_dir, database_url=moved(settings.database)) as app:
        await take(app.extensions[EXTENSION], target)
    await asyncio.to_thread(restore, filled, target, place, database_url=moved(empty))

    async with serving(filled, place, database_url=empty) as app:
        assert await entries_of(app.test_client(), filled) == before


async def test_the_dump_is_of_the_instant_that_names_the_segments(
    filled, target, place, empty, monkeypatch
):
    """Rows are accepted, sealed and merged while pg_dump begins: each row is in it once."""
    before = await entries(filled)
    real = dumping.dump

    async def meanwhile(url: str, snapshot: str, file: Path) -> None:
        await filled.accept([sample_row(filled.clock())] * 3)
        await filled.seal()
        await filled.services.compactor.compact_due(everything=True)
        await real(url, snapshot, file)

    monkeypatch.setattr(dumping, "dump", meanwhile)
    await take(filled.services, target)
    await asyncio.to_thread(restore, filled, target, place, database_url=empty)

    assert await entries(filled) != before
    async with serving(filled, place, database_url=empty) as app:
        assert await entries_of(app.test_client(), filled) == before


async def test_a_database_with_tables_is_never_changed(filled, target, place, postgres, empty):
    await take(filled.services, target)
    with postgres.connect(make_url(empty).database or "") as connection:
        connection.execute("CREATE TABLE theirs (a int)")

    with pytest.raises(DATABASE_IN_THE_WAY, match="such as theirs"):
        await asyncio.to_thread(restore, filled, target, place, database_url=empty)

    assert tables(postgres, empty) == 1
    assert not place.exists()


async def test_a_running_service_is_not_given_another_database(filled, target, place, postgres):
    await take(filled.services, target)
    url = filled.services.settings.database
    await asyncio.to_thread(postgres.replace_database, make_url(url).database or "", EMPTY)
    while not connections(postgres, url):
        with pytest.raises(StoreUnavailable):  # a connection is gone, then a table is missing
            async with filled.services.store.read() as session:
                await session.execute(select(Lease))

    with pytest.raises(DATABASE_IN_USE, match="stop the service on all nodes first"):
        await asyncio.to_thread(restore, filled, target, place)

    assert tables(postgres, url) == 0
    assert not place.exists()
    await asyncio.to_thread(restore, filled, target, place, is_forced=True)
    assert tables(postgres, url) > 0


@only_full
async def test_a_damaged_dump_is_not_put_back(filled, target, place, postgres, empty):
    """A flipped bit is found before the database is touched."""
    await take(filled.services, target)
    content = bytearray((target / DUMP).read_bytes())
    content[len(content) // 2] ^= 1
    (target / DUMP).write_bytes(content)

    with pytest.raises(BackupDamaged, match=DUMP):
        await asyncio.to_thread(restore, filled, target, place, database_url=empty)

    assert tables(postgres, empty) == 0
    assert not place.exists()


@only_full
async def test_what_pg_restore_does_not_take_leaves_the_database_empty(
    filled, target, place, postgres, empty
):
    manifest = await take(filled.services, target)
    content = (target / DUMP).read_bytes()[:-2_000]
    (target / DUMP).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    kept = [
        msgspec.structs.replace(file, size=len(content), sha256=digest)
        if file.path == DUMP
        else file
        for file in manifest.files
    ]
    forged: Manifest = msgspec.structs.replace(manifest, files=tuple(kept)).with_digest()
    (target / NAME).write_bytes(msgspec.json.encode(forged))

    with pytest.raises(ProgramFailed):
        await asyncio.to_thread(restore, filled, target, place, database_url=empty)

    assert tables(postgres, empty) == 0
    assert not place.exists()
    assert left_over(place.parent) == []


@only_full
async def test_a_backup_goes_back_to_its_own_kind_of_database(filled, target, place, empty):
    manifest = await take(filled.services, target)
    with pytest.raises(BACKUP_OF_POSTGRESQL, match="COUNTERSIGN_DATABASE_URL"):
        await asyncio.to_thread(restore, filled, target, place, database_url="")

    (target / DUMP).rename(target / "countersign.db")
    files = [
        msgspec.structs.replace(file, path="countersign.db") if file.path == DUMP else file
        for file in manifest.files
    ]
    sqlite: Manifest = msgspec.structs.replace(manifest, format=2, files=tuple(files)).with_digest()
    (target / NAME).write_bytes(msgspec.json.encode(sqlite))
    with pytest.raises(BACKUP_OF_SQLITE, match="countersign migrate"):
        await asyncio.to_thread(restore, filled, target, place, database_url=empty)
    assert not place.exists()


@only_full
async def test_an_existing_data_dir_is_moved_away_only_if_told_to(filled, target, place, empty):
    await take(filled.services, target)
    place.mkdir(parents=True)
    (place / "theirs").touch()

    with pytest.raises(DATA_DIR_IN_THE_WAY):
        await asyncio.to_thread(restore, filled, target, place, database_url=empty)
    restored = await asyncio.to_thread(
        restore, filled, target, place, is_forced=True, database_url=empty
    )

    assert restored.moved_to is not None
    assert (restored.moved_to / "theirs").exists()


async def test_a_missing_program_is_named(filled, target, place, empty, monkeypatch):
    await take(filled.services, target)
    monkeypatch.setattr(dumping, "_DEBIAN", place)
    monkeypatch.setenv("PATH", str(place))

    with pytest.raises(PROGRAM_MISSING, match="pg_dump is not on the PATH: install"):
        await take(filled.services, target.with_name("second"))
    with pytest.raises(PROGRAM_MISSING, match="pg_restore is not on the PATH"):
        await asyncio.to_thread(restore, filled, target, place, database_url=empty)
    assert left_over(target.parent) == []


async def test_a_dump_that_fails_leaves_nothing(filled, target, monkeypatch):
    real = dumping.dump

    async def wrong(url: str, snapshot: str, file: Path) -> None:
        await real(url, "00000000-00000000-1", file)

    monkeypatch.setattr(dumping, "dump", wrong)
    with pytest.raises(StoreUnavailable) as failed:
        await take(filled.services, target)

    assert "snapshot" in failed.value.reason
    assert str(make_url(filled.services.settings.database).password) not in failed.value.reason
    assert not target.exists()
    assert left_over(target.parent) == []


def waiting(server: PostgresServer) -> bool:
    """True while pg_dump waits for a lock."""
    with server.connect() as connection:
        query = (
            "SELECT 1 FROM pg_stat_activity"
            " WHERE query LIKE 'LOCK TABLE%' AND wait_event_type = 'Lock'"
        )
        return connection.execute(query).fetchone() is not None


@only_full
async def test_a_cancelled_dump_ends_with_its_caller(filled, target, postgres):
    database = make_url(filled.services.settings.database).database or ""
    with postgres.connect(database) as holder:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE teams IN ACCESS EXCLUSIVE MODE")
        taking = asyncio.create_task(take(filled.services, target))
        await until(lambda: waiting(postgres))
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        holder.execute("ROLLBACK")

    assert left_over(target.parent) == []
    assert databases.is_postgresql(filled.services.settings)
