"""The content coding that a client prefers (RFC 9110, 12.5.3)."""

from typing import Final

from quart import Request

from analytics.export.compression import Compression

_PREFERRED: Final = (Compression.ZSTD, Compression.GZIP)
"""The cheaper one first, for clients that weight both equally."""


def content_coding(request: Request) -> Compression | None:
    """The coding that this client prefers, or None to send the bytes unencoded.

    A coding is used only if the client names it or `*`, with at least the quality of `identity`
    if that is named. Anything that cannot be parsed is ignored.
    """
    qualities = {name.lower(): quality for name, quality in request.accept_encodings}
    default = qualities.get("*", 0.0)
    best = max(_PREFERRED, key=lambda coding: qualities.get(coding, default))
    quality = qualities.get(best, default)
    return best if quality > 0 and quality >= qualities.get("identity", 0.0) else None
