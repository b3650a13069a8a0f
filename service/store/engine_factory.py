"""Chooses the kind of database by its URL."""

from sqlalchemy import URL, make_url

from service.core.settings import InvalidSetting, how_to_install
from service.store.engines import URL_SETTING, Engines, url_faults


def create_engines(url: str | URL, wait_s: float) -> Engines:
    """Engines for `url`; waits for a connection or a lock end after `wait_s` seconds.

    Does not connect yet. Raises InvalidSetting for a URL that SQLAlchemy cannot use.
    """
    # Imported here: only the driver of the database in use has to be installed and loaded.
    with url_faults():
        parsed = make_url(url)
        match parsed.get_backend_name():
            case "sqlite":
                from service.store.sqlite.engine import sqlite_engines

                return sqlite_engines(parsed, wait_s)
            case "postgresql":
                return _postgres_engines(parsed, wait_s)
            case other:
                raise InvalidSetting(f"{URL_SETTING}: {other} is none of sqlite, postgresql")


def _postgres_engines(url: URL, wait_s: float) -> Engines:
    if url.drivername != "postgresql+asyncpg":
        raise InvalidSetting(f"{URL_SETTING}: write postgresql+asyncpg://, not {url.drivername}://")
    try:
        from service.store.postgres.engine import postgres_engines
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"{URL_SETTING}: PostgreSQL needs the extra `postgres`: {how_to_install('postgres')}"
        ) from error
    return postgres_engines(url, wait_s)
