"""Secrets: the service's own, keys derived from them, and tokens that are stored only hashed."""

import contextlib
import hashlib
import secrets
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from analytics.storage.fsync import fsync, write_synced
from service.settings import InvalidSetting, Settings

_FILES: Final = {"admin_token": "admin_token", "secret_key": "secret_key"}
_TOKEN_BYTES: Final = 32
_KEY_BYTES: Final = 32
_SECRET_CHARS_MIN: Final = 16


def with_secrets(settings: Settings) -> Settings:
    """`settings` with each missing secret read from the data dir, or made there (mode 0600).

    Raises InvalidSetting for a file that holds none: signing with an empty key is no signing.
    """
    found = {
        name: getattr(settings, name) or _read_or_create(settings.data_dir / file)
        for name, file in _FILES.items()
    }
    return msgspec.structs.replace(settings, **found)


def secret_files(data_dir: Path) -> list[Path]:
    """The files in the data dir that hold secrets; those set by the environment have none."""
    return [path for file in _FILES.values() if (path := data_dir / file).is_file()]


def _read_or_create(path: Path) -> str:
    if not path.exists():
        _create(path, secrets.token_urlsafe(_TOKEN_BYTES))
    try:
        secret = path.read_text().strip()
    except UnicodeDecodeError:
        secret = ""
    if len(secret) < _SECRET_CHARS_MIN:
        raise InvalidSetting(f"{path} holds no secret: restore it, or remove it to get a new one")
    return secret


def _create(path: Path, secret: str) -> None:
    """Store `secret` as `path`, unless another process that starts just now was first.

    A link never replaces a name: of several secrets one stays, and everybody reads that one.
    """
    candidate = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_synced(candidate, f"{secret}\n".encode(), 0o600)
    try:
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(candidate)
    finally:
        candidate.unlink()
        fsync(path.parent)


def derive_key(secret_key: str, purpose: str) -> bytes:
    """A 32-byte key for one purpose (HKDF, RFC 5869): keys of two purposes are unrelated."""
    return HKDF(
        algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=f"countersign {purpose}".encode()
    ).derive(secret_key.encode())


def new_token(prefix: str = "") -> str:
    """A fresh bearer secret with 256 random bits."""
    return prefix + secrets.token_urlsafe(_TOKEN_BYTES)


def token_hash(token: str) -> str:
    """How a bearer secret is stored and found again. Fast is enough: it has 256 random bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
