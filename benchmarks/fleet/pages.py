"""Pages of the audit log over HTTP: on PostgreSQL, with segments on S3, and beside a writer."""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from analytics.storage.segment_metadata import Segment
from benchmarks.client import Client, Times
from benchmarks.fleet.sizes import Size
from benchmarks.fleet.worlds import World, postgres_world, sqlite_world
from benchmarks.lake import DAYS, FIRST_DAY, RARE_PACKAGE
from benchmarks.served import SLUG
from benchmarks.server import ADMIN, ServerClient
from tests.seaweedfs import SeaweedFS

API: Final = f"/api/v1/admin/orgs/{SLUG}/audit"
PAGES: Final = {
    "newest page": {"limit": "50"},
    "rare package": {"limit": "50", "package": RARE_PACKAGE},
    "page of a month ago": {
        "limit": "50",
        "until": str(FIRST_DAY + timedelta(days=DAYS - 30)),
    },
}
"""The kinds of page that are asked for, and their queries."""

WINDOWS: Final = (1, 7, 90)
"""Days that a query on an empty cache is about."""

Figures = dict[str, dict[str, float]]


def target(query: Mapping[str, str]) -> str:
    """The path and query of a page."""
    return f"{API}?{urlencode(query)}"


def window(days: int) -> dict[str, str]:
    """A query for rare rows of the last `days`, which has to look into every file of them."""
    since = FIRST_DAY + timedelta(days=DAYS - days)
    return {"limit": "50", "package": RARE_PACKAGE, "since": str(since)}


def of_databases(segments: Sequence[Segment], root: Path, size: Size) -> Figures:
    """The newest page on both databases, with segments in a folder."""
    with sqlite_world() as one, postgres_world() as other:
        worlds = {"SQLite": one, "PostgreSQL": other}
        for world in worlds.values():
            world.fill(segments, root)
        with one.nodes() as (sqlite,), other.nodes() as (postgres,):
            clients = {"SQLite": sqlite, "PostgreSQL": postgres}
            times = interleaved(clients, target(PAGES["newest page"]), size.rounds)
    return {
        f"newest page {label}, ms": {name: each.percentile(at) for name, each in times.items()}
        for label, at in (("p50", 50), ("p99", 99))
    }


def of_stores(
    segments: Sequence[Segment], root: Path, objects: SeaweedFS, size: Size
) -> tuple[Figures, Figures]:
    """Pages with segments in a folder and on S3: warm, and with nothing in any cache."""
    with sqlite_world() as one, sqlite_world(objects) as other:
        worlds = {"folder": one, "S3": other}
        for world in worlds.values():
            world.fill(segments, root)
        with one.nodes() as (folder,), other.nodes() as (s3,):
            clients = {"folder": folder, "S3": s3}
            warm = {
                f"{name}, ms": {
                    store: each.percentile(50)
                    for store, each in interleaved(clients, target(query), size.rounds).items()
                }
                for name, query in PAGES.items()
            }
        cold = {
            f"{days} days, ms": {
                store: min(_cold_ms(world, days) for _ in range(size.cold_rounds))
                for store, world in worlds.items()
            }
            for days in WINDOWS
        }
    return warm, cold


def _cold_ms(world: World, days: int) -> float:
    """The first page of a new process whose cache is empty."""
    if world.objects is not None:
        _empty(world.settings().audit_dir)
    with world.nodes() as (node,), connected(node) as client:
        assert client.get(f"{API}?limit=1&until={FIRST_DAY}").status == 200  # code is loaded
        began_at = time.perf_counter()
        answer = client.get(target(window(days)))
        took_ms = (time.perf_counter() - began_at) * 1000
        assert answer.status == 200, answer.body
        return took_ms


def _empty(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()


def interleaved(clients: Mapping[str, ServerClient], path: str, rounds: int) -> dict[str, Times]:
    """The times of `path` at each server, which are asked in turn."""
    times: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(10):
        for client in clients.values():
            assert client.get(path).status_code == 200
    opened = {name: Client(port_of(client), ADMIN) for name, client in clients.items()}
    for _ in range(rounds):
        for name, client in opened.items():
            began_at = time.perf_counter()
            answer = client.get(path)
            times[name].append((time.perf_counter() - began_at) * 1000)
            assert answer.status == 200
    return {name: Times(tuple(sorted(each))) for name, each in times.items()}


def port_of(client: ServerClient) -> int:
    """The port of a server."""
    return urlsplit(str(client.base_url)).port or 0


@contextmanager
def connected(client: ServerClient) -> Iterator[Client]:
    """A cheap connection to a server."""
    with Client(port_of(client), ADMIN) as connection:
        yield connection


def beside_a_writer(
    segments: Sequence[Segment], root: Path, objects: SeaweedFS, size: Size
) -> Figures:
    """Processor time of a page at 1 and at 3 nodes, while another one writes."""
    figures: dict[str, float] = {}
    with postgres_world(objects=objects) as world:
        world.fill(segments, root)
        with world.nodes(4) as (writer, *readers):
            for count in (1, 3):
                with _writing(writer):
                    figures[f"{count} nodes" if count > 1 else "1 node"] = _processor_ms(
                        readers[:count], size.rounds
                    )
            figures["1 node, nothing written"] = _processor_ms(readers[:1], size.rounds)
    return {"processor time of a newest page, ms": figures}


def _processor_ms(nodes: Sequence[ServerClient], rounds: int) -> float:
    path = target(PAGES["newest page"])
    clients = [Client(port_of(node), ADMIN) for node in nodes]
    for client in clients * 3:
        client.get(path)
    before = sum(processor_s(node.process_id) for node in nodes)
    for _, client in zip(range(rounds), cycle(clients), strict=False):
        assert client.get(path).status == 200
    return (sum(processor_s(node.process_id) for node in nodes) - before) / rounds * 1000


def processor_s(process_id: int) -> float:
    """The processor time of a process and its threads so far."""
    stat = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _writing(node: ServerClient) -> Iterator[None]:
    """Rows are sent to `node`, one after the other, as long as the block lasts."""
    ends = threading.Event()
    body = json.dumps([{"event": "install_allowed", "packageName": "p", "version": "1"}]).encode()

    def send() -> None:
        with Client(port_of(node), ADMIN) as client:
            while not ends.is_set():
                assert client.ask("POST", f"{API}/events", body, "application/json").status == 200

    writer = threading.Thread(target=send)
    writer.start()
    try:
        yield
    finally:
        ends.set()
        writer.join()
