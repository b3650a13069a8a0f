"""The documents of one registry: kept decoded in memory and compressed on disk, and up to date.

A document is served without a question to the registry for as long as the maximum age, and
confirmed by a conditional request after that. While the registry does not answer, the last
confirmed one is served, up to a limit; then the request fails. It is never answered as if the
registry had said that there is nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.clock import Clock
from service.errors import UpstreamFailed, UpstreamMissing
from service.proxy.answers import Document, Validators
from service.proxy.document_files import DocumentFiles, StoredDocument, pack, unpack
from service.proxy.single_flight import SingleFlight
from service.proxy.squeezed import SqueezedDocument, restore, squeeze
from service.proxy.upstream import Upstream
from service.worker_process import WorkerProcess

HEAVY_BYTES: Final = 256 * 1024
"""Smaller documents are parsed in the event loop, in a few milliseconds at most."""

MISSING_FOR: Final = timedelta(seconds=10)
"""How long a package stays unknown that is published now: clients retry for longer than that."""

RETRY_AFTER: Final = timedelta(seconds=5)
"""How long after a failure the registry is not asked again: each request would wait for it."""

START_S: Final = 10.0
"""How long a large document waits for the process that parses it to start, which takes a second or
two: in a thread, its parser would hold the interpreter's lock for 20 ms at a time."""

DECODED_PER_ENCODED: Final = 4
"""Roughly the memory of a decoded document: one file is 200 bytes encoded, and 800 as objects."""

_Value = TypeVar("_Value")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Codec(Generic[_Value]):
    """What the documents of a registry are to us.

    Large documents are parsed in another process: `parse` and `encode` must be picklable.
    """

    accept: str
    """The `Accept` header of requests."""

    path: Callable[[str], str]
    """Where the document of a name is, relative to the registry and percent-encoded."""

    parse: Callable[[Document, str], _Value]
    """The value of a document that should be that of a name."""

    invalid: type[Exception]
    """What `parse` raises for documents that cannot be used; its text is for the log."""

    encode: Callable[[_Value], bytes]
    decode: Callable[[bytes], _Value]
    """May raise anything for bytes of another version of the program: they are fetched anew."""


@dataclass(frozen=True, slots=True)
class CachedDocument(Generic[_Value]):
    """A document that may be served."""

    value: _Value
    version: str
    """Another one for other contents: for etags."""

    confirmed_at: datetime
    is_stale: bool = False
    """True if the registry should have confirmed it by now, and did not answer."""


@dataclass(frozen=True, slots=True)
class _Known(Generic[_Value]):
    """What is known of a name; all at most until `until`, then the registry is asked."""

    until: datetime
    document: CachedDocument[_Value] | None = None
    validators: Validators = field(default_factory=Validators)
    bytes: int = ENTRY_BYTES
    failure: str | None = None
    """Why there is no document; None if the registry has none."""


@dataclass(slots=True)
class DocumentCounts:
    """What this process did since it started."""

    hits: int = 0
    confirmed: int = 0
    fetched: int = 0
    stale: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Ages:
    """How long a document is served: unasked, and while the registry does not answer."""

    fresh: timedelta
    stale_max: timedelta


