"""What the service sends out."""

import asyncio

import httpx2
import pytest

from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.core.clock import utc_now
from service.core.http_client import outgoing_client
from tests.polling import until
from tests.service.packages.proxy.registry import Asked, running_registry

TICKS = 20
"""Passes of the event loop between two cancellations; what they meet comes after some of them."""


async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(600)


async def test_no_connection_is_lost_with_a_request_that_is_cancelled():
    limits = httpx2.Limits(max_connections=1)
    async with running_registry() as registry, outgoing_client(limits=limits) as client:
        registry.does("/silent", silent)
        registry.says("/well", b"here")
        for ticks in range(TICKS):
            asked = len(registry.asked)
            first = asyncio.create_task(client.get(f"{registry.url}/silent"))
            await until(lambda asked=asked: len(registry.asked) > asked)
            second = asyncio.create_task(client.get(f"{registry.url}/well"))
            await asyncio.sleep(0.01)
            first.cancel()
            for _ in range(ticks):
                await asyncio.sleep(0)
            second.cancel()
            await asyncio.gather(first, second, return_exceptions=True)

            assert (await client.get(f"{registry.url}/well", timeout=5)).content == b"here"


async def test_a_process_in_the_background_asks_nothing_of_the_network(settings):
    """So it loads no certificates, and nothing of what a connection takes."""
    services = build_services(await prepare(settings), utc_now, is_serving=False)

    for client in (services.http, services.upstream_http):
        with pytest.raises(NotImplementedError):
            await client.get("http://127.0.0.1/")
    await services.close()
