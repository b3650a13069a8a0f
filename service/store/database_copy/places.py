"""What is copied, and where to."""

from pathlib import Path
from typing import Final

from sqlalchemy import URL, exc, make_url

from service.core.errors import Invalid
from service.core.settings import Settings
from service.store.database_copy.refusals import (
    NO_SOURCE,
    NOT_FROM_SQLITE,
    NOT_TO_POSTGRESQL,
    SOURCE_IN_USE,
)
from service.store.engine_factory import create_engines
from service.store.engines import Engines
from service.store.sqlite.files import file_of, is_in_use, url_of

_DRIVERS: Final = {"postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
"""The drivers of URLs that name none."""


def open_source(settings: Settings, url: str | None) -> tuple[Path, Engines]:
    """The file of the SQLite database at `url`, None for the data dir's, and connections to it.

    Raises NOT_FROM_SQLITE, NO_SOURCE, SOURCE_IN_USE.
    """
    if url is None:
        file = settings.data_dir / "countersign.db"
    elif _parsed(url, NOT_FROM_SQLITE).get_backend_name() != "sqlite" or not make_url(url).database:
        raise NOT_FROM_SQLITE
    else:
        file = file_of(url)
    if not file.is_file():
        raise NO_SOURCE(value=str(file))
    if is_in_use(file):
        raise SOURCE_IN_USE(value=str(file))
    return file, create_engines(url_of(file), settings.database_wait_s)


def open_target(settings: Settings, url: str | None) -> Engines:
    """Connections to the PostgreSQL database at `url`, None for that of the settings.

    Raises NOT_TO_POSTGRESQL, InvalidSetting.
    """
    given = _parsed(url or settings.database_url, NOT_TO_POSTGRESQL)
    if given.drivername in _DRIVERS:
        given = given.set(drivername=_DRIVERS[given.drivername])
    if given.get_backend_name() != "postgresql":
        raise NOT_TO_POSTGRESQL
    return create_engines(given, settings.database_wait_s)


def shown_url(engines: Engines) -> str:
    """The URL without its password."""
    return engines.writer.url.render_as_string(hide_password=True)


def _parsed(url: str, refusal: type[Invalid]) -> URL:
    try:
        return make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise refusal from error
