"""Real receivers of rows, and the streams that lead to them."""

from tests.service.audit.streams.conftest import streams

__all__ = ["streams"]
