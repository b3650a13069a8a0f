"""What a 304 may carry of the 200 that it stands for (RFC 9110, 15.4.5)."""

import asyncio
from dataclasses import dataclass
from typing import Any

from quart import Quart

REPRESENTATION = frozenset(
    {
        "content-type",
        "content-encoding",
        "content-language",
        "content-length",
        "content-range",
        "last-modified",
    }
)
"""Fields that describe content: a cache would store them over those of what it has."""

_OF_EACH_ANSWER = frozenset({"date", "x-request-id", "expires"})
_UPDATED = frozenset({"etag", "vary", "cache-control"})


@dataclass(frozen=True)
class Sent:
    """A response as the server gets it: Quart's test client adds fields that were never sent."""

    status: int
    headers: dict[str, str]
    body: bytes


async def sent(app: Quart, method: str, path: str, **headers: str) -> Sent:
    """What `app` answers; names of header fields have `_` for `-`."""
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), *lines],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "extensions": {},
    }
    messages: list[dict[str, Any]] = []
    received = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in received:
            return message
        await asyncio.Event().wait()  # the client stays connected
        raise AssertionError

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start, *rest = messages
    fields = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Sent(start["status"], fields, b"".join(message.get("body", b"") for message in rest))


def assert_is_confirmed(full: Sent, confirmed: Sent) -> None:
    """`confirmed` tells a cache to use what it has of `full`, and changes nothing of it."""
    assert full.status == 200
    assert (confirmed.status, confirmed.body) == (304, b"")
    before, after = _lasting(full), _lasting(confirmed)

    assert not REPRESENTATION & set(after), after
    assert _UPDATED & set(before) <= set(after)
    assert after == {name: before.get(name) for name in after}


def _lasting(answer: Sent) -> dict[str, str]:
    """The header fields that are the same each time."""
    return {name: text for name, text in answer.headers.items() if name not in _OF_EACH_ANSWER}
