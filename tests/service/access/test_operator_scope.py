"""The operator in the scope: a command in this process has them there, and no request can."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded
from hypercorn.asyncio import serve
from hypercorn.config import Config

from service.access.callers import OPERATOR_SCOPE, cli_caller
from tests.conftest import World

KEYS = "/api/v1/admin/orgs/acme/api-keys"
OPERATED = "/api/v1/operator/blocklist"
NAMES = (OPERATOR_SCOPE, f"x-{OPERATOR_SCOPE}", "countersign-operator", "x-forwarded-user")
VALUES = ("system:cli", '{"actor": "system:cli"}', "1")


@pytest.mark.parametrize("path", [KEYS, OPERATED])
async def test_the_operator_in_the_scope_may_do_everything(world: World, path: str):
    scope = {OPERATOR_SCOPE: cli_caller("org_operator")}

    assert (await world.client.get(path, scope_base=scope)).status_code == 200


@pytest.mark.parametrize(
    "scope",
    [
        {OPERATOR_SCOPE: "system:cli"},
        {OPERATOR_SCOPE: b"system:cli"},
        {OPERATOR_SCOPE: {"actor": "system:cli", "actor_source": "system"}},
        {"extensions": {OPERATOR_SCOPE: {}, "operator": cli_caller("org_operator")}},
        {"state": {OPERATOR_SCOPE: cli_caller("org_operator")}},
        {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1), "root_path": ""},
    ],
)
async def test_nothing_else_in_a_scope_is_the_operator(world: World, scope: dict[str, Any]):
    for path in (KEYS, OPERATED):
        assert (await world.client.get(path, scope_base=scope)).status_code == 401


async def test_the_operator_has_no_pages(world: World):
    scope = {OPERATOR_SCOPE: cli_caller("org_operator")}

    page = await world.client.get("/admin/ui/orgs/acme/audit", scope_base=scope)

    assert page.status_code != 200


def _requests() -> list[tuple[str, list[tuple[str, str]]]]:
    """Targets and headers of requests that name the operator in every place that there is."""
    named = [(name, value) for name in NAMES for value in VALUES]
    headers = [[pair] for pair in named]
    headers += [[("cookie", f"{name}={value}")] for name, value in named]
    headers += [[("authorization", f"{kind} system:cli")] for kind in ("Bearer", "Operator")]
    proxied = [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "localhost"),
        ("x-forwarded-prefix", f"/{OPERATOR_SCOPE}"),
        ("forwarded", f"for=127.0.0.1;{OPERATOR_SCOPE}=system:cli"),
        (OPERATOR_SCOPE, "system:cli"),
    ]
    targets = [f"{KEYS}?{name}={value}" for name, value in named if value.isalnum()]
    targets += [f"{KEYS}?{OPERATOR_SCOPE}=system:cli", f"{KEYS};{OPERATOR_SCOPE}=system:cli"]
    targets += [f"/{OPERATOR_SCOPE}{KEYS}", f"http://{OPERATOR_SCOPE}{KEYS}"]
    return [
        *((KEYS, each) for each in headers),
        (KEYS, proxied),
        (OPERATED, proxied),
        *((target, []) for target in targets),
    ]


async def test_no_request_over_http_1_is_the_operators(world: World):
    async with served(world) as (port, scopes):
        for target, headers in _requests():
            assert await over_http_1(port, target, headers) in {400, 401, 404}, (target, headers)

    assert scopes
    assert not any(OPERATOR_SCOPE in scope for scope in scopes)


async def test_no_request_over_http_2_is_the_operators(world: World):
    """Nor by a pseudo-header of its own, of which a server may make what it likes."""
    pseudo = [(f":{name}", value) for name in (*NAMES, "operator", "state") for value in VALUES]
    async with served(world) as (port, scopes):
        for headers in [[], *([pair] for pair in pseudo)]:
            assert await over_http_2(port, headers) in {400, 401, None}, headers
        assert await over_http_2(port, [(OPERATOR_SCOPE, "system:cli")]) == 401

    assert any(scope["http_version"] == "2" for scope in scopes)
    assert not any(OPERATOR_SCOPE in scope for scope in scopes)


@asynccontextmanager
async def served(world: World) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
    """The app behind hypercorn as it comes: the port, and the scopes that it makes."""
    scopes: list[dict[str, Any]] = []

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        scopes.append(scope)
        await world.app(scope, receive, send)

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    port = listener.getsockname()[1]
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    ending = asyncio.Event()
    running = asyncio.create_task(serve(recorded, config, shutdown_trigger=ending.wait))  # type: ignore[arg-type]
    try:
        yield port, scopes
    finally:
        ending.set()
        await running


async def over_http_1(port: int, target: str, headers: list[tuple[str, str]]) -> int:
    """The status that a GET is answered with."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{lines}\r\n"
    writer.write(head.encode())
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


async def over_http_2(port: int, headers: list[tuple[str, str]]) -> int | None:
    """The status that a GET is answered with; None if the connection is ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = H2Connection(
        H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
    )
    client.initiate_connection()
    required = [(":method", "GET"), (":path", KEYS), (":scheme", "http"), (":authority", "a")]
    client.send_headers(1, [*required, *headers], end_stream=True)
    writer.write(client.data_to_send())
    status = None
    while received := await reader.read(65_536):
        events = client.receive_data(received)
        for event in events:
            if isinstance(event, ResponseReceived):
                status = int(dict(event.headers)[b":status"])
            if isinstance(event, DataReceived):
                client.acknowledge_received_data(event.flow_controlled_length, 1)
        if any(isinstance(event, StreamEnded) for event in events):
            break
    writer.close()
    return status
