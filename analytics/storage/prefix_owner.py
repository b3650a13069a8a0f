"""Which installation a prefix of a bucket belongs to: no other may write or remove objects there.

An object names it. Without one, two installations that share a prefix by mistake would remove each
other's segments as orphans.
"""

import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Final

from analytics.model.errors import StoreFault
from analytics.storage.objects import Objects
from analytics.storage.segment_store import ObjectDamaged, ObjectMissing

OWNER: Final = "_countersign/installation"
_ID: Final = re.compile(r"inst_[0-9a-z]{16}")
_CONTENT_BYTES_MAX: Final = 100
_FIRST: Final = "tenant="
"""What the keys of all segments begin with."""

_LISTED_MAX: Final = 10_000
"""How many objects are searched for one that the catalog names."""


class PrefixTaken(StoreFault):
    """The prefix belongs to another installation, or seems to: the text says what was found."""


class PrefixOwner:
    """The object that names the owner. Every method may raise StoreFault."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._url = objects.url_of("").rstrip("/")

    def is_owner(self, installation: str) -> bool:
        """True if the prefix belongs to `installation`, False if to none. Raises PrefixTaken."""
        try:
            content = self._objects.read(OWNER, _CONTENT_BYTES_MAX)
        except ObjectMissing:
            return False
        found = content.decode("ascii", "replace").strip()
        if not _ID.fullmatch(found):
            raise ObjectDamaged(f"{self._objects.url_of(OWNER)}: it names no installation")
        if found != installation:
            raise PrefixTaken(f"{self._url} belongs to another installation ({found})")
        return True

    def adopt(self, installation: str, known: Collection[str]) -> None:
        """Make `installation`, whose catalog names the segments `known`, the owner.

        Raises PrefixTaken if there is an owner, or if there are segments and none is known.
        """
        if self._has_only_unknown(known):
            raise PrefixTaken(f"{self._url} has segments that are not in this catalog")
        self._objects.create_small(OWNER, installation.encode())
        # Read again: another installation may have been first.
        if not self.is_owner(installation):
            raise StoreFault(f"{self._objects.url_of(OWNER)} is not there after it was written")

    def take_over(self, installation: str) -> None:
        """Make `installation` the owner, in place of any other."""
        self._objects.write(OWNER, installation.encode())

    def give_up(self) -> None:
        """Leave the prefix without an owner."""
        self._objects.delete([OWNER])

    def _has_only_unknown(self, known: Collection[str]) -> bool:
        has_any = False
        for number, entry in enumerate(self._objects.entries(after=_FIRST)):
            path = PurePosixPath(entry.key)
            if not entry.key.startswith(_FIRST) or number == _LISTED_MAX:
                break
            if path.suffix != ".parquet":
                continue
            if path.stem in known:
                return False
            has_any = True
        return has_any
