"""Pages sent in parts: what is ready is sent before slower parts are loaded."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Final, Generic, TypeVar

from markupsafe import Markup
from quart import Response, stream_template

FLUSH: Final = Markup("<!-- more follows -->")
"""At `{{ flush }}` in a template, everything before it is sent."""


_Value = TypeVar("_Value", covariant=True)


class Later(Generic[_Value]):
    """A part of a page that is loaded when the template awaits it, with the filter `loaded`."""

    def __init__(self, load: Callable[[], Awaitable[_Value]]) -> None:
        self._load = load

    def __await__(self) -> Generator[Any, None, _Value]:
        """The value; to be awaited once."""
        return self._load().__await__()


def loaded(later: Later[_Value]) -> Awaitable[_Value]:
    """The template filter: Jinja awaits what a filter returns."""
    return later


async def streamed(template: str, status: int = 200, **context: Any) -> Response:  # noqa: ANN401
    """The page of `template`, whose awaited values may be slow after a `{{ flush }}`."""
    pieces = await stream_template(template, flush=FLUSH, **context)
    return Response(_joined(pieces), status=status, content_type="text/html; charset=utf-8")


async def _joined(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """`pieces` joined up to each flush: Jinja yields thousands, each a write to the network."""
    waiting: list[str] = []
    async for piece in pieces:
        if piece == FLUSH:  # only templates can produce this: values are escaped
            yield "".join(waiting)
            waiting.clear()
        else:
            waiting.append(piece)
    yield "".join(waiting)
