"""Connections that look open and are not: the server's hang-up has not arrived."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from socket import (
    IPPROTO_TCP,
    SO_KEEPALIVE,
    SOL_SOCKET,
    TCP_KEEPCNT,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_USER_TIMEOUT,
)
from typing import Any, TypeAlias

import pytest
from sqlalchemy import make_url

from service.core.errors import StoreUnavailable
from service.store.postgres.connection import Connector
from service.store.postgres.connection_url import driver_options
from service.store.store import Store
from tests.budgets import only_full
from tests.half_open import HalfOpenForwarder, half_open
from tests.postgres import PostgresServer
from tests.service.store.postgres.conftest import open_store
from tests.service.store.postgres.test_outages import WAIT_S, WORK, read, write, write_at_once

Work: TypeAlias = Callable[[Store], Awaitable[Any]]

CONNECTIONS_MAX = 8
"""The most of one kind that a node has."""


@pytest.fixture
def forwarder(own_postgres: PostgresServer) -> Iterator[HalfOpenForwarder]:
    """A forwarder to the server."""
    port = make_url(own_postgres.url("")).port
    assert port is not None
    with half_open(port) as opened:
        yield opened


@pytest.fixture
async def node(own_postgres: PostgresServer, forwarder: HalfOpenForwarder) -> AsyncIterator[Store]:
    """A node with open connections of every kind, through the forwarder."""
    url = make_url(own_postgres.url(own_postgres.create_database())).set(port=forwarder.port)
    opened = open_store(url.render_as_string(hide_password=False), wait_s=WAIT_S)
    await asyncio.gather(*(work(opened) for work in WORK * 3))
    yield opened
    await opened.close()


async def use_all_connections(node: Store, kinds: Sequence[Work] = WORK) -> int:
    """How many requests are told that the database is gone, of some that use all connections.

    Any other error is raised.
    """
    works = [work(node) for work in kinds for _ in range(CONNECTIONS_MAX)]
    results = await asyncio.gather(*works, return_exceptions=True)
    faults = [result for result in results if isinstance(result, BaseException)]
    for fault in faults:
        if not isinstance(fault, StoreUnavailable):
            raise fault
    return len(faults)


@pytest.mark.parametrize("work", [pytest.param(read, marks=only_full), write, write_at_once])
async def test_a_connection_that_was_said_to_end_is_an_outage(
    node: Store, own_postgres: PostgresServer, forwarder: HalfOpenForwarder, work: Work
):
    with own_postgres.connect() as program:
        program.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'countersign'"
        )
    await asyncio.to_thread(forwarder.wait_for_hang_ups)
    await asyncio.sleep(0.1)  # what was passed on is read

    assert await use_all_connections(node, [work]) > 0
    assert await use_all_connections(node, [work]) == 0


@pytest.mark.parametrize("work", [read, write, write_at_once])
@only_full
async def test_connections_that_are_lost_without_a_word_are_replaced(
    node: Store, forwarder: HalfOpenForwarder, work: Work
):
    forwarder.lose_connections()
    for _ in range(3):
        await asyncio.wait_for(use_all_connections(node, [work]), WAIT_S * 4)

    assert await use_all_connections(node, [work]) == 0


async def test_both_sides_notice_that_the_others_machine_is_gone(own_postgres: PostgresServer):
    """A machine that is gone closes no connection."""
    url = make_url(own_postgres.url(own_postgres.create_database()))
    connection = await Connector(driver_options(url), wait_s=9.0).open()
    ours = connection._transport.get_extra_info("socket")
    names = ("idle", "interval", "count")
    theirs = [await connection.fetchval(f"SHOW tcp_keepalives_{name}") for name in names]

    assert ours.getsockopt(SOL_SOCKET, SO_KEEPALIVE)
    options = (TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT)
    assert [ours.getsockopt(IPPROTO_TCP, option) for option in options] == [9, 3, 3]
    assert ours.getsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT) == 9_000
    assert theirs == ["9", "3", "3"]
    assert await connection.fetchval("SHOW tcp_user_timeout") == "9000"
    await connection.close()
