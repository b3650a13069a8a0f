"""Every row is on the other side, or none, whatever interrupts the copy; one side is served."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, make_url, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.app.bootstrap import prepare
from service.cli.progress import row_progress
from service.core.settings import Settings
from service.store import database_copy as copying
from service.store.engine_factory import create_engines
from service.store.migrate import MOVED, MOVED_DATABASE, UNFINISHED_COPY, latest_version
from service.store.sqlite.files import file_of
from service.store.tables import Base, Counter, Lease, Organisation, Team
from tests.budgets import only_full
from tests.conftest import START, SettableClock
from tests.crashes import kill_process
from tests.databases import copy_data_dir
from tests.postgres import EMPTY, MIGRATED, PostgresServer
from tests.processes.command_line import Ran
from tests.processes.homes import Home
from tests.service.store.copied_database import KEPT, LARGE, MANY, ROWS, filled_source

pytestmark = pytest.mark.slow

TABLES = len(Base.metadata.tables)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A data dir on SQLite, whichever database other tests run on."""
    return Home(tmp_path, {"database_url": ""})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data dir whose SQLite database has rows in every table, to be copied."""
    model = Home(tmp_path_factory.mktemp("filled"), {"database_url": ""})
    asyncio.run(filled_source(on_sqlite(model)))
    return model.data_dir


@pytest.fixture
def source(home: Home, filled: Path) -> str:
    """The URL of a SQLite database with rows in every table."""
    copy_data_dir(filled, home.data_dir)
    return f"sqlite+aiosqlite:///{file_of(on_sqlite(home).database)}"


@pytest.fixture
def target(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    with postgres.database(EMPTY) as url:
        yield url


def on_sqlite(home: Home) -> Settings:
    """Settings of the service before it moves."""
    return Settings(data_dir=home.data_dir, secret_key="k" * 32, admin_token="t")


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """The database as another program opens it."""
    plain = make_url(url)
    driver = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}[plain.get_backend_name()]
    engine = create_engine(plain.set(drivername=driver))
    try:
        yield engine
    finally:
        engine.dispose()


def everything(url: str) -> dict[str, list[str]]:
    """Every row of every table but the leases, as text."""
    with opened(url) as engine, closing(engine.connect()) as connection:
        return {
            table.name: sorted(str(tuple(row)) for row in connection.execute(select(table)))
            for table in Base.metadata.sorted_tables
            if table.name != Lease.__tablename__
        }


def execute(url: str, statement: str) -> None:
    with opened(url) as engine, engine.begin() as connection:
        connection.execute(text(statement))


def migrated(home: Home, source: str, target: str, *more: str) -> Ran:
    return home.order("migrate", "--from", source, "--to", target, *more)


async def test_every_row_of_every_table_is_copied_and_compared(home, source, target):
    before = everything(source)

    said = home.ask("migrate", "--from", source, "--to", target)

    assert everything(target) == everything(source) == before
    rows = {table["table"]: table["rows"] for table in said["tables"]}
    assert rows.keys() == {table.name for table in Base.metadata.sorted_tables}
    filled = {name: MANY if name in LARGE else ROWS for name in rows.keys() - KEPT}
    assert {name: rows[name] for name in filled} == filled
    assert said["rows"] == sum(rows.values())
    assert said["segments"] == str(home.data_dir / "audit")
    assert str(make_url(target).password) not in str(said)


@only_full
async def test_only_the_new_database_is_served_afterwards(home, source, target):
    """Two databases over one data dir would remove each other's segments."""
    assert migrated(home, source, target).code == 0

    moved = home.order("org", "list").refusal
    assert "set COUNTERSIGN_DATABASE_URL" in moved
    assert migrated(home, source, target).refusal == moved
    assert len(home.listed("org", "list", database_url=target)) == ROWS
    with pytest.raises(MOVED_DATABASE):
        await prepare(on_sqlite(home), SettableClock())


