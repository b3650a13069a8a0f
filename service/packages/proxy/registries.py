"""The package registries behind the proxy, each with its documents and files."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from hashlib import sha256
from importlib.util import find_spec
from operator import not_
from typing import Any, Final, Generic, TypeVar

import httpx2
import msgspec

from analytics.cache.lru import ByteCache
from analytics.model.ecosystems import Ecosystem
from service.audit.lake import Lake
from service.audit.worker_process import WorkerProcess
from service.core.clock import Clock
from service.core.metrics import Metrics
from service.core.origins import Registry, WebOrigin
from service.core.settings import Settings
from service.packages.ecosystem import EcosystemFacts, Release
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.proxy.admission import AdmissionLimits, AdmissionQueue, RequestRates
from service.packages.proxy.answers import RegistryDocument
from service.packages.proxy.artifacts import Artifacts
from service.packages.proxy.disk_cache import FREE_BYTES_MIN
from service.packages.proxy.document_cache import (
    HEAVY_BYTES,
    Ages,
    Compare,
    DocumentCache,
    no_comparison,
)
from service.packages.proxy.document_files import DocumentFiles
from service.packages.proxy.documents import Codec, decode_untrusted
from service.packages.proxy.file_cache import FileCache
from service.packages.proxy.origins import Origins
from service.packages.proxy.registries_file import FirstPartyRegistry
from service.packages.proxy.upstream import AdmittedFile, Upstream
from service.packages.refusals import UpstreamFailed, UpstreamMissing

_KEY_CHARS: Final = 23
PUBLISHER_S: Final = 5.0
"""How long a file waits for who published it."""
_PUBLISHER_CHARS: Final = 300
_IS_VERIFYING: Final = find_spec("pypi_attestations") is not None

_Value = TypeVar("_Value")
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class PackageRegistry(Generic[_Value]):
    """One registry. `origins` are where its files may come from, by the key in our URLs.

    `artifacts_url` is what its files are remembered under, see `service.packages.proxy.artifacts`.
    `orgs` are the slugs of the organisations that may use it, None for a public one.
    """

    upstream: Upstream
    documents: DocumentCache[_Value]
    publishers: DocumentCache[list[str]]
    origins: dict[str, WebOrigin]
    artifacts_url: str
    orgs: frozenset[str] | None

    @property
    def identity(self) -> str:
        """What its documents and files are cached under, see `Registry.identity`."""
        return self.upstream.registry.identity

    async def publisher(self, attestation: str | None, org: str) -> Sequence[str] | None:
        """Who published a file, by its attestations at this URL: "" if unclear, None without.

        Behind that is of which files that is proved, see `EcosystemFacts.subjects`.
        """
        try:
            async with asyncio.timeout(PUBLISHER_S):
                url, cache = attestation or "", self.publishers
                document = await cache.copy(url) or await cache.get(url, org)
                return await cache.read(document, list[str])
        except (UpstreamMissing, UpstreamFailed, TimeoutError):
            return None

    async def admit(self, origin: str, path: str, org: str) -> AdmittedFile:
        """The file at `path` on the origin with this key, once the organisation may request it."""
        return await self.upstream.admit_file(f"{self.origins[origin]}{path}", org)


@dataclass(frozen=True, slots=True)
class Registries(Generic[_Value]):
    """The registries of one ecosystem; `public` is None if none is configured."""

    public: PackageRegistry[_Value] | None
    own: Mapping[str, PackageRegistry[_Value]]

    def own_of(self, slug: str, name: str) -> PackageRegistry[_Value] | None:
        """The registry called `name` if it serves the organisation."""
        # Not for all: its packages and credentials are those of the listed organisations.
        own = self.own.get(name)
        return own if own is not None and slug in (own.orgs or ()) else None

    def all(self) -> Iterator[PackageRegistry[_Value]]:
        """All registries, public and own."""
        if self.public is not None:
            yield self.public
        yield from self.own.values()


DOCUMENTS_PART: Final = 16
"""Documents have this part of the limit on disk: 640 MiB of 10 GiB, a thousand very large ones."""

DOCUMENT_MEMORY_BYTES: Final = 32 * 2**20
"""Compressed documents in memory, of all registries of a process."""

DECODED_MEMORY_BYTES: Final = 12 * 2**20
"""Decoded documents, for installs under way: each requests page, metadata and file in turn."""


@dataclass(frozen=True, slots=True)
class PackageCaches:
    """Everything that the proxy caches from its registries."""

    files: FileCache
    documents: DocumentFiles
    memory: ByteCache
    decoded: ByteCache

    async def sweep(self) -> None:
        """Remove what processes that died left behind, and what is over the limits.

        Call it at the start and periodically: other processes fill the same folders.
        """
        await self.files.sweep()
        await self.documents.sweep()

    async def close(self) -> None:
        """End all downloads."""
        await self.files.close()


def open_caches(
    settings: Settings, lake: Lake, observe: Callable[[str], None] = lambda _: None
) -> PackageCaches:
    """The caches in the data dir of `settings`; nothing is read or created until they are used.

    `observe` is called for each use of the files, see FileCache.
    """
    root, bytes_max = settings.package_cache_dir, settings.proxy_cache_bytes_max
    for_documents = bytes_max // DOCUMENTS_PART
    return PackageCaches(
        files=FileCache(root / "files", bytes_max - for_documents, observe=observe),
        documents=DocumentFiles(
            root / "documents", for_documents, lake, free_bytes_min=FREE_BYTES_MIN
        ),
        memory=ByteCache(DOCUMENT_MEMORY_BYTES),
        decoded=ByteCache(DECODED_MEMORY_BYTES),
    )


@dataclass(frozen=True)
class RegistryParts:
    """The objects that all registries of a process share."""

    settings: Settings
    http: httpx2.AsyncClient
    caches: PackageCaches
    worker: WorkerProcess
    clock: Clock
    metrics: Metrics
    artifacts: Artifacts

    @cached_property
    def ages(self) -> Ages:
        """How old documents may be."""
        fresh_s, stale_s = self.settings.proxy_index_max_age_s, self.settings.proxy_stale_max_s
        return Ages(timedelta(seconds=fresh_s), timedelta(seconds=stale_s))

    @cached_property
    def admission(self) -> AdmissionQueue:
        """Where requests to registries wait for their turn."""
        limits = AdmissionLimits(self.settings.proxy_connections_max)
        return AdmissionQueue(limits, observe=self.metrics.proxy_requests)

    @cached_property
    def rates(self) -> RequestRates:
        """How many requests to registries each organisation may cause."""
        return RequestRates(self.settings.proxy_requests_per_s, refused=self.metrics.proxy_refused)


def open_registries(
    facts: EcosystemFacts[_Value],
    public: Registry | None,
    own: Mapping[str, FirstPartyRegistry],
    parts: RegistryParts,
) -> Registries[_Value]:
    """The registries of an ecosystem: `public`, and those among `own`."""
    return Registries(
        None if public is None else _registry(None, public, None, parts, facts),
        {
            name: _registry(name, entry.registry, entry.orgs, parts, facts)
            for name, entry in own.items()
            if entry.ecosystem is facts.ecosystem
        },
    )


def origin_keys(registry: Registry) -> dict[str, WebOrigin]:
    """The origins of the registry's files, by the key for each in our URLs.

    A key depends only on the origin: lockfiles contain it, so the order of settings must not
    matter.
    """
    origins = {registry.origin, *registry.file_origins}
    return {_origin_key(origin): origin for origin in origins}


def _origin_key(origin: WebOrigin) -> str:
    host = "".join(char if char.isalnum() and char.isascii() else "-" for char in origin.host)
    digest = sha256(str(origin).encode()).hexdigest()[:8]
    return f"{host.strip('-')[:_KEY_CHARS].strip('-') or 'host'}-{digest}"


def _registry(
    name: str | None,
    registry: Registry,
    orgs: frozenset[str] | None,
    parts: RegistryParts,
    facts: EcosystemFacts[_Value],
) -> PackageRegistry[_Value]:
    """One registry; `name` is None for the public one."""
    metrics, ecosystem = parts.metrics, facts.ecosystem

    def cache(
        codec: Codec[_Entry], compare: Compare = no_comparison, heavy_bytes: int = HEAVY_BYTES
    ) -> DocumentCache[_Entry]:
        return DocumentCache(
            upstream,
            codec,
            parts.caches.documents,
            parts.caches.memory,
            parts.caches.decoded,
            parts.worker,
            parts.clock,
            parts.ages,
            observe=partial(metrics.package_cache_used, "documents"),
            compare=compare,
            heavy_bytes=heavy_bytes,
        )

    upstream = Upstream(
        parts.http,
        registry,
        clock=parts.clock,
        observe=partial(metrics.upstream_began, ecosystem),
        admission=parts.admission,
        rates=parts.rates,
        observe_circuit=partial(metrics.circuit_changed, name or ecosystem),
    )
    keys = origin_keys(registry)
    origins = Origins({key: str(origin) for key, origin in keys.items()})
    # Two first-party registries at one URL may have accounts that see different files: no
    # organisation may get those of another, so these are remembered by the registry's name, too.
    artifacts_url = registry.url if name is None else f"{registry.url}#{name}"
    # From its own registry an organisation deletes as it likes, and others must not see the names.
    compare = no_comparison if name else partial(parts.artifacts.compare, ecosystem, artifacts_url)
    documents = cache(facts.codec(origins), compare)
    # Always in the other process, where verifying a signature holds up nothing.
    publishers = cache(publishers_codec(facts), heavy_bytes=0 if _IS_VERIFYING else HEAVY_BYTES)
    return PackageRegistry(upstream, documents, publishers, keys, artifacts_url, orgs)


def _publishers(
    document: RegistryDocument,
    _: str,
    publisher: Callable[[Any], str],
    attested: Callable[[bytes], list[str]],
) -> list[str]:
    said = decode_untrusted(msgspec.json.decode, document.body)
    try:
        return [publisher(said)[:_PUBLISHER_CHARS], *attested(document.body)]
    except Exception:  # hostile certificates have more errors than hostile JSON
        return [""]


def publishers_codec(facts: EcosystemFacts[Any]) -> Codec[list[str]]:
    """How attestations, named by their URL, are requested and stored: as who published what."""
    return Codec(
        accept="application/vnd.pypi.integrity.v1+json, application/json",
        path=str,
        parse=partial(_publishers, publisher=facts.publisher, attested=facts.attested),
        is_empty=not_,
        encode=msgspec.json.encode,
        decode=partial(msgspec.json.decode, type=list[str]),
        release=list.clear,
    )


class ListedReleases:
    """What public registries list, as far as fetched documents tell. No registry is asked."""

    def __init__(
        self, registries: Mapping[Ecosystem, Registries[Any]], artifacts: Artifacts
    ) -> None:
        self._registries = registries
        self._artifacts = artifacts

    async def withdrawn(self, ecosystem: Ecosystem, name: str) -> Mapping[str, datetime]:
        """The versions of the package `name` (canonical) that were withdrawn, and since when."""
        registry = self._registries[ecosystem].public
        url = "" if registry is None else registry.artifacts_url
        files = (await self._artifacts.of_package(ecosystem, url, name)).values()
        gone = {file.version: file.withdrawn_at for file in files if file.withdrawn_at}
        listed = {each.version for each in await self.of(ecosystem, name)} if gone else ()
        return {version: at for version, at in gone.items() if version not in listed}

    async def of(self, ecosystem: Ecosystem, name: str) -> Sequence[Release]:
        """All files of the package `name` (canonical); none if its document was not fetched."""
        registry = self._registries[ecosystem].public
        document = None if registry is None else await registry.documents.copy(name)
        if registry is None or document is None:
            return ()
        # A list: the document may be emptied once it is read.
        releases = ECOSYSTEMS[ecosystem].releases
        return await registry.documents.read(document, lambda value: list(releases(value)))
