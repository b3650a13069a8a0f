"""Stores over one PostgreSQL database, as nodes of a fleet have them."""

from collections.abc import AsyncIterator, Iterator

import pytest

from service.core.clock import Clock, utc_now
from service.store.engine_factory import create_engines
from service.store.postgres.engine import PostgresEngines
from service.store.store import Store
from tests.postgres import PostgresServer

WAIT_S = 5.0


def open_engines(url: str, wait_s: float = WAIT_S) -> PostgresEngines:
    engines = create_engines(url, wait_s)
    assert isinstance(engines, PostgresEngines)
    return engines


def open_store(url: str, *, clock: Clock = utc_now, wait_s: float = WAIT_S) -> Store:
    """A store of a node of its own."""
    return Store(open_engines(url, wait_s), clock)


@pytest.fixture(scope="session")
def _server_to_stop() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def own_postgres(_server_to_stop: PostgresServer) -> Iterator[PostgresServer]:
    """A running server to stop and start; in these tests one for all, since it takes a second."""
    _server_to_stop.start()
    yield _server_to_stop
    _server_to_stop.resume()


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    opened = open_store(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[Store]:
    opened = open_store(postgres_url)
    yield opened
    await opened.close()
