"""Durable ingest over HTTP: SQLite, and PostgreSQL with one to three nodes, on two disks."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Final

from benchmarks.client import Client
from benchmarks.engines import Send
from benchmarks.fleet.pages import API, Figures, port_of
from benchmarks.fleet.sizes import Size
from benchmarks.fleet.slow_sync import build, environment
from benchmarks.fleet.worlds import World, postgres_world, sqlite_world
from benchmarks.measure import ingest
from benchmarks.server import ADMIN, ServerClient

CLIENTS: Final = 16
BATCHES: Final = (1, 100)
"""Rows in a request."""

NODES: Final = (1, 2, 3)
DELAY_US: Final = 2_000


def of_all(size: Size) -> Figures:
    """Rows a second of each setting, with the disk as it is and with slower syncs."""
    with tempfile.TemporaryDirectory(prefix="countersign-shim-") as folder:
        Path(folder).chmod(0o755)
        library = build(Path(folder))
        figures = _of_disk("", size, None)
        return figures | _of_disk(f", sync + {DELAY_US / 1000:g} ms", size, library)


def _of_disk(label: str, size: Size, library: Path | None) -> Figures:
    found: dict[int, dict[str, float]] = {rows: {} for rows in BATCHES}
    with sqlite_world() as world:
        world.fill()
        database = world.settings().data_dir / "countersign.db"
        slow = environment(library, database, DELAY_US) if library else {}
        with world.nodes(1, slow) as nodes:
            for rows in BATCHES:
                found[rows]["SQLite"] = _rows_per_s(nodes, rows, size)
    with _postgres(library) as world:
        world.fill()
        with world.nodes(max(NODES)) as nodes:
            for count in NODES:
                name = f"PostgreSQL, {count} node{'s' if count > 1 else ''}"
                for rows in BATCHES:
                    found[rows][name] = _rows_per_s(nodes[:count], rows, size)
    return {
        f"{rows} row{'s' if rows > 1 else ''} a request{label}, rows/s": each
        for rows, each in found.items()
    }


def _postgres(library: Path | None) -> AbstractContextManager[World]:
    """Every file of the server is slow; what it syncs for a commit is its log."""
    return postgres_world(environment(library, Path("/"), DELAY_US) if library else None)


def _rows_per_s(nodes: Sequence[ServerClient], rows: int, size: Size) -> float:
    ports = cycle(port_of(node) for node in nodes)
    body = json.dumps(
        [
            {"event": "install_allowed", "packageName": f"package-{row}", "version": f"1.{row}"}
            for row in range(rows)
        ]
    ).encode()

    @contextmanager
    def opened() -> Iterator[Send]:
        with Client(next(ports), ADMIN) as client:

            def send() -> None:
                answer = client.ask("POST", f"{API}/events", body, "application/json")
                assert answer.status == 200, answer.body

            yield send

    return ingest(opened, CLIENTS, rows, size.ingest_s)["rows_per_s"]
