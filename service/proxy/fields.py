"""Values that documents of all upstream registries have: instants and digests."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

_HEX_CHARS: Final = {
    "md5": 32,
    "sha1": 40,
    "sha224": 56,
    "sha256": 64,
    "sha384": 96,
    "sha512": 128,
    "blake2b": 128,
}
_HEX: Final = re.compile("[0-9a-f]+")


def parse_instant(text: str | None) -> datetime | None:
    """An ISO 8601 instant in UTC, which is also assumed where no zone is given; else None."""
    try:
        instant = datetime.fromisoformat(text) if text else None
        if instant is None or instant.tzinfo is UTC:
            return instant
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parse_hashes(hashes: Mapping[str, str]) -> dict[str, str]:
    """Those of `hashes` that are digests of a known algorithm, in lower case."""
    lower = {algorithm.lower(): digest.lower() for algorithm, digest in hashes.items()}
    return {
        algorithm: digest
        for algorithm, digest in lower.items()
        if len(digest) == _HEX_CHARS.get(algorithm) and _HEX.fullmatch(digest)
    }