@only_full
async def test_the_counters_go_on_and_the_leases_end(home, source, target):
    execute(source, "UPDATE counters SET value = 4711")

    assert migrated(home, source, target).code == 0

    with opened(target) as engine, closing(engine.connect()) as connection:
        assert set(connection.scalars(select(Counter.value))) == {4711}
        assert set(connection.scalars(select(Lease.holder))) == {""}
        sequences = text("SELECT count(*) FROM information_schema.sequences")
        assert connection.scalar(sequences) == 0


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(1, marks=only_full, id="its first rows"),
        pytest.param(12, id="in the middle"),
        pytest.param(TABLES + 6, marks=only_full, id="while it compares"),
    ],
)
async def test_a_killed_copy_leaves_nothing_and_is_begun_again(home, source, target, shown):
    before = everything(source)
    urls = f"{source} {target}".encode()

    await kill_process(on_sqlite(home), START, "copy-database", "shown", shown + 1, content=urls)

    with opened(target) as engine:
        assert inspect(engine).get_table_names() == []
    assert len(home.listed("org", "list")) == ROWS

    assert migrated(home, source, target).code == 0
    assert everything(target) == before


def killed_before_the_targets_commit(patch: pytest.MonkeyPatch) -> None:
    commit = AsyncConnection.commit

    async def commit_and_die(connection: AsyncConnection) -> None:
        await commit(connection)
        raise OSError("killed")

    patch.setattr(AsyncConnection, "commit", commit_and_die)


def killed_after_the_targets_commit(patch: pytest.MonkeyPatch) -> None:
    set_version = copying._set_version

    def die(connection: Connection, version: str) -> None:
        if version.startswith(MOVED):
            raise OSError("killed")
        set_version(connection, version)

    patch.setattr(copying, "_set_version", die)


@pytest.mark.parametrize(
    ("kill", "is_filled"),
    [(killed_before_the_targets_commit, False), (killed_after_the_targets_commit, True)],
)
async def test_at_most_one_side_is_served_whenever_the_copy_ends(
    home, source, target, monkeypatch, kill, is_filled
):
    """The same command ends it."""
    before = everything(source)
    with monkeypatch.context() as patch:
        kill(patch)
        assert migrated(home, source, target).refusal == "killed"

    assert "run `countersign migrate` again" in home.order("org", "list").refusal
    with pytest.raises(UNFINISHED_COPY):
        await prepare(on_sqlite(home), SettableClock())
    assert (home.order("org", "list", database_url=target).code == 0) is is_filled

    assert migrated(home, source, target).code == 0
    assert everything(target) == everything(source) == before
    assert "set COUNTERSIGN_DATABASE_URL" in home.order("org", "list").refusal


async def test_rows_that_differ_are_found_and_nothing_is_copied(home, source, target, monkeypatch):
    copy_tables = copying._copy_tables

    async def disturbed(reading: AsyncConnection, writing: AsyncConnection, show: Any) -> None:
        await copy_tables(reading, writing, show)
        await writing.execute(text("UPDATE organisations SET slug = slug || '2'"))

    monkeypatch.setattr(copying, "_copy_tables", disturbed)
    refused = migrated(home, source, target)

    assert f"organisations is not equal on both sides ({ROWS} rows and {ROWS})" in refused.refusal
    assert len(home.listed("org", "list")) == ROWS
    with opened(target) as engine:
        assert inspect(engine).get_table_names() == []


@only_full
async def test_a_target_with_data_is_refused(home, source, postgres):
    with postgres.database(MIGRATED) as url:
        execute(url, "DROP TABLE leases")
        assert "such as advisories: name an empty database" in migrated(home, source, url).refusal
    with postgres.database(EMPTY) as url:
        execute(url, "CREATE TABLE theirs (a int)")
        assert "such as theirs: name an empty database" in migrated(home, source, url).refusal
        assert "theirs" in migrated(home, source, url, "--json").refusal
    assert len(home.listed("org", "list")) == ROWS


@only_full
async def test_a_source_in_use_is_refused(home, source, target):
    """The service would go on writing to it."""
    with opened(source) as engine, closing(engine.connect()) as connection:
        connection.execute(select(Organisation.id)).all()
        assert "is in use: stop the service first" in migrated(home, source, target).refusal
    assert everything(source)["organisations"]


