"""An issuer as a process of its own on loopback: `python -m tests.issuers.server`.

Prints its URL, and ends when its standard input does. What tests tell it comes as POST requests;
`tests.issuers.fixtures` knows how to say it.
"""

import gzip
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from service.core.clock import utc_now
from tests.issuers.issuer import Issuer, as_json

DISCOVERY, KEYS, MOVED = "/.well-known/openid-configuration", "/.well-known/jwks", "/moved/jwks"
DRIP_EVERY_S = 0.2
DRIPS = 60
"""So that a patient client gets all of it, after twelve seconds."""


class Outage(StrEnum):
    """What can be wrong with an issuer's server. All but `DOWN` and `SLOW` are of its keys only."""

    NONE = "none"
    DOWN = "down"
    SLOW = "slow"
    OVERSIZED = "oversized"
    MOVED_AWAY = "moved_away"
    MOVED_HERE = "moved_here"
    EMPTY = "empty"
    NOT_JSON = "not_json"
    UNKNOWN_KTY = "unknown_kty"
    PACKED = "packed"


class IssuerServer(ThreadingHTTPServer):
    """Serves one issuer's discovery and keys, and does with it what it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = Issuer(url=f"http://127.0.0.1:{self.server_port}")
        self.outage = Outage.NONE
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()

    def sign(self, order: dict[str, Any]) -> str:
        """A token with the changes in `order`: what is in `without_…` is taken out."""
        at = order.get("now")
        self.issuer.now = utc_now() if at is None else datetime.fromisoformat(at)
        header = order["header"] | dict.fromkeys(order["without_header"], ...)
        claims = order["claims"] | dict.fromkeys(order["without_claims"], ...)
        return self.issuer.sign(header=header, **claims)

    def rotate(self, order: dict[str, Any]) -> None:
        self.issuer.rotate(order["name"])

    def publish(self, order: dict[str, Any]) -> None:
        self.issuer.jwks = order["jwks"]

    def break_down(self, order: dict[str, Any]) -> None:
        self.outage = Outage(order["outage"])

    def count(self, _: dict[str, Any]) -> dict[str, int]:
        """How often each path was asked for."""
        return dict(self.requests)


class _Handler(BaseHTTPRequestHandler):
    server: IssuerServer

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.requests[self.path] += 1
            issuer, outage = self.server.issuer, self.server.outage
            jwks = as_json(issuer.jwks)
        configuration = {"issuer": issuer.url, "jwks_uri": issuer.url + KEYS}
        with suppress(ConnectionError):  # a client that has had enough goes away
            if outage is Outage.DOWN:
                self._answer(b"", status=503)
            elif outage is Outage.SLOW:
                self._drip(jwks)
            elif self.path == DISCOVERY:
                self._answer(as_json(configuration))
            elif self.path in {KEYS, MOVED}:
                self._answer_keys(outage, jwks)
            else:
                self._answer(b"", status=404)

    def _answer_keys(self, outage: Outage, jwks: bytes) -> None:
        unknown = {"kty": "QUANTUM", "kid": "tomorrow", "use": "sig"}
        match outage:
            case Outage.OVERSIZED:
                self._answer(jwks + b" " * 200_000)
            case Outage.MOVED_AWAY:  # the same server, by another name: it would answer
                self._answer(
                    b"", status=302, location=f"http://localhost:{self.server.server_port}{MOVED}"
                )
            case Outage.MOVED_HERE if self.path == KEYS:
                self._answer(b"", status=307, location=MOVED)
            case Outage.EMPTY:
                self._answer(as_json({"keys": []}))
            case Outage.NOT_JSON:
                self._answer(b"<html>down for maintenance</html>")
            case Outage.UNKNOWN_KTY:
                self._answer(as_json({"keys": [unknown, *json.loads(jwks)["keys"]]}))
            case Outage.PACKED:
                self._answer(gzip.compress(jwks), content_encoding="gzip")
            case _:
                self._answer(jwks)

    def _answer(self, body: bytes, *, status: int = 200, **headers: str) -> None:
        self._begin(status, **headers)
        self.wfile.write(body)

    def _begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _drip(self, body: bytes) -> None:
        """Byte by byte, each soon enough for a client that waits for one byte at a time."""
        self._begin(200)
        for byte in body[:DRIPS]:
            self.wfile.write(bytes([byte]))
            time.sleep(DRIP_EVERY_S)
        self.wfile.write(body[DRIPS:])

    def do_POST(self) -> None:
        server = self.server
        orders: dict[str, Callable[[dict[str, Any]], object]] = {
            "/sign": server.sign,
            "/rotate": server.rotate,
            "/publish": server.publish,
            "/outage": server.break_down,
            "/requests": server.count,
        }
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            answer = orders[urlsplit(self.path).path](order)
        self._answer(as_json(answer))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        """Say nothing: the test that fails says what it missed."""


def main() -> None:
    """Serve until standard input ends: also when the test that started this was killed."""
    server = IssuerServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.issuer.url, flush=True)  # noqa: T201 - what the parent waits for
    sys.stdin.read()


if __name__ == "__main__":
    main()
