import asyncio
import socket
from contextlib import closing

import pytest
import uvloop
from quart import Quart

from service.app.hypercorn_server import ServerConfig, serve

ANSWER_S = 0.05


def app_that_takes_time() -> Quart:
    app = Quart(__name__)

    @app.get("/")
    async def answer() -> str:
        await asyncio.sleep(ANSWER_S)
        return "whole"

    return app


async def serve_and_stop(app: Quart, turns: int, client: socket.socket) -> None:
    """Stop so many turns of the event loop after `client` has sent a request."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    config = ServerConfig()
    config.bind = [f"fd://{listener.detach()}"]
    config.send_timeout_s = 30.0

    async def stop() -> None:
        client.connect(address)
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        for _ in range(turns):
            await asyncio.sleep(0)

    async with asyncio.timeout(10):
        await serve(app, config, stop, grace_s=10.0)


@pytest.mark.parametrize("turns", range(10))
def test_a_connection_that_is_accepted_as_the_server_stops_has_its_grace(turns: int):
    """Its request is answered whole; one that was not accepted yet is reset, which clients retry.

    Otherwise it is cut, or holds up the end for as long as its client does not read.
    """
    with closing(socket.socket()) as client:
        uvloop.run(serve_and_stop(app_that_takes_time(), turns, client))
        try:
            answer = client.recv(65_536)
        except ConnectionResetError:
            assert turns < 5, "an event loop accepts within a few turns"
        else:
            assert answer.endswith(b"whole")
