"""Values that every upstream's documents contain: instants and digests."""

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
_DIGESTS: Final = {
    algorithm: re.compile(f"[0-9a-f]{{{chars}}}") for algorithm, chars in _HEX_CHARS.items()
}


def parse_instant(text: str | None) -> datetime | None:
    """The ISO 8601 instant in `text`, in UTC if it has no zone; None if `text` is not one."""
    try:
        instant = datetime.fromisoformat(text) if text else None
        if instant is None or instant.tzinfo is UTC:
            return instant
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parse_hashes(hashes: Mapping[str, str]) -> dict[str, str]:
    """The entries of `hashes` that are digests of a known algorithm, in lower case."""
    known = {}
    for name, digest in hashes.items():
        algorithm, value = name.lower(), digest.lower()
        pattern = _DIGESTS.get(algorithm)
        if pattern is not None and pattern.fullmatch(value):
            known[algorithm] = value
    return known
