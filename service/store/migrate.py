"""Migrates a database to the current schema."""

from functools import cache
from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
)
from sqlalchemy.ext.asyncio import AsyncSession

from service.core.errors import Conflict
from service.core.settings import REPOSITORY
from service.store.engines import Engines
from service.store.faults import store_faults
from service.store.journal import SEQ
from service.store.postgres.columns import set_up_columns
from service.store.store import Store
from service.store.tables import Base, Counter

COPYING: Final = "copying "
"""Before a version: a copy of this database is about to be in use, see `database_copy`."""
MOVED: Final = "moved "
"""Before a version: all rows were copied to another database, which is used instead."""

VERSION_TABLE: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Alembic's own: one row with the last migration applied."""

FIRST: Final = "0023"
"""The oldest schema that is migrated: older ones were never released."""
LAST_WITH_ALL_STEPS: Final = "513ddf63"
"""The last commit that migrates a database of an older schema to FIRST."""

_SCRIPTS: Final = REPOSITORY / "service" / "store" / "migrations"
_VERSIONS: Final = _SCRIPTS / "versions"


OLDER_DATABASE: Final = Conflict.of(
    "the database is not of this version yet: run `countersign init`"
)


NEWER_DATABASE: Final = Conflict.of(
    "the database was written by a newer version of Countersign: update this one"
)


UNRELEASED_DATABASE: Final = Conflict.of(
    "schema {value} is from before the first release: run `countersign init`, or `restore` of"
    f" a backup, with commit {LAST_WITH_ALL_STEPS} first"
)
"""The database is of one of the schemas before the first release, whose steps are gone."""


UNFINISHED_COPY: Final = Conflict.of(
    "the copy of this database was not finished: run `countersign migrate` again"
)


MOVED_DATABASE: Final = Conflict.of(
    "the database was copied to another one by `countersign migrate`: set"
    " COUNTERSIGN_DATABASE_URL to that one"
)
"""The rows are in another database now; to change both would tear them apart."""


async def migrate(engines: Engines) -> None:
    """Apply all missing migrations.

    Runs in one write transaction: of two processes that start at once, the second waits and then
    finds the schema up to date. Raises NEWER_DATABASE, UNFINISHED_COPY, MOVED_DATABASE,
    StoreUnavailable.
    """
    with store_faults():
        async with engines.migration() as connection:
            await connection.run_sync(upgrade)


async def check_schema(store: Store) -> None:
    """Raise OLDER_DATABASE or NEWER_DATABASE unless the schema is current.

    Also raises UNRELEASED_DATABASE, UNFINISHED_COPY, MOVED_DATABASE.
    """
    async with store.read() as session:
        if not await (await session.connection()).run_sync(_is_current):
            raise OLDER_DATABASE


async def schema_version_of(session: AsyncSession) -> str:
    """The last migration applied to the database of `session`; "" if none was."""
    return await (await session.connection()).run_sync(current_version) or ""


def check_version(version: str) -> None:
    """Raise NEWER_DATABASE or UNRELEASED_DATABASE unless this code contains migration `version`."""
    if version in {"", *_versions()}:
        return
    if version.isdecimal() and version < FIRST:
        raise UNRELEASED_DATABASE(value=version)
    raise NEWER_DATABASE


def upgrade(connection: Connection) -> None:
    """Apply all missing migrations in the transaction of `connection`; raises as `migrate`."""
    if not _is_current(connection):
        if current_version(connection) is None:
            _create_tables(connection)
        else:
            _run_migrations(connection)
        if connection.dialect.name == "postgresql":
            set_up_columns(connection, Base.metadata)


def _create_tables(connection: Connection) -> None:
    """All tables as they are declared, which is what all migrations make of an older database."""
    Base.metadata.create_all(connection, checkfirst=False)
    VERSION_TABLE.create(connection)
    connection.execute(insert(Counter).values(name=SEQ, value=0))
    connection.execute(insert(VERSION_TABLE).values(version_num=latest_version()))


def _run_migrations(connection: Connection) -> None:
    # Imported here: they take 10 MB, which only a process with an older database needs.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _is_current(connection: Connection) -> bool:
    """False if migrations are missing. Raises as `check_schema`, except OLDER_DATABASE."""
    version = current_version(connection)
    if version is not None and version.startswith(COPYING):
        raise UNFINISHED_COPY
    if version is not None and version.startswith(MOVED):
        raise MOVED_DATABASE
    check_version(version or "")
    return version == latest_version()


def latest_version() -> str:
    """The last migration of this version of the code."""
    return _versions()[-1]


def current_version(connection: Connection) -> str | None:
    """The last migration applied, possibly marked by COPYING or MOVED; None for an empty one."""
    if not inspect(connection).has_table(VERSION_TABLE.name):
        return None
    return connection.scalar(select(VERSION_TABLE.c.version_num))


@cache
def _versions() -> tuple[str, ...]:
    """All migrations, oldest first: the name of each file begins with its version."""
    return tuple(sorted(file.name.partition("_")[0] for file in _VERSIONS.glob("[0-9]*_*.py")))
