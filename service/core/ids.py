"""Identifiers: a prefix for the kind of object, then 80 random bits without any order."""

import secrets
from datetime import UTC, datetime
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 16


def new_id(prefix: str) -> str:
    """A fresh identifier such as `obind_4t9…`."""
    return prefix + "_" + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def new_request_id() -> str:
    """A fresh request id. Starts with the time, so that consecutive ids sort and compress well."""
    milliseconds = int(datetime.now(UTC).timestamp() * 1000)
    return f"req_{milliseconds:012x}{secrets.token_hex(6)}"
