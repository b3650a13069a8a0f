"""The identity of a package file: a digest that the registry's document states."""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from service.packages.ecosystem import Release

ALGORITHMS: Final = frozenset({"sha256", "sha512", "sha1"})
"""sha1 is for npm documents from before 2017, which state no other digest."""

_REGISTRY_CHARS: Final = 32
"""128 bits of the identity, which is a digest of settings: no one can choose it freely."""

_HEX: Final = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class FileKey:
    """A digest of a file's bytes. Raises ValueError if it cannot be one."""

    algorithm: str
    hex: str

    def __post_init__(self) -> None:
        """Refuse digests that would not be safe file names."""
        if self.algorithm not in ALGORITHMS:
            raise ValueError("the digest's algorithm must be sha256, sha512 or sha1")
        if not _HEX.fullmatch(self.hex) or len(self.hex) != self.new_hash().digest_size * 2:
            raise ValueError(f"the digest is not {self.algorithm} in lower-case hexadecimal")

    def __str__(self) -> str:
        return f"{self.algorithm}-{self.hex}"

    @property
    def digest(self) -> str:
        """It as `parse_file_key` reads it."""
        return f"{self.algorithm}:{self.hex}"

    @property
    def etag(self) -> str:
        """The strong validator of the file (RFC 9110, 8.8.3)."""
        return f'"{self}"'

    def new_hash(self) -> Any:  # noqa: ANN401 - hashlib has no public type for it
        """A hash object of the algorithm."""
        return hashlib.new(self.algorithm, usedforsecurity=True)

    def at(self, registry: str) -> "CacheKey":
        """The key of the file as the registry with this identity has it."""
        return CacheKey(self, registry)


@dataclass(frozen=True, slots=True)
class CacheKey:
    """A file of one registry, see `Registry.identity`.

    Not the digest alone: who can have a registry list a digest would get the file with it that
    another organisation's registry has.
    """

    file: FileKey
    registry: str

    def __str__(self) -> str:
        return str(self.file)

    @property
    def name(self) -> str:
        """Its name in the cache."""
        return f"{self.file}{self.registry[:_REGISTRY_CHARS]}"


def parse_file_key(text: str) -> FileKey:
    """The key that `sha256:<hex>` names. Raises ValueError."""
    algorithm, _, digest = text.partition(":")
    return FileKey(algorithm, digest)


@dataclass(frozen=True, slots=True)
class KnownFile:
    """The file that was first served under a name. If withdrawn, it is not listed since then."""

    version: str
    key: FileKey
    sha256: str | None
    published_at: datetime | None
    withdrawn_at: datetime | None = None

    @property
    def digests(self) -> dict[str, str]:
        """Its digests that are known, by algorithm."""
        digests = {self.key.algorithm: self.key.hex}
        return digests if self.sha256 is None else digests | {"sha256": self.sha256}

    def is_same(self, offered: frozenset[str]) -> bool:
        """True if a file with these digests (`algorithm:hex`) is this one, as far as they say.

        Without a digest of the same algorithm that cannot be shown, so it counts as another file.
        """
        stated = dict(digest.split(":", 1) for digest in offered)
        shared = self.digests.keys() & stated.keys()
        return bool(shared) and all(self.digests[name] == stated[name] for name in shared)

    def release(self, offered: Release) -> Release:
        """What policy decides on for this file, instead of `offered` under the same name."""
        digests = frozenset(f"{name}:{value}" for name, value in self.digests.items())
        return Release(
            offered.ecosystem,
            offered.name,
            self.version,
            self.published_at,
            digests,
            withdrawn_at=self.withdrawn_at,
        )
