"""Claims of imports in a bucket: segments that a sweep keeps though no catalog names them yet."""

import json
import zlib
from collections.abc import Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Final

from analytics.model.errors import StoreFault
from analytics.storage.objects import ListDamaged, ObjectEntry, Objects
from analytics.storage.prefix_owner import OWNER
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import (
    ObjectDamaged,
    ObjectMissing,
    Overtaken,
    SegmentStore,
    awake_s,
)
from analytics.storage.segment_writer import NewSegment

OWN: Final = "_countersign"
CLAIMS: Final = f"{OWN}/claims"
_CHECKSUM: Final = "crc32:"
_SEGMENT: Final = "seg_"
RENEWALS: Final = 4
"""How often a claim is renewed within the grace of orphans."""


class ImportClaims:
    """The claims in a bucket. Every method may raise StoreFault."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def claimed(self, grace_s: float) -> set[str]:
        """The ids of all segments that imports keep. Claims that ended long ago are removed."""
        claims = self._list()
        if not claims:
            return set()
        # Asked before they are listed: a claim that is renewed meanwhile must not look old.
        now_s = self._objects.now_s()
        ids: set[str] = set()
        ended, missing = [], set[str]()
        for claim in self._list():
            if now_s - claim.written_s > grace_s:
                ended.append(claim.key)
                continue
            try:
                ids |= _listed_ids(claim.key, self._objects.read(claim.key))
            except ObjectMissing:
                missing.add(claim.key)
        # A claim that was released meanwhile is in no list any more; its segments are removed, or
        # in the catalog, which is read next. The object of one that is still listed must be
        # readable.
        if missing and missing & {claim.key for claim in self._list()}:
            raise ObjectMissing(f"{min(missing)}: the object is listed and missing")
        # Their imports have given up: they renew no claim that is older than half a grace.
        self._objects.delete(ended)
        return ids

    def _list(self) -> list[ObjectEntry]:
        """All claims. Raises ListDamaged for a list that lacks the object sorted after them."""
        claims: list[ObjectEntry] = []
        for entry in self._objects.entries(OWN):
            # It sorts after all claims, so a list that was cut off does not reach it.
            if entry.key == OWNER:
                return claims
            if entry.key.startswith(f"{CLAIMS}/"):
                claims.append(entry)
        raise ListDamaged(f"{OWNER} is not in the list: it is not whole, or has no owner")


class ImportClaim:
    """See Claim: an object that lists the ids of segments, and is written again to renew it.

    A sweep keeps them if the object was written within the grace, by the clock of the store. So the
    claim is given up after half a grace without renewal, by a clock that cannot be set. Segments
    that a sweep may have removed as orphans are then never named, however long a pause was.
    """

    def __init__(self, segments: SegmentStore, objects: Objects, grace_s: float) -> None:
        self._segments = segments
        self._objects = objects
        self._grace_s = grace_s
        self._key = f"{CLAIMS}/{token_hex(16)}.json"
        self._ids: list[str] = []
        self._renewed_s = awake_s()

    def put_rows(self, segments: Sequence[NewSegment]) -> list[Segment]:
        """See Claim. If one cannot be put, those before it are removed: no caller knows them."""
        put: list[Segment] = []
        try:
            for new in segments:
                put.append(self._put(new))  # noqa: PERF401 - those before a failure are needed
        except BaseException:
            with suppress(StoreFault):  # what is left is swept
                self.remove(put)
            raise
        return put

    def _put(self, new: NewSegment) -> Segment:
        # The first segment is young from here on: time spent before it was begun does not count.
        if not self._ids:
            self._renewed_s = awake_s()
        (segment,) = self._segments.put_rows([new])
        self._ids.append(segment.segment_id)
        # The object itself is young: the list may follow a little later.
        if awake_s() - self._renewed_s > self._grace_s / RENEWALS:
            self._renew()
        return segment

    def renew(self, segments: Sequence[Segment], now_s: float) -> None:
        """See Claim."""
        if self._ids:
            self._renew()

    def remove(self, segments: Sequence[Segment]) -> None:
        """See Claim."""
        self._segments.delete(segments)

    def release(self) -> None:
        """See Claim."""
        with suppress(StoreFault):  # a claim that is left expires
            self._objects.delete([self._key])

    def _renew(self) -> None:
        # Taken before the request: the server may note its time when the request arrives.
        began_s = awake_s()
        if began_s - self._renewed_s > self._grace_s / 2:
            raise Overtaken
        self._objects.write(self._key, json.dumps([*self._ids, _checksum(self._ids)]).encode())
        self._renewed_s = began_s


def _checksum(ids: Sequence[str]) -> str:
    """What a claim lists behind the ids; earlier versions take it for one more."""
    return f"{_CHECKSUM}{zlib.crc32(' '.join(ids).encode()):08x}"


def _listed_ids(key: str, content: bytes) -> set[str]:
    """The ids that a claim lists. Raises ObjectDamaged: what it keeps must not be swept.

    A claim of an earlier version has no checksum.
    """
    try:
        ids = json.loads(content)
    except ValueError:
        ids = None
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise ObjectDamaged(f"{key}: it is no list of segments")
    if ids and not ids[-1].startswith(_SEGMENT) and ids.pop() != _checksum(ids):
        raise ObjectDamaged(f"{key}: its checksum differs")
    return set(ids)
