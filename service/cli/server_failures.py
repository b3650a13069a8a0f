"""Failures of a server, or of the network to it, as refusals that say what to do."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

import httpx2

from service.core.errors import Refusal

_QUOTED_MAX: Final = 100
_UNEXPECTED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading a member that is missing, or of another type, raises."""


class ServerRefusal(Refusal):
    """The server refused a request, or none answered. `status` is None without an answer."""

    status = 502

    def __init__(
        self, text: str, *, status: int | None = None, is_temporary: bool = False, code: str = ""
    ) -> None:
        super().__init__(text)
        self.answered_status = status
        self.is_temporary = is_temporary
        self.code = code
        """The text of the server's own error."""


class NetworkFailures:
    """Turns failures of the network in its block into refusals that say what to do."""

    def __init__(self, server: str) -> None:
        self._server = server

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
            raise self._refusal(error) from error

    def _refusal(self, error: httpx2.HTTPError | httpx2.InvalidURL) -> ServerRefusal:
        tls = _tls_fault(error)
        if tls is not None:
            return ServerRefusal(
                f"{self._server}: TLS failed: {tls}; check the address, or name your own CA's"
                " certificates in SSL_CERT_FILE"
            )
        if isinstance(error, httpx2.TimeoutException):
            text = f"{self._server} does not answer in time: check the address and your network"
        elif isinstance(error, httpx2.ConnectError):
            text = f"cannot reach {self._server} ({error}): check the address and your network"
        else:
            text = f"the connection to {self._server} broke off ({error}): try again"
        return ServerRefusal(text, is_temporary=True)


@contextmanager
def expected_answers(server: str) -> Iterator[None]:
    """Raise ServerRefusal if the block fails on an answer of a form that it does not know."""
    try:
        yield
    except _UNEXPECTED as error:
        from analytics.model.filters import InvalidQuery

        if isinstance(error, InvalidQuery):
            raise
        raise ServerRefusal(
            f"{server} answers in a form that this program does not know"
            f" ({type(error).__name__}: {str(error)[:_QUOTED_MAX]}): it may be of another version"
        ) from error


def _tls_fault(error: BaseException | None) -> str | None:
    """What TLS did not accept, or None if `error` has another cause."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return str(getattr(error, "verify_message", "") or error.reason or error)
        error = error.__cause__ or error.__context__
    return None
