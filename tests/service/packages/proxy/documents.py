"""A document cache whose registry is on loopback, and whose documents are JSON objects."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2

from analytics.cache.lru import ByteCache
from service.audit.lake import Lake
from service.audit.worker_process import WorkerProcess
from service.core.origins import parse_registry
from service.core.settings import Settings
from service.packages.proxy.answers import RegistryDocument, UpstreamLimits
from service.packages.proxy.document_cache import Ages, Codec, DocumentCache
from service.packages.proxy.document_files import DocumentFiles
from service.packages.proxy.documents import DocumentInvalid
from service.packages.proxy.upstream import Upstream
from tests.conftest import SettableClock
from tests.service.packages.proxy.registry import FakeRegistry

AGES = Ages(fresh=timedelta(minutes=1), stale_max=timedelta(hours=24))


def parse(document: RegistryDocument, name: str) -> dict[str, Any]:
    try:
        value = json.loads(document.body)
    except ValueError as error:
        raise DocumentInvalid("it is not JSON") from error
    if value.get("name") != name:
        raise DocumentInvalid("it is of another package")
    return value


def is_empty(value: dict[str, Any]) -> bool:
    return value.get("files") == []


def parse_and_tell(document: RegistryDocument, name: str) -> dict[str, Any]:
    """As `parse`, with the process that did it."""
    return {**parse(document, name), "parsed_by": os.getpid()}


def encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


CODEC = Codec(
    accept="application/json",
    path=lambda name: f"{name}/",
    parse=parse,
    is_empty=is_empty,
    encode=encode,
    decode=json.loads,
    release=dict.clear,
)


@dataclass
class SettableTimer:
    """A steady clock that a test sets."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Documents:
    """A cache, its folder, its registry, and a clock."""

    cache: DocumentCache[dict[str, Any]]
    files: DocumentFiles
    folder: Path
    registry: FakeRegistry
    clock: SettableClock
    upstream: Upstream
    timer: SettableTimer

    def publishes(self, name: str, etag: str = '"1"', **members: Any) -> None:
        """Have the registry answer with a document of `name`; always whole."""
        body = json.dumps({"name": name, **members}).encode()
        self.registry.says(f"/{name}/", body, etag=etag)

    def confirms(self, name: str) -> None:
        """Have the registry say that what we know is still right."""
        self.registry.says(f"/{name}/", status=304)

    def fails(self, name: str) -> None:
        """Have the registry be out of order."""
        self.registry.says(f"/{name}/", status=503)

    def paths(self) -> list[Path]:
        """The stored documents."""
        return list(self.folder.glob("kept/*/*"))


@asynccontextmanager
async def open_documents(
    folder: Path,
    registry: FakeRegistry,
    http: httpx2.AsyncClient,
    clock: SettableClock,
    *,
    memory_bytes: int = 2**20,
    decoded_bytes: int = 2**20,
    bytes_max: int = 2**30,
    free_bytes_min: int = 0,
    limits: UpstreamLimits | None = None,
    processes: int = 0,
    timer: SettableTimer | None = None,
    **options: Any,
) -> AsyncIterator[Documents]:
    lake = Lake(Settings(data_dir=folder / "data"))
    files = DocumentFiles(folder / "docs", bytes_max, lake, free_bytes_min=free_bytes_min)
    timer = timer or SettableTimer()
    upstream = Upstream(http, parse_registry(registry.url), limits, timer=timer)
    worker = WorkerProcess(lake, processes)
    cache = DocumentCache(
        upstream,
        CODEC,
        files,
        ByteCache(memory_bytes),
        ByteCache(decoded_bytes),
        worker,
        clock,
        AGES,
        **options,
    )
    try:
        yield Documents(cache, files, folder / "docs", registry, clock, upstream, timer)
    finally:
        await cache.close()
        worker.close()
        lake.close()