async def test_a_service_started_just_before_the_copy_is_seen(source, target):
    """After the first look, which says so in one line: it would go on writing to the source."""
    engines = create_engines(source, 1.0), create_engines(target, 1.0)
    try:
        with opened(source) as engine, closing(engine.connect()) as connection:
            connection.execute(select(Organisation.id)).all()
            with pytest.raises(copying.SOURCE_IN_USE):
                await copying.copy_all(*engines, row_progress)
    finally:
        for opened_engines in engines:
            await opened_engines.dispose()


@only_full
async def test_no_service_starts_during_the_copy(home, source, target):
    seen: dict[str, int] = {}

    @contextmanager
    def looking_in(what: str) -> Iterator[copying.ReportRows]:
        def look(done: int, total: int) -> None:
            if what not in seen:
                seen[what] = home.order("org", "list", database_wait_s="0.1").code

        yield look

    engines = create_engines(source, 1.0), create_engines(target, 10.0)
    try:
        await copying.copy_all(*engines, looking_in)
    finally:
        for opened_engines in engines:
            await opened_engines.dispose()

    assert seen == {"Copying": 3, "Comparing": 3}


@only_full
async def test_a_source_of_an_older_version_is_refused(home, source, target):
    execute(source, "UPDATE alembic_version SET version_num = '0001'")
    assert "from before the first release" in migrated(home, source, target).refusal
    execute(source, "UPDATE alembic_version SET version_num = '9999'")
    assert "a newer version" in migrated(home, source, target).refusal
    assert latest_version() not in {"0001", "9999"}


@only_full
async def test_text_with_a_null_character_is_copied_as_it_is(home, source, target):
    """PostgreSQL cannot store it; nothing else must become of it, nor anything else it."""
    execute(source, "UPDATE teams SET name = 'a' || char(0) || char(64976) WHERE id LIKE 'a0%'")
    execute(source, "UPDATE teams SET name = 'a' || char(64976) || '0' WHERE id NOT LIKE 'a0%'")

    assert migrated(home, source, target).code == 0

    with opened(target) as engine, closing(engine.connect()) as connection:
        assert set(connection.scalars(select(Team.name))) == {"a\0\ufdd0", "a\ufdd00"}
    assert everything(target) == everything(source)


@only_full
async def test_a_value_that_postgresql_does_not_accept_is_named(home, source, target):
    """SQLite does not limit the length of a text."""
    execute(source, "UPDATE bindings SET repository_id = '123456789012345678901234567890123'")

    refused = migrated(home, source, target)

    assert refused.code == 1
    assert "does not accept a row of table bindings: " in refused.refusal


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("postgresql://there/one", "postgresql://there/two", "--from must name a SQLite"),
        ("no url", "postgresql://there/two", "--from must name a SQLite"),
        ("sqlite://", "postgresql://there/two", "--from must name a SQLite"),
        ("sqlite:////nowhere/at.db", "postgresql://there/two", "no database in /nowhere/at.db"),
        (None, "sqlite:////elsewhere.db", "must name an empty PostgreSQL database"),
        (None, "postgresql://u:secret@there:port/x", "must name an empty PostgreSQL database"),
        (None, None, "must name an empty PostgreSQL database"),
    ],
)
def test_a_wrong_url_is_refused_in_one_line(home, source, target, reason):
    home.data_dir.mkdir()
    (home.data_dir / "countersign.db").touch()
    given = [("--from", source), ("--to", target)]

    refused = home.order("migrate", *(part for pair in given if pair[1] for part in pair))

    assert reason in refused.refusal
    assert "secret" not in refused.refusal


@only_full
async def test_a_target_that_does_not_answer_is_one_line(home, source, postgres):
    right = make_url(postgres.url("nothing"))
    wrong = right.set(password="wrong").render_as_string(hide_password=False)
    gone = right.set(port=1).render_as_string(hide_password=False)
    for url in (right.render_as_string(hide_password=False), wrong, gone):
        refused = migrated(home, source, url)
        assert refused.code in {1, 3}
        assert refused.refusal
