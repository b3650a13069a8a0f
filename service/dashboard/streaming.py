"""Pages sent in parts: what is ready is sent before slower parts are loaded."""

from collections.abc import AsyncIterator
from typing import Any, Final

from markupsafe import Markup
from quart import Response, stream_template

FLUSH: Final = Markup("<!-- more follows -->")
"""At `{{ flush }}` in a template, everything before it is sent."""


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
