"""The package registries behind the proxy, each with its documents and files."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Final, Generic, TypeVar
from urllib.parse import quote

import httpx2

from service.audit.worker_process import WorkerProcess
from service.core.clock import Clock
from service.core.metrics import Metrics
from service.core.origins import Registry, WebOrigin
from service.core.settings import Settings
from service.packages.ecosystems import Ecosystem
from service.packages.proxy.admission import AdmissionLimits, AdmissionQueue, RequestRates
from service.packages.proxy.answers import Document
from service.packages.proxy.caches import PackageCaches
from service.packages.proxy.document_cache import Ages, Codec, DocumentCache
from service.packages.proxy.documents import DocumentInvalid
from service.packages.proxy.npm.document import (
    NpmPackage,
    decode_package,
    encode_package,
    is_empty_package,
    release_package,
)
from service.packages.proxy.npm.packument import parse_package
from service.packages.proxy.origins import Origins
from service.packages.proxy.pypi.html import parse_html
from service.packages.proxy.pypi.project import (
    PypiProject,
    decode_project,
    encode_project,
    is_empty_project,
    release_project,
)
from service.packages.proxy.pypi.simple_json import parse_json
from service.packages.proxy.registries_file import FirstPartyRegistry
from service.packages.proxy.upstream import Upstream

_KEY_CHARS: Final = 23
_PYPI_ACCEPT: Final = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_NPM_ACCEPT: Final = "application/json"

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class PackageRegistry(Generic[_Value]):
    """One registry. `origins` are where its files may come from, by the key in our URLs.

    `artifacts_url` is what its files are remembered under, see `service.packages.proxy.artifacts`.
    """

    upstream: Upstream
    documents: DocumentCache[_Value]
    origins: dict[str, WebOrigin]
    artifacts_url: str

    @property
    def identity(self) -> str:
        """What its documents and files are cached under, see `Registry.identity`."""
        return self.upstream.registry.identity

    def file_url(self, origin: str, path: str) -> str:
        """The registry's URL of the file at `path` on the origin with this key."""
        return f"{self.origins[origin]}{path}"


@dataclass(frozen=True, slots=True)
class OwnRegistry(Generic[_Value]):
    """A registry for first-party packages, and the slugs of the organisations that may use it."""

    registry: PackageRegistry[_Value]
    orgs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Registries(Generic[_Value]):
    """The registries of one ecosystem; `public` is None if none is configured."""

    public: PackageRegistry[_Value] | None
    own: Mapping[str, OwnRegistry[_Value]]

    def own_of(self, slug: str, name: str) -> PackageRegistry[_Value] | None:
        """The registry called `name` if it serves the organisation."""
        # Not for all: its packages and credentials are those of the listed organisations.
        own = self.own.get(name)
        return own.registry if own is not None and slug in own.orgs else None

    def all(self) -> Iterator[PackageRegistry[_Value]]:
        """All registries, public and own."""
        if self.public is not None:
            yield self.public
        for own in self.own.values():
            yield own.registry


@dataclass(frozen=True, slots=True)
class RegistryParts:
    """The objects that all registries of a process share."""

    http: httpx2.AsyncClient
    caches: PackageCaches
    worker: WorkerProcess
    clock: Clock
    ages: Ages
    metrics: Metrics
    admission: AdmissionQueue
    rates: RequestRates


def registry_parts(
    settings: Settings,
    http: httpx2.AsyncClient,
    caches: PackageCaches,
    worker: WorkerProcess,
    clock: Clock,
    metrics: Metrics,
) -> RegistryParts:
    """The shared parts for `settings`."""
    return RegistryParts(
        http=http,
        caches=caches,
        worker=worker,
        clock=clock,
        ages=Ages(
            timedelta(seconds=settings.proxy_index_max_age_s),
            timedelta(seconds=settings.proxy_stale_max_s),
        ),
        metrics=metrics,
        admission=AdmissionQueue(
            AdmissionLimits(settings.proxy_connections_max), observe=metrics.proxy_requests
        ),
        rates=RequestRates(settings.proxy_requests_per_s, refused=metrics.proxy_refused),
    )


def pypi_registries(
    public: Registry | None, own: Mapping[str, FirstPartyRegistry], parts: RegistryParts
) -> Registries[PypiProject]:
    """The registries with PyPI's simple repository API: `public`, and those among `own`."""

    def open_registry(name: str | None, registry: Registry) -> PackageRegistry[PypiProject]:
        return _registry(name, registry, parts, Ecosystem.PYPI, _pypi_codec)

    return _registries(public, own, Ecosystem.PYPI, open_registry)


def npm_registries(
    public: Registry | None, own: Mapping[str, FirstPartyRegistry], parts: RegistryParts
) -> Registries[NpmPackage]:
    """The registries with npm's API: `public`, and those among `own`."""

    def open_registry(name: str | None, registry: Registry) -> PackageRegistry[NpmPackage]:
        return _registry(name, registry, parts, Ecosystem.NPM, _npm_codec)

    return _registries(public, own, Ecosystem.NPM, open_registry)


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


def _registries(
    public: Registry | None,
    own: Mapping[str, FirstPartyRegistry],
    ecosystem: Ecosystem,
    open_registry: Callable[[str | None, Registry], PackageRegistry[_Value]],
) -> Registries[_Value]:
    return Registries(
        None if public is None else open_registry(None, public),
        {
            name: OwnRegistry(open_registry(name, entry.registry), entry.orgs)
            for name, entry in own.items()
            if entry.ecosystem is ecosystem
        },
    )


def _registry(
    name: str | None,
    registry: Registry,
    parts: RegistryParts,
    ecosystem: Ecosystem,
    codec: Callable[[Origins], Codec[_Value]],
) -> PackageRegistry[_Value]:
    """One registry; `name` is None for the public one."""
    metrics = parts.metrics
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
    documents = DocumentCache(
        upstream,
        codec(origins),
        parts.caches.documents,
        parts.caches.memory,
        parts.caches.decoded,
        parts.worker,
        parts.clock,
        parts.ages,
        observe=partial(metrics.package_cache_used, "documents"),
    )
    # Two first-party registries at one URL may have accounts that see different files: no
    # organisation may get those of another, so these are remembered by the registry's name, too.
    artifacts_url = registry.url if name is None else f"{registry.url}#{name}"
    return PackageRegistry(upstream, documents, keys, artifacts_url)


def _pypi_codec(origins: Origins) -> Codec[PypiProject]:
    return Codec(
        _PYPI_ACCEPT,
        _project_path,
        partial(_parse_project, origins=origins),
        is_empty_project,
        DocumentInvalid,
        encode_project,
        decode_project,
        release_project,
    )


def _npm_codec(origins: Origins) -> Codec[NpmPackage]:
    return Codec(
        _NPM_ACCEPT,
        _package_path,
        partial(_parse_package, origins=origins),
        is_empty_package,
        DocumentInvalid,
        encode_package,
        decode_package,
        release_package,
    )


def _parse_project(document: Document, name: str, origins: Origins) -> PypiProject:
    media_type = document.content_type.partition(";")[0].strip().lower()
    if media_type.endswith("json"):
        return parse_json(document.body, name, document.url, origins)
    if media_type and "html" not in media_type:
        raise DocumentInvalid("page is neither JSON nor HTML by its content type")
    return parse_html(document.body, name, document.url, origins)


def _parse_package(document: Document, name: str, origins: Origins) -> NpmPackage:
    return parse_package(document.body, name, origins)


def _project_path(name: str) -> str:
    return f"{name}/"


def _package_path(name: str) -> str:
    return quote(name, safe="@")
