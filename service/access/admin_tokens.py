"""The admin tokens: one, or two while one replaces the other, exchanged without a restart."""

import fcntl
import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import structlog

from analytics.model.org_envelopes import AdminTokenChanged
from analytics.model.rows import AuditContext
from analytics.storage.fsync import fsync, write_synced
from service.core.errors import Conflict, Invalid, file_fault
from service.core.secrets import new_token, parse_admin_tokens
from service.core.settings import InvalidSetting, Settings
from service.store.organisations import list_orgs
from service.store.store import Store

_log = structlog.get_logger(__name__)

_STAMP_OF_NONE: Final = (0, 0, 0)


class AdminTokens:
    """The tokens that are accepted now: of the setting, or of the file, which may change."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.admin_tokens_file
        self._stamp = _STAMP_OF_NONE
        self._tokens = settings.admin_tokens

    def accepts(self, given: str) -> bool:
        """Whether `given` is one of them; a changed file counts from the next request on."""
        if self._path is not None:
            self._read_if_changed(self._path)
        # Every one is compared, in constant time: the duration must not tell which one is near.
        # Bytes, because `compare_digest` raises TypeError for text that is not ASCII.
        matches = [hmac.compare_digest(given.encode(), own.encode()) for own in self._tokens]
        return any(matches)

    def _read_if_changed(self, path: Path) -> None:
        stamp = _stamp_of(path)
        if stamp == self._stamp:
            return
        try:
            # A file that is damaged, or gone, opens nothing.
            self._tokens = parse_admin_tokens(path)
        except InvalidSetting as error:
            self._tokens = ()
            _log.error("admin_tokens_unusable", reason=str(error))
        else:
            _log.info("admin_tokens_read", tokens=len(self._tokens))
        self._stamp = stamp


def _stamp_of(path: Path) -> tuple[int, int, int]:
    """What differs once another file is at `path`, or another content in it."""
    try:
        status = path.stat()
    except OSError:
        return _STAMP_OF_NONE
    return status.st_ino, status.st_mtime_ns, status.st_size


async def rotate_admin_token(store: Store, settings: Settings, by: AuditContext) -> str:
    """Put a new token first; the current one is accepted until it is retired. Returns the new one.

    Raises Invalid if the service does not keep the token, Conflict if two are accepted already.
    """
    with _locked(_own_file(settings)) as path:
        tokens = parse_admin_tokens(path)
        if len(tokens) > 1:
            raise Conflict("two admin tokens are accepted already: retire the previous one first")
        token = new_token()
        await _change(store, path, (token, *tokens), "rotated", by)
    return token


async def retire_admin_token(store: Store, settings: Settings, by: AuditContext) -> None:
    """Accept the newest token alone. Raises as `rotate_admin_token`, Conflict if it is alone."""
    with _locked(_own_file(settings)) as path:
        tokens = parse_admin_tokens(path)
        if len(tokens) == 1:
            raise Conflict("only one admin token is accepted: rotate it first")
        await _change(store, path, tokens[:1], "retired", by)


async def _change(
    store: Store,
    path: Path,
    tokens: tuple[str, ...],
    change: Literal["rotated", "retired"],
    by: AuditContext,
) -> None:
    """Record the change in every organisation, each of which the token opens, then make it.

    Raises StoreUnavailable, such as StorageFull.
    """
    # One name, of which the lock lets one command make a file: a killed one leaves no second.
    candidate = path.with_name(f".{path.name}.new")
    try:
        # Before the rows: a disk without room must not let them tell of a change that is not made.
        write_synced(candidate, "".join(f"{token}\n" for token in tokens).encode(), 0o600)
        async with store.write() as work:
            for org in await list_orgs(work.session):
                work.record(org.id, AdminTokenChanged(change=change), by)
        # After the commit: there must be no change without its rows.
        candidate.replace(path)  # a reader sees either file, and neither in part
        fsync(path.parent)
    except OSError as error:
        raise file_fault(error) from error
    finally:
        candidate.unlink(missing_ok=True)


def _own_file(settings: Settings) -> Path:
    path = settings.admin_tokens_file
    if path is None or settings.admin_token_file is not None:
        where = "COUNTERSIGN_ADMIN_TOKEN" + ("" if path is None else "_FILE")
        raise Invalid(f"the admin token is set by {where}: change it there (docs/run-book.md)")
    return path


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """`path`, while no other command changes it. Raises Conflict if one does."""
    with path.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict("another command changes the admin token: try again") from error
        if path.stat().st_ino != os.fstat(held.fileno()).st_ino:
            raise Conflict("another command has changed the admin token: try again")
        yield path
