"""The documents of one registry: compressed in memory and on disk, and kept up to date.

Up to its maximum age a document is served without asking the registry; after that it is confirmed
by a conditional request. While the registry does not answer, the last confirmed document is served,
up to a limit; then requests fail. An outage is never presented as a missing package.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.clock import Clock
from service.errors import UpstreamFailed, UpstreamMissing
from service.proxy.answers import Document
from service.proxy.decoded_documents import DecodedDocuments
from service.proxy.document_files import DocumentFiles, StoredDocument, pack, unpack
from service.proxy.single_flight import SingleFlight
from service.proxy.squeezed import SqueezedDocument, restore, squeeze
from service.proxy.upstream import Upstream
from service.worker_process import WorkerProcess

HEAVY_BYTES: Final = 256 * 1024
"""Smaller documents are parsed in the event loop, in a few milliseconds at most."""

MISSING_FOR: Final = timedelta(seconds=10)
"""How long a newly published package may stay unknown: clients retry for longer than that."""

RETRY_AFTER: Final = timedelta(seconds=5)
"""How long the registry is not asked after a failure, for which every request would wait."""

START_S: Final = 10.0
"""How long a large document waits until the parsing process has started, which takes a second or
two. Parsing in a thread would hold the interpreter's lock for 20 ms at a time."""

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Codec(Generic[_Value]):
    """How one kind of document is requested, parsed and stored.

    Large documents are parsed in another process, so `parse` and `encode` must be picklable.
    """

    accept: str
    """The `Accept` header of requests."""

    path: Callable[[str], str]
    """The path of a name's document, relative to the registry and percent-encoded."""

    parse: Callable[[Document, str], _Value]
    """The value of a document, which must be the document of the given name."""

    invalid: type[Exception]
    """What `parse` raises for documents that cannot be used; its text is for the log."""

    encode: Callable[[_Value], bytes]
    decode: Callable[[bytes], _Value]
    """May raise anything for bytes written by another version: the document is fetched again."""

    release: Callable[[_Value], object]
    """Empties a value that is no longer used, entry by entry."""


