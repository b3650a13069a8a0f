"""A minimal alternative over PostgreSQL: the page with only Quart and asyncpg.

It compares the admin token, reads two filters and a limit, and sends the JSON of our page; and it
takes rows in with the checks of form that ours makes. It has no organisations, retention, cursors
to continue from, idempotency keys, logs, metrics or limits of requests. It is served like ours: one
process of hypercorn on uvloop.
"""

import hmac
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]
import msgspec
import uvloop
from hypercorn.asyncio import serve
from hypercorn.config import Config
from quart import Quart, Response, abort, request

from analytics.model.schema import WIRE_COLUMNS, audit_id
from benchmarks.engines import Served
from benchmarks.peer_ingest import BODY_BYTES_MAX, Sender, read_rows, store
from benchmarks.server import ADMIN_TOKEN, READY_WITHIN_S

PATH: Final = "/audit"
EVENTS: Final = f"{PATH}/events"
CONNECTIONS: Final = 16
"""As many as the benchmarks' clients: commits that wait at the same time share a sync."""

FILTERS: Final = {"decision": "decision", "package": "package_name"}
HEADER: Final = "x-service-admin-token"
JSON: Final = "application/json"
COLUMNS: Final = ", ".join(
    {"": "'org_bench00' AS tenant_id", "source_ip": "host(source_ip) AS source_ip"}.get(name, name)
    for name in WIRE_COLUMNS.values()
)


def create_peer(socket_folder: str) -> Quart:
    """The app over the cluster whose socket is in `socket_folder`."""
    app = Quart("peer")
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES_MAX
    pools: list[asyncpg.Pool] = []

    @app.before_serving
    async def connect() -> None:
        pool = await asyncpg.create_pool(
            host=socket_folder,
            user="bench",
            database="postgres",
            min_size=CONNECTIONS,
            max_size=CONNECTIONS,
            reset=_keep,
        )
        pools.append(pool)

    @app.get(PATH)
    async def page() -> Response:
        _authorize()
        limit = int(request.args.get("limit", 100))
        wanted = [name for name in FILTERS if name in request.args]
        clauses = [f"{FILTERS[name]} = ${number}" for number, name in enumerate(wanted, 1)]
        # asyncpg prepares each text once per connection, and caches it.
        rows = await pools[0].fetch(
            f"SELECT {COLUMNS} FROM rows WHERE {' AND '.join(['tenant = 0', *clauses])}"
            f" ORDER BY created_at DESC, seq DESC LIMIT ${len(wanted) + 1}",
            *[request.args[name] for name in wanted],
            limit + 1,
        )
        return Response(_body(rows, limit), mimetype=JSON)

    @app.post(EVENTS)
    async def events() -> Response:
        _authorize()
        if request.mimetype != JSON:
            abort(415)
        sender = Sender(f"req_{uuid4().hex[:24]}", request.remote_addr or "127.0.0.1")
        try:
            rows, rejected = read_rows(await request.get_data(), sender)
        except ValueError:
            abort(400)
        await store(pools[0], rows)
        answer = {"accepted": len(rows), "rejected": rejected}
        return Response(msgspec.json.encode(answer), mimetype=JSON)

    return app


def _authorize() -> None:
    if not hmac.compare_digest(request.headers.get(HEADER, ""), ADMIN_TOKEN):
        abort(401)


async def _keep(connection: asyncpg.Connection) -> None:
    """Leave a returned connection as it is: no request changes its state."""


def _body(rows: list[asyncpg.Record], limit: int) -> bytes:
    shown = rows[:limit]
    cursor = None
    if len(rows) > limit:
        last = shown[-1]
        cursor = urlsafe_b64encode(f"{last['created_at']},{last['seq']}".encode()).decode()
    return msgspec.json.encode(
        {
            "org": "bench",
            "entries": [_entry(row) for row in shown],
            "next_cursor": cursor,
            "retention_floor": None,
        }
    )


def _entry(row: asyncpg.Record) -> dict[str, Any]:
    entry = dict(zip(WIRE_COLUMNS, row.values(), strict=True))
    entry["id"] = audit_id(entry["id"])
    entry["payload"] = msgspec.Raw(entry["payload"].encode())
    return entry


@contextmanager
def serving_peer(socket_folder: Path) -> Iterator[Served]:
    """The app in a separate process, for the duration of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.peer_app", str(socket_folder), str(port)]
    with subprocess.Popen(command) as process:
        try:
            _wait_until_ready(port)
            yield Served(port, PATH, {HEADER: ADMIN_TOKEN})
        finally:
            process.terminate()


def _wait_until_ready(port: int) -> None:
    gives_up_at = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return
        except OSError:
            if time.monotonic() > gives_up_at:
                raise
            time.sleep(0.05)


def main() -> None:
    """Serve on the port given on the command line."""
    socket_folder, port = sys.argv[1:]
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = config.errorlog = None
    uvloop.run(serve(create_peer(socket_folder), config))


if __name__ == "__main__":
    main()
