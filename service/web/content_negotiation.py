"""Which content coding a client wants (RFC 9110, 12.5.3)."""

from typing import Final

from quart import Request

from analytics.export.compression import Compression

_PREFERRED: Final = (Compression.ZSTD, Compression.GZIP)
"""The cheaper one first, for clients to whom both are equally welcome."""


def content_coding(request: Request) -> Compression | None:
    """The coding this client likes best; None for none.

    Bytes go as they are unless a coding is asked for by name or by `*`, and not less wanted than
    `identity`, should that be named. What is not understood asks for nothing.
    """
    qualities = {name.lower(): quality for name, quality in request.accept_encodings}
    others = qualities.get("*", 0.0)
    best = max(_PREFERRED, key=lambda coding: qualities.get(coding, others))
    wanted = qualities.get(best, others)
    return best if wanted > 0 and wanted >= qualities.get("identity", 0.0) else None
