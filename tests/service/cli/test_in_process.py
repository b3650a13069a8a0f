"""Requests of a command to the app in its own process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
import pytest
from quart import Quart, Response

from service.access.callers import cli_caller
from service.cli.client import Client, org_path
from service.cli.in_process import AppTransport
from service.core.errors import Invalid, MethodNotAllowed, NotFound, OrgNotFound, StoreUnavailable
from tests.conftest import World


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with Client.of_data_dir(world.services, cli_caller("org_operator")) as client:
        yield client


async def test_a_change_is_the_operators(client: Client, world: World) -> None:
    await client.post("/api/v1/operator/orgs", {"slug": "new"})

    (row,) = [row for row in await world.audit("new") if row["event"] == "org_created"]
    assert (row["actor"], row["actor_tenant_id"]) == ("system:cli", "org_platform")
    assert row["verdict_source"] == "cli"


async def test_errors_are_those_of_the_app(client: Client, world: World) -> None:
    with pytest.raises(OrgNotFound):
        await client.get(org_path("missing", "api-keys"))
    with pytest.raises(NotFound):
        await client.get("/api/v1/nothing")
    with pytest.raises(MethodNotAllowed):
        await client.delete("/api/v1/operator/orgs")
    await world.services.store.close()
    with suppress(StoreUnavailable):
        await client.get("/api/v1/operator/orgs")


async def test_a_body_may_be_longer_than_that_of_a_stranger(client: Client) -> None:
    with pytest.raises(Invalid, match="unknown field: note"):
        await client.post("/api/v1/operator/orgs", {"slug": "new", "note": "x" * 200_000})


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_no_id_leads_to_what_is_above_it(client: Client, name: str) -> None:
    """A request about `..` would be one about the organisation."""
    with pytest.raises(NotFound, match="nothing has the id or name"):
        await client.get(org_path("acme", "oidc-bindings", name))


async def test_a_file_is_read_as_it_was_sent(client: Client) -> None:
    path = org_path("acme", "audit", "export")

    async with client.download(path, {"format": "ndjson"}) as download:
        whole = b"".join([chunk async for chunk in download.chunks])

    export_id = str(download.scope.export_id)
    receipt = await client.get(org_path("acme", "exports", export_id, "receipt"))
    assert whole.count(b"\n") == download.scope.rows > 0
    assert (receipt["export_id"], receipt["bytes"]) == (export_id, len(whole))


async def test_a_body_waits_for_its_reader_and_ends_when_they_leave() -> None:
    """An export has more rows than fit into memory."""
    app, made, ended = Quart("endless"), [], asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        try:
            while True:
                made.append(len(made))
                yield b"piece"
        finally:
            ended.set()

    @app.get("/")
    async def endless() -> Response:
        response = Response(pieces())
        response.timeout = None
        return response

    transport = AppTransport(app, cli_caller("org_platform"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        async with http.stream("GET", "/") as response:
            assert await anext(response.aiter_raw()) == b"piece"
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(made) <= 4
        assert ended.is_set()


async def test_two_requests_run_beside_each_other(client: Client) -> None:
    path = "/api/v1/operator/orgs"

    first, second = await asyncio.gather(client.get(path), client.get(path))

    assert first == second
