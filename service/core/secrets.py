"""Secrets: the service's own, keys derived from them, and tokens stored only as hashes."""

import base64
import contextlib
import hashlib
import secrets
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from analytics.storage.fsync import fsync, write_synced
from service.core.settings import ADMIN_TOKENS_MAX, SECRET_CHARS_MIN, InvalidSetting, Settings

_FILES: Final = ("admin_token", "secret_key", "metrics_token")
"""Settings without which a secret is generated into the data dir, in a file of the same name."""
_TOKEN_BYTES: Final = 32
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_UNUSABLE: Final = "{path} holds no secret: restore it, or delete it to get a new one"


class UnusableSecret(Exception):
    """COUNTERSIGN_SECRET_KEY is not the one that a stored secret was encrypted with."""


def with_secrets(settings: Settings) -> Settings:
    """`settings` with each missing secret read from the data dir, or created there (mode 0600).

    The admin tokens stay in their file, which may change.

    Raises InvalidSetting for a file without a secret: an empty key would protect nothing.
    """
    if settings.admin_tokens_file is not None:
        if settings.admin_token_file is None:
            _create_if_missing(settings.admin_tokens_file)
        parse_admin_tokens(settings.admin_tokens_file)
    needed = ["secret_key"] if settings.metrics_open else ["secret_key", "metrics_token"]
    stored = {
        name: getattr(settings, name) or _read_or_create(settings.data_dir / name)
        for name in needed
    }
    return msgspec.structs.replace(settings, **stored)


def current_admin_token(settings: Settings) -> str:
    """The newest admin token. Raises InvalidSetting if a file has to have it and has none."""
    path = settings.admin_tokens_file
    return (settings.admin_tokens if path is None else parse_admin_tokens(path))[0]


def parse_admin_tokens(path: Path) -> tuple[str, ...]:
    """The admin tokens in the file: one a line, the current one first. Raises InvalidSetting."""
    tokens = tuple(_read(path).split())
    if len(tokens) > ADMIN_TOKENS_MAX:
        raise InvalidSetting(f"{path} has more than {ADMIN_TOKENS_MAX} tokens: remove the oldest")
    if not all(_is_secret(token) for token in tokens) or not tokens:
        raise InvalidSetting(_UNUSABLE.format(path=path))
    return tokens


def secret_files(data_dir: Path) -> list[Path]:
    """The files in the data dir that hold secrets; one set by the environment has no file."""
    return [path for name in _FILES if (path := data_dir / name).is_file()]


def _read_or_create(path: Path) -> str:
    _create_if_missing(path)
    secret = _read(path)
    if not _is_secret(secret):
        raise InvalidSetting(_UNUSABLE.format(path=path))
    return secret


def _read(path: Path) -> str:
    """The text in the file, empty if it is none. Raises InvalidSetting."""
    try:
        return path.read_text().strip()
    except UnicodeDecodeError:
        return ""
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be read ({error.strerror}): restore it") from error


def _is_secret(text: str) -> bool:
    return len(text) >= SECRET_CHARS_MIN and text.isascii() and text.isprintable()


def _create_if_missing(path: Path) -> None:
    if not path.exists():
        _create(path, secrets.token_urlsafe(_TOKEN_BYTES))


def _create(path: Path, secret: str) -> None:
    """Store `secret` at `path` unless a process starting concurrently already has.

    A hard link never replaces an existing name, so all processes read the one secret that remains.
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
    """A 32-byte key for one purpose (HKDF, RFC 5869); keys of different purposes are unrelated."""
    return HKDF(
        algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=f"countersign {purpose}".encode()
    ).derive(secret_key.encode())


def new_token(prefix: str = "") -> str:
    """A fresh bearer secret with 256 random bits."""
    return prefix + secrets.token_urlsafe(_TOKEN_BYTES)


def token_hash(token: str) -> str:
    """The hash to store a bearer secret and look it up by; a fast one suffices for 256 bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def seal(secret_key: str, owner: str, text: str) -> str:
    """`text` encrypted (AES-256-GCM) for storage in the row of `owner`, and no other."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = AESGCM(derive_key(secret_key, "stored secrets")).encrypt(
        nonce, text.encode(), owner.encode()
    )
    return base64.b64encode(nonce + sealed).decode()


def unseal(secret_key: str, owner: str, sealed: str) -> str:
    """The text that was sealed. Raises UnusableSecret with another key or another owner."""
    content = base64.b64decode(sealed)
    try:
        text = AESGCM(derive_key(secret_key, "stored secrets")).decrypt(
            content[:_NONCE_BYTES], content[_NONCE_BYTES:], owner.encode()
        )
    except InvalidTag as error:
        raise UnusableSecret from error
    return text.decode()
