"""Requests, and the bodies of their answers, take the event loop in fair turns."""

import re
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

from quart import Request, Response
from quart.typing import ResponseTypes
from quart.wrappers.response import IterableBody

from service.core.header_names import ADMIN_TOKEN_HEADER, API_KEY_HEADER
from service.core.loop_turns import CURRENT, LoopTurns, RequestTurns, Stepwise

_CREDENTIALS: Final = frozenset(
    name.lower().encode()
    for name in ("authorization", "cookie", ADMIN_TOKEN_HEADER, API_KEY_HEADER)
)
_ORGANISATION: Final = re.compile(r"/(?:orgs|proxy)/([^/]+)")


async def in_turns(
    turns: LoopTurns,
    address: str | None,
    answer: Awaitable[ResponseTypes],
    credentials: int | None = None,
) -> ResponseTypes:
    """The answer to a request from `address`. A body that is made while it is sent takes turns."""
    request = RequestTurns(turns, address, credentials)
    CURRENT.set(request)
    try:
        response = await Stepwise(turns, request, answer)
    except BaseException:
        request.end()
        raise
    if isinstance(response, Response) and isinstance(response.response, IterableBody):
        response.response = IterableBody(_Pieces(turns, request, response.response))
    else:
        request.end()
    return response


def credentials_of(request: Request) -> int | None:
    """A hash of the credentials and of the organisation in the path; None without credentials.

    The admin token is that of all organisations.
    """
    # As the server has them: to ask `request.headers` for one that is missing takes 4 µs.
    lines = tuple(line for line in request.scope["headers"] if line[0] in _CREDENTIALS)
    if not lines:
        return None
    slug = _ORGANISATION.search(request.path)
    return hash((lines, slug and slug[1]))


class _Pieces(AsyncIterator[Any]):
    """The pieces of `body`, each made in turns."""

    def __init__(self, turns: LoopTurns, request: RequestTurns, body: IterableBody) -> None:
        self._turns = turns
        self._request = request
        self._body = body
        self._pieces = aiter(body)

    def __anext__(self) -> Awaitable[Any]:
        """The next piece."""
        return Stepwise(self._turns, self._request, anext(self._pieces))

    async def aclose(self) -> None:
        """Called by Quart at the end, or when the client is gone."""
        try:
            async with self._body:
                pass  # closes what makes the pieces
        finally:
            self._request.end()