@dataclass(frozen=True, slots=True)
class CachedDocument:
    """A document that may be served, see `DocumentCache.read`."""

    stored: StoredDocument
    confirmed_at: datetime
    is_stale: bool = False
    """True if the registry should have confirmed it by now, and did not answer."""

    @property
    def version(self) -> str:
        """Changes whenever the contents do, so that it can be an etag."""
        return self.stored.version


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known about a name until `until`; from then on the registry is asked."""

    until: datetime
    document: CachedDocument | None = None
    failure: str | None = None
    """Why there is no document; None if the registry has none."""

    @property
    def bytes(self) -> int:
        """How much memory it takes, about."""
        compressed = b"" if self.document is None else self.document.stored.compressed
        return ENTRY_BYTES + len(compressed)


@dataclass(slots=True)
class DocumentCounts:
    """How often each outcome occurred since this process started."""

    hits: int = 0
    confirmed: int = 0
    fetched: int = 0
    stale: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Ages:
    """How long a document is served without asking, and while the registry does not answer."""

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
        decoded: ByteCache,
        worker: WorkerProcess,
        clock: Clock,
        ages: Ages,
        *,
        heavy_bytes: int = HEAVY_BYTES,
        observe: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`observe` gets the name of each count that rises, for metrics."""
        self.counts = DocumentCounts()
        self._upstream = upstream
        self._codec = codec
        self._files = files
        self._memory = memory
        self._decoded = DecodedDocuments(decoded, codec.decode, codec.release)
        self._worker = worker
        self._clock = clock
        self._ages = ages
        self._heavy_bytes = heavy_bytes
        self._observe = observe
        self._refreshes = SingleFlight[_Known]()

    async def get(self, name: str) -> CachedDocument:
        """The document of `name`, canonical. Raises UpstreamMissing or UpstreamFailed."""
        return self.in_memory(name) or self._document(
            await self._refreshes.run(name, partial(self._refresh, name))
        )

    def in_memory(self, name: str) -> CachedDocument | None:
        """The document if the registry need not be asked; raises as `get`."""
        known = self._known(name)
        if known is None or not self._is_current(known):
            return None
        self._count("hits")
        return self._document(known)

    def is_heavy(self, document: CachedDocument) -> bool:
        """True if `read` uses a thread for the document, so that other tasks run meanwhile."""
        return document.stored.encoded_bytes > self._heavy_bytes

    async def read(
        self, document: CachedDocument, function: Callable[[_Value], _Result]
    ) -> _Result:
        """The result of `function` on the document, of which it may keep single entries only."""
        work = partial(self._decoded.use, document.stored, function)
        return await self._files.run_in_thread(work) if self.is_heavy(document) else work()

    async def close(self) -> None:
        """Cancel refreshes under way."""
        await self._refreshes.close()

    def _document(self, known: _Known) -> CachedDocument:
        if known.document is None:
            raise UpstreamMissing if known.failure is None else UpstreamFailed(known.failure)
        if known.document.is_stale:
            self._count("stale")
        return known.document

    def _count(self, name: str) -> None:
        setattr(self.counts, name, getattr(self.counts, name) + 1)
        self._observe(name)

    def _key(self, name: str) -> str:
        # With the registry: a first-party name must never be answered from another registry's
        # document.
        return f"{self._upstream.registry.identity}\n{self._codec.accept}\n{name}"

    def _known(self, name: str) -> _Known | None:
        known: _Known | None = self._memory.find(self._key(name))[1]
        return known

    def _keep(self, name: str, known: _Known) -> _Known:
        self._memory.keep(self._key(name), known, known.bytes)
        return known

    def _is_current(self, known: _Known) -> bool:
        now = self._clock()
        confirmed_at = now if known.document is None else known.document.confirmed_at
        # A clock that was set back must not keep a document for longer.
        return confirmed_at <= now < known.until

    async def _refresh(self, name: str) -> _Known:
        """What is known about `name`, renewed if it is out of date."""
        known = await self._newest(name)
        if known is not None and self._is_current(known):
            return self._keep(name, known)
        now = self._clock()
        try:
            return self._keep(name, await self._ask(name, known))
        except UpstreamMissing:
            # The registry itself said so: what it withdrew must not come back in an outage.
            await self._files.remove(self._key(name))
            return self._keep(name, _Known(now + MISSING_FOR))
        except UpstreamFailed as failed:
            return self._keep(name, self._after_failure(known, failed.reason))

    async def _newest(self, name: str) -> _Known | None:
        """What is in memory, or what this or another process stored on disk if that is newer."""
        known = self._known(name)
        document = None if known is None else known.document
        loaded = await self._files.load(
            self._key(name),
            self._decoded.check,
            newer_than=None if document is None else document.confirmed_at,
        )
        return known if loaded is None else self._fresh(*loaded)

    async def _ask(self, name: str, known: _Known | None) -> _Known:
        """What the registry says now."""
        # Read before the request: the answer may be as old as that, and must not count as younger.
        now = self._clock()
        document = None if known is None else known.document
        validators = None if document is None else document.stored.validators
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
        content, stored = await self._pack(answer, name)
        await self._files.save(self._key(name), content, now)
        return self._fresh(stored, now)

    async def _pack(self, document: Document, name: str) -> tuple[bytes, StoredDocument]:
        """`document` as it is stored. Raises UpstreamFailed."""
        codec = self._codec
        try:
            if document.size <= self._heavy_bytes:
                content = _pack_document(codec.parse, codec.encode, document, name)
                return content, unpack(content)
            squeezed = await self._files.run_in_thread(partial(squeeze, document))
            content = await self._worker.compute(
                _pack_squeezed, codec.parse, codec.encode, squeezed, name, start_s=START_S
            )
            return content, await self._files.run_in_thread(partial(unpack, content))
        except codec.invalid as error:
            reason = f"a document cannot be used: {error}"
            _log.warning("upstream_failed", url=document.url, reason=reason)
            raise UpstreamFailed(reason) from error

    def _fresh(self, stored: StoredDocument, confirmed_at: datetime) -> _Known:
        return _Known(confirmed_at + self._ages.fresh, CachedDocument(stored, confirmed_at))

    def _after_failure(self, known: _Known | None, failure: str) -> _Known:
        self._count("failed")
        now = self._clock()
        until = now + RETRY_AFTER
        document = None if known is None else known.document
        if known is None or document is None:
            return _Known(until, failure=failure)
        ends_at = document.confirmed_at + self._ages.stale_max
        if now >= ends_at:
            # Its file stays on disk for its validators: the registry may yet confirm it.
            return _Known(until, failure=failure)
        return replace(known, until=min(until, ends_at), document=replace(document, is_stale=True))


def _pack_document(
    parse: Callable[[Document, str], _Value],
    encode: Callable[[_Value], bytes],
    document: Document,
    name: str,
) -> bytes:
    """`document` in the form in which it is stored."""
    return pack(encode(parse(document, name)), document.validators)


def _pack_squeezed(
    parse: Callable[[Document, str], _Value],
    encode: Callable[[_Value], bytes],
    squeezed: SqueezedDocument,
    name: str,
) -> bytes:
    """Like `_pack_document`, for a document that comes from another process."""
    return _pack_document(parse, encode, restore(squeezed), name)
