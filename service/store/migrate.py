"""Bringing a database to this version's schema, whatever version wrote it."""

from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from service.settings import REPOSITORY
from service.store.engine import Engines
from service.store.faults import store_faults

_SCRIPTS: Final = REPOSITORY / "service" / "store" / "migrations"


async def migrate(engines: Engines) -> None:
    """Apply every migration that is missing.

    Runs in one write transaction: of two processes that start at once, the second waits for the
    first and then finds nothing to do. Raises StoreUnavailable.
    """
    with store_faults():
        async with engines.writer.begin() as connection:
            await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