class DocumentCache(Generic[_Value]):
    """The documents of one registry, for one process. Lives in one event loop."""

    def __init__(
        self,
        upstream: Upstream,
        codec: Codec[_Value],
        files: DocumentFiles,
        memory: ByteCache,
        worker: WorkerProcess,
        clock: Clock,
        ages: Ages,
        *,
        heavy_bytes: int = HEAVY_BYTES,
        observe: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`observe` is told the name of each count that rises, for metrics."""
        self.counts = DocumentCounts()
        self._upstream = upstream
        self._codec = codec
        self._files = files
        self._memory = memory
        self._worker = worker
        self._clock = clock
        self._ages = ages
        self._heavy_bytes = heavy_bytes
        self._observe = observe
        self._refreshes = SingleFlight[_Known[_Value]]()

    async def get(self, name: str) -> CachedDocument[_Value]:
        """The document of `name`, canonical. Raises UpstreamMissing or UpstreamFailed."""
        return self.in_memory(name) or self._document(
            await self._refreshes.run(name, partial(self._refresh, name))
        )

    def in_memory(self, name: str) -> CachedDocument[_Value] | None:
        """The document if the registry need not be asked; raises as `get`."""
        known = self._known(name)
        if known is None or not self._is_current(known):
            return None
        self._count("hits")
        return self._document(known)

    async def close(self) -> None:
        """End what is under way."""
        await self._refreshes.close()

    def _document(self, known: _Known[_Value]) -> CachedDocument[_Value]:
        if known.document is None:
            raise UpstreamMissing if known.failure is None else UpstreamFailed(known.failure)
        if known.document.is_stale:
            self._count("stale")
        return known.document

    def _count(self, name: str) -> None:
        setattr(self.counts, name, getattr(self.counts, name) + 1)
        self._observe(name)

    def _key(self, name: str) -> str:
        return f"{self._upstream.registry.identity}\n{self._codec.accept}\n{name}"

    def _known(self, name: str) -> _Known[_Value] | None:
        known: _Known[_Value] | None = self._memory.find(self._key(name))[1]
        return known

    def _keep(self, name: str, known: _Known[_Value]) -> _Known[_Value]:
        self._memory.keep(self._key(name), known, known.bytes)
        return known

    def _is_current(self, known: _Known[_Value]) -> bool:
        now = self._clock()
        confirmed_at = now if known.document is None else known.document.confirmed_at
        # A clock that was set back must not keep a document for longer.
        return confirmed_at <= now < known.until

    async def _refresh(self, name: str) -> _Known[_Value]:
        """What is known of `name` once it is current."""
        known = await self._newest(name)
        if known is not None and self._is_current(known):
            return self._keep(name, known)
        now = self._clock()
        try:
            return self._keep(name, await self._ask(name, known))
        except UpstreamMissing:
            # Said by the registry: what it withdrew must not come back in an outage.
            await self._files.remove(self._key(name))
            return self._keep(name, _Known(now + MISSING_FOR))
        except UpstreamFailed as failed:
            return self._keep(name, self._after_failure(known, failed.reason))

    async def _newest(self, name: str) -> _Known[_Value] | None:
        """What memory has, or what this or another process stored, if that is newer."""
        known = self._known(name)
        document = None if known is None else known.document
        loaded = await self._files.load(
            self._key(name),
            self._codec.decode,
            newer_than=None if document is None else document.confirmed_at,
        )
        return known if loaded is None else self._fresh(*loaded)

    async def _ask(self, name: str, known: _Known[_Value] | None) -> _Known[_Value]:
        """What the registry says now."""
        now = self._clock()
        document = None if known is None else known.document
        validators = known.validators if known is not None and document is not None else None
        answer = await self._upstream.document(
            self._codec.path(name), self._codec.accept, validators
        )
        if answer is None and known is not None and document is not None:
            self._count("confirmed")
            await self._files.confirm(self._key(name), now)
            confirmed = replace(document, confirmed_at=now, is_stale=False)
            return replace(known, document=confirmed, until=now + self._ages.fresh)
        if answer is None:
            raise UpstreamFailed("confirmed a document that was not named")
        self._count("fetched")
        content, stored = await self._compact(answer, name)
        await self._files.save(self._key(name), content, now)
        return self._fresh(stored, now)

    async def _compact(self, document: Document, name: str) -> tuple[bytes, StoredDocument[_Value]]:
        """What is stored of `document`, and its value. Raises UpstreamFailed."""
        codec = self._codec
        try:
            if len(document.body) <= self._heavy_bytes:
                content = _pack_document(codec.parse, codec.encode, document, name)
                return content, unpack(content, codec.decode)
            squeezed = await self._files.run_in_thread(partial(squeeze, document))
            content = await self._worker.compute(
                _pack_squeezed, codec.parse, codec.encode, squeezed, name, start_s=START_S
            )
            return content, await self._files.unpack(content, codec.decode)
        except codec.invalid as error:
            reason = f"a document cannot be used: {error}"
            _log.warning("upstream_failed", url=document.url, reason=reason)
            raise UpstreamFailed(reason) from error

    def _fresh(self, stored: StoredDocument[_Value], confirmed_at: datetime) -> _Known[_Value]:
        return _Known(
            until=confirmed_at + self._ages.fresh,
            document=CachedDocument(stored.value, stored.version, confirmed_at),
            validators=stored.validators,
            bytes=ENTRY_BYTES + stored.encoded_bytes * DECODED_PER_ENCODED,
        )

    def _after_failure(self, known: _Known[_Value] | None, failure: str) -> _Known[_Value]:
        self._count("failed")
        now = self._clock()
        until = now + RETRY_AFTER
        document = None if known is None else known.document
        if known is None or document is None:
            return _Known(until, failure=failure)
        ends_at = document.confirmed_at + self._ages.stale_max
        if now >= ends_at:
            # Kept for its validators: the registry may confirm it yet.
            return _Known(until, failure=failure)
        return replace(known, until=min(until, ends_at), document=replace(document, is_stale=True))


def _pack_document(
    parse: Callable[[Document, str], _Value],
    encode: Callable[[_Value], bytes],
    document: Document,
    name: str,
) -> bytes:
    """What is stored of `document`."""
    return pack(encode(parse(document, name)), document.validators)


def _pack_squeezed(
    parse: Callable[[Document, str], _Value],
    encode: Callable[[_Value], bytes],
    squeezed: SqueezedDocument,
    name: str,
) -> bytes:
    """As `_pack_document`, in another process."""
    return _pack_document(parse, encode, restore(squeezed), name)
