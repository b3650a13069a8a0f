"""Pages sent in parts: what is ready is sent before slower parts are loaded."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from markupsafe import Markup
from quart import Response, stream_with_context

from service.core.threads import in_thread
from service.web.templates import template_pieces

_FLUSH: Final = Markup("<!-- more follows -->")

_Value = TypeVar("_Value", covariant=True)


class Later(Generic[_Value]):
    """A part of a page whose `value` is there after `{{ flush(part) }}` in its template."""

    value: _Value

    def __init__(self, load: Callable[[], Awaitable[_Value]]) -> None:
        self._load = load

    async def load(self) -> _Value:
        """The value, loaded now."""
        self.value = await self._load()
        return self.value


async def streamed(template: str, status: int = 200, **context: Any) -> Response:  # noqa: ANN401
    """The page of `template`, sent up to each `{{ flush(part) }}` before that part is loaded."""
    waiting: deque[Later[Any]] = deque()

    def flush(part: Later[Any]) -> Markup:
        waiting.append(part)
        return _FLUSH

    pieces = await template_pieces(template, flush=flush, **context)

    @stream_with_context
    async def parts() -> AsyncIterator[str]:
        is_last = False
        while not is_last:
            part, is_last = await in_thread(_next_part, pieces)
            yield part
            if not is_last:
                await waiting.popleft().load()

    return Response(parts(), status=status, content_type="text/html; charset=utf-8")


def _next_part(pieces: Iterator[str]) -> tuple[str, bool]:
    """The page up to the next flush, and whether it ends here.

    Joined: Jinja yields thousands of pieces, each of which would be a write to the network.
    """
    part: list[str] = []
    for piece in pieces:
        if piece == _FLUSH:  # only `flush` can produce this: values are escaped
            return "".join(part), False
        part.append(piece)
    return "".join(part), True
