"""The documents of one registry: compressed in memory and on disk, and kept up to date.

Up to its maximum age a document is served without asking the registry; after that it is confirmed
by a conditional request. While the registry does not answer, the last confirmed document is served,
up to a limit; then requests fail. An outage is never presented as a missing package.

A request waits for the registry for at most PATIENCE_S if there is such a document, and not at all
while the registry is suspect; the answer is then awaited in the background.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Generic, TypeVar

import structlog
from cachetools import LRUCache

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from service.audit.worker_process import WorkerProcess
from service.core.clock import Clock
from service.core.fair_queue import Length
from service.core.single_flight import SingleFlight
from service.packages.proxy.admission import Permit
from service.packages.proxy.answers import RegistryDocument
from service.packages.proxy.document_files import (
    CompressedDocument,
    DocumentFiles,
    StoredDocument,
    pack,
    unpack,
)
from service.packages.proxy.documents import Codec, DocumentInvalid
from service.packages.proxy.upstream import Upstream
from service.packages.refusals import (
    ProxyBusy,
    RegistryUnavailable,
    UpstreamFailed,
    UpstreamMissing,
)

PARSED_BYTES: Final = 16 * 1024
"""Smaller documents are parsed in the event loop, larger ones in another process: a registry that
wants to makes a document take 0.3 µs a byte."""

JUDGED_BYTES: Final = 16 * 1024
"""Smaller documents are judged and rendered in the event loop: some 80 files or 30 versions."""

HEAVY_BYTES: Final = 256 * 1024
"""In smaller documents one file is looked for in the event loop, in 2 ms at most."""

LONG_BYTES: Final = 4 * 2**20
"""Parsing a larger document takes a fifth of a second or more: it leaves a process for others."""

MISSING_FOR: Final = timedelta(seconds=10)
"""How long a newly published package may stay unknown: clients retry for longer than that."""

RETRY_AFTER: Final = timedelta(seconds=5)
"""How long the registry is not asked after a failure, for which every request would wait."""

EMPTIED_AFTER: Final = timedelta(minutes=10)
"""How long a registry must list nothing for a package before that replaces a list of files."""

_EMPTIED_MAX: Final = 10_000

PATIENCE_S: Final = 1.0
"""How long a request waits for a document to be confirmed before it gets the one that is there."""

DECODED_PER_ENCODED: Final = 4
"""Roughly the memory of a decoded document: one file is 200 bytes encoded, and 800 as objects."""

Listing = Callable[[], Awaitable[frozenset[str] | None]]
"""Reads the names of all files that a document lists; None if the registry may list others."""

Compare = Callable[[str, Listing | None, datetime | None, bool], Awaitable[None]]
"""Learns what the document of a package lists, None if there is none any more; since when the
registry has confirmed it, None if it is new; and whether what it lacks may count as withdrawn."""

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")
_log = structlog.get_logger(__name__)


async def no_comparison(_: str, *compared: object) -> None:
    """For documents that list no files of ours."""


@dataclass(frozen=True, slots=True)
class DecodedDocuments(Generic[_Value]):
    """The values of stored documents. Safe to use from several threads.

    The last used ones are kept, but a large one is decoded for each use. Freeing its objects takes
    30 ms, during which the thread holds the interpreter's lock: it is emptied entry by entry.
    """

    _memory: ByteCache
    _decode: Callable[[bytes], _Value]
    _release: Callable[[_Value], object]
    """Empties a value that is no longer used."""

    def use(self, stored: StoredDocument, function: Callable[[_Value], _Result]) -> _Result:
        """The result of `function` on the document, of which it may keep single entries only."""
        is_known, value = self._memory.find(stored.version)
        if is_known:
            return function(value)
        value = self._decode(stored.encoded())
        size = ENTRY_BYTES + stored.encoded_bytes * DECODED_PER_ENCODED
        if size <= self._memory.bytes_max:
            self._memory.keep(stored.version, value, size)
            return function(value)
        try:
            return function(value)
        finally:
            # Never for a kept value: another thread may be reading it.
            self._release(value)

    def check(self, stored: StoredDocument) -> None:
        """Decode the document, and raise what that raises."""
        self.use(stored, lambda _: None)


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

    def confirmed_within(self, age: timedelta, now: datetime) -> bool:
        """True if the registry has confirmed the document so recently."""
        document = self.document
        return document is not None and now - age < document.confirmed_at <= now

    @property
    def bytes(self) -> int:
        """How much memory it takes, about."""
        compressed = b"" if self.document is None else self.document.stored.compressed
        return ENTRY_BYTES + len(compressed)


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
        patience_s: float = PATIENCE_S,
        observe: Callable[[str], None] = lambda _: None,
        compare: Compare = no_comparison,
    ) -> None:
        """`observe` is for metrics: `hits`, `confirmed`, `fetched`, `stale` or `failed`.

        `compare` learns of each document before it is kept. If it raises UpstreamFailed, the
        document is fetched again.
        """
        self.patience_s = patience_s
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
        self._compare = compare
        self._loads = SingleFlight[_Known | None]()
        self._refreshes = SingleFlight[_Known]()
        self._emptied_at = LRUCache[str, datetime](_EMPTIED_MAX)
        self._answered_at = datetime.min.replace(tzinfo=UTC)

    async def get(self, name: str, org: str) -> CachedDocument:
        """The document of `name`, canonical, for a request of `org`.

        Raises UpstreamMissing and UpstreamFailed.
        """
        found = self.in_memory(name)
        if found is not None:
            return found
        known = await self._loads.run(name, partial(self._newest, name))
        if known is not None and self._is_current(known):
            return self._document(known)
        copy = self._stale(known)
        if copy is None:
            return self._document(await self._renewed(name, org))
        return self._document(await self._renewed_soon(name, org, copy))

    async def copy(self, name: str) -> CachedDocument | None:
        """The document as it was fetched last, of any age; None if it was not. Asks no registry."""
        known = self._known(name)
        if known is not None and known.document is not None:
            return known.document
        loaded = await self._files.load(self._key(name), self._decoded.check)
        return None if loaded is None else CachedDocument(*loaded)

    def in_memory(self, name: str) -> CachedDocument | None:
        """The document if the registry need not be asked; raises as `get`."""
        known = self._current(name)
        if known is None:
            return None
        self._observe("hits")
        return self._document(known)

    def ttl_s(self, document: CachedDocument) -> int:
        """For how many seconds it is fresh; negative if the registry should have confirmed it."""
        ends_at = document.confirmed_at + self._ages.fresh
        return int((ends_at - self._clock()).total_seconds())

    def is_heavy(self, document: CachedDocument) -> bool:
        """True if `read` uses a thread for the document, so that other tasks run meanwhile."""
        return document.stored.encoded_bytes > self._heavy_bytes

    async def read(
        self,
        document: CachedDocument,
        function: Callable[[_Value], _Result],
        *,
        bytes_at_once: int | None = None,
    ) -> _Result:
        """The result of `function` on the document, of which it may keep single entries only.

        Runs in a thread for documents of more than `bytes_at_once` bytes, by default HEAVY_BYTES.
        """
        work = partial(self._decoded.use, document.stored, function)
        limit = self._heavy_bytes if bytes_at_once is None else bytes_at_once
        if document.stored.encoded_bytes > min(limit, self._heavy_bytes):
            return await self._files.run_in_thread(work)
        return work()

    async def close(self) -> None:
        """Cancel what is under way."""
        await self._loads.close()
        await self._refreshes.close()

    def _document(self, known: _Known) -> CachedDocument:
        if known.document is None:
            raise UpstreamMissing if known.failure is None else UpstreamFailed(known.failure)
        if known.document.is_stale:
            self._observe("stale")
        return known.document

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

    def _keep_copy(self, name: str, copy: _Known) -> _Known:
        """`copy`, which is served for a while without asking; or what is current by now."""
        return self._current(name) or self._keep(name, copy)

    def _current(self, name: str) -> _Known | None:
        """What is in memory if the registry need not be asked."""
        known = self._known(name)
        return known if known is not None and self._is_current(known) else None

    def _is_current(self, known: _Known) -> bool:
        now = self._clock()
        confirmed_at = now if known.document is None else known.document.confirmed_at
        # A clock that was set back must not keep a document for longer.
        return confirmed_at <= now < known.until

    async def _renewed_soon(self, name: str, org: str, copy: _Known) -> _Known:
        """What the registry says if it does so soon, else `copy`."""
        if self._upstream.is_suspect:
            return self._renew_in_background(name, org, copy)
        try:
            async with asyncio.timeout(self.patience_s) as patience:
                return await self._renewed(name, org)
        except TimeoutError:
            if not patience.expired():
                raise
        except (ProxyBusy, RegistryUnavailable):
            return self._keep_copy(name, copy)
        return copy

    def _renew_in_background(self, name: str, org: str, copy: _Known) -> _Known:
        """`copy`; the registry is asked if few others try at the moment whether it answers."""
        if self._refreshes.running(name) is not None:
            return copy
        permit = self._upstream.try_admit(org)
        if permit is None:
            return self._keep_copy(name, copy)
        self._refreshes.start(name, partial(self._refresh, name, org, permit))
        return copy

    async def _renewed(self, name: str, org: str) -> _Known:
        """What the registry says, shared by all requests that ask meanwhile.

        The permit to ask the registry is waited for by each request for itself: so it is of the
        request's own organisation, and given up when the client disconnects.
        """
        running = self._refreshes.running(name)
        if running is None:
            permit = await self._upstream.admit(org)
            running = self._refreshes.running(name)
            if running is None:
                known = self._current(name)
                if known is not None:
                    permit.release()
                    return known
                running = self._refreshes.start(name, partial(self._refresh, name, org, permit))
            else:
                permit.release()
        return await asyncio.shield(running)

    async def _refresh(self, name: str, org: str, permit: Permit) -> _Known:
        """What the registry says about `name`, or what is known if it fails."""
        with permit:
            known = await self._newest(name)
            now = self._clock()
            if known is not None and known.confirmed_within(self._ages.fresh, now):
                return self._keep(name, known)  # by another process, meanwhile
            try:
                return self._keep(name, await self._ask(name, org, known))
            except UpstreamMissing:
                # The registry itself said so: what it withdrew must not come back in an outage.
                await self._files.remove(self._key(name))
                return self._keep(name, _Known(now + MISSING_FOR))
            except RegistryUnavailable:
                copy = self._stale(known)
                if copy is None:
                    raise  # not remembered: it is known at once that the registry is not asked
                return self._keep(name, copy)
            except UpstreamFailed as failed:
                self._observe("failed")
                failure = _Known(self._clock() + RETRY_AFTER, failure=failed.reason)
                return self._keep(name, self._stale(known) or failure)

    async def _newest(self, name: str) -> _Known | None:
        """What is in memory, or what this or another process stored on disk if that is newer."""
        before = self._known(name)
        document = None if before is None else before.document
        loaded = await self._files.load(
            self._key(name),
            self._decoded.check,
            newer_than=None if document is None else document.confirmed_at,
        )
        known = self._known(name)
        if known is not None and known is not before:
            return known  # the registry has answered meanwhile
        return before if loaded is None else self._keep(name, self._fresh(*loaded))

    async def _ask(self, name: str, org: str, known: _Known | None) -> _Known:
        """What the registry says now."""
        # Read before the request: the answer may be as old as that, and must not count as younger.
        now = self._clock()
        document = None if known is None else known.document
        validators = None if document is None else document.stored.validators
        path, accept = self._codec.path(name), self._codec.accept
        try:
            answer = await self._upstream.document(path, accept, validators)
        except UpstreamMissing:
            await self._compare_emptied(name)
            raise
        if answer is None and known is not None and document is not None:
            self._observe("confirmed")
            await self._compare_confirmed(name, document, now)
            await self._files.confirm(self._key(name), now)
            confirmed = replace(document, confirmed_at=now, is_stale=False)
            return replace(known, document=confirmed, until=now + self._ages.fresh)
        if answer is None:
            raise UpstreamFailed("confirmed a document that was not named")
        self._observe("fetched")
        content, is_empty, stored = await self._pack(answer, name, org)
        if is_empty:
            await self._compare_emptied(name)
            await self._refuse_emptied(name, document, answer)
        else:
            listing = partial(self.read, CachedDocument(stored, now), self._codec.listed)
            await self._compare(name, listing, None, True)
            self._emptied_at.pop(name, None)
            self._answered_at = now
        await self._files.save(self._key(name), content, now, org)
        return self._fresh(stored, now)

    async def _pack(
        self, document: RegistryDocument, name: str, org: str
    ) -> tuple[bytes, bool, StoredDocument]:
        """`document` as it is stored, and whether it lists nothing. Raises UpstreamFailed."""
        codec = self._codec
        work = codec.parse, codec.is_empty, codec.encode
        try:
            if document.size <= min(self._heavy_bytes, PARSED_BYTES):
                content, is_empty = _pack_document(*work, document, name)
                return content, is_empty, unpack(content)
            compressed = await self._files.run_in_thread(partial(CompressedDocument.of, document))
            is_long = document.size > LONG_BYTES
            content, is_empty = await self._worker.compute(
                org,
                _pack_document,
                *work,
                compressed,
                name,
                length=Length.LONG if is_long else Length.SHORT,
            )
            stored = await self._files.run_in_thread(partial(unpack, content))
            return content, is_empty, stored
        except DocumentInvalid as error:
            raise self._unusable(document, str(error)) from error

    async def _compare_confirmed(self, name: str, document: CachedDocument, now: datetime) -> None:
        """Compare with a document that the registry still has, which may list nothing."""
        if name in self._emptied_at and await self.read(document, self._codec.is_empty):
            await self._compare_emptied(name)
            return
        listing = partial(self.read, document, self._codec.listed)
        await self._compare(name, listing, document.confirmed_at, True)
        self._emptied_at.pop(name, None)
        self._answered_at = now

    async def _compare_emptied(self, name: str) -> None:
        """Compare with a package without files: certain if the registry says so for EMPTIED_AFTER.

        It must have answered for other packages meanwhile: one that has lost all says the same.
        Until then its files are noted as missed, so that any process asks again.
        """
        since = self._emptied_at.setdefault(name, self._clock())
        is_certain = self._clock() - since >= EMPTIED_AFTER and self._answered_at > since
        await self._compare(name, None, None, is_certain)

    async def _refuse_emptied(
        self, name: str, known: CachedDocument | None, answer: RegistryDocument
    ) -> None:
        """Raise UpstreamFailed if an empty document must not replace `known`.

        A registry that has lost its index says the same as one whose package was emptied. The
        latter still says so after EMPTIED_AFTER.
        """
        if known is None or await self.read(known, self._codec.is_empty):
            return
        emptied_at = self._emptied_at.setdefault(name, self._clock())
        if self._clock() - emptied_at < EMPTIED_AFTER:
            raise self._unusable(answer, "it lists nothing any more, where it did before")

    def _unusable(self, document: RegistryDocument, fault: str) -> UpstreamFailed:
        reason = f"a document cannot be used: {fault}"
        _log.warning("upstream_failed", url=document.url, reason=reason)
        self._upstream.record_failure(reason)
        return UpstreamFailed(reason)

    def _fresh(self, stored: StoredDocument, confirmed_at: datetime) -> _Known:
        return _Known(confirmed_at + self._ages.fresh, CachedDocument(stored, confirmed_at))

    def _stale(self, known: _Known | None) -> _Known | None:
        """What to serve of `known` while the registry does not answer; None if it is too old."""
        document = None if known is None else known.document
        if known is None or document is None:
            return None
        now = self._clock()
        ends_at = document.confirmed_at + self._ages.stale_max
        if now >= ends_at:
            # Its file stays on disk for its validators: the registry may yet confirm it.
            return None
        until = min(now + RETRY_AFTER, ends_at)
        return replace(known, until=until, document=replace(document, is_stale=True))


def _pack_document(
    parse: Callable[[RegistryDocument, str], _Value],
    is_empty: Callable[[_Value], bool],
    encode: Callable[[_Value], bytes],
    document: RegistryDocument | CompressedDocument,
    name: str,
) -> tuple[bytes, bool]:
    """`document` in the form in which it is stored, and whether it lists nothing."""
    if isinstance(document, CompressedDocument):
        document = document.document()
    value = parse(document, name)
    return pack(encode(value), document.validators), is_empty(value)
