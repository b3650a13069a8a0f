"""Whether an object store keeps its locks: attempts to break them, on objects of the probe's own.

Stores say that they lock objects, and remove them all the same.
"""

import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from analytics.model.errors import StoreFault
from analytics.storage.import_claims import OWN
from analytics.storage.object_lock import ObjectLocks, RequestRefused
from analytics.storage.segment_store import ObjectMissing

PROBES: Final = f"{OWN}/lock-probe"
LOCKED_FOR: Final = timedelta(days=1)
SHORTENED_TO: Final = timedelta(hours=1)


class Attempt(StrEnum):
    """What the probe tries."""

    DELETE = "delete"
    SHORTEN = "shorten"
    BYPASS = "bypass"


_Try = Callable[[ObjectLocks, str, str, datetime], None]
_TRIES: Final[dict[Attempt, _Try]] = {
    Attempt.DELETE: lambda locks, key, version, _: locks.remove(key, version),
    Attempt.SHORTEN: lambda locks, key, version, now: locks.retain(
        key, (now + SHORTENED_TO).replace(microsecond=0), version
    ),
    Attempt.BYPASS: lambda locks, key, version, _: locks.remove(key, version, is_bypassing=True),
}


def probe(locks: ObjectLocks, now: datetime) -> dict[str, bool]:
    """Whether the lock of a new object held, for each attempt. Raises StoreFault.

    The objects stay below PROBES until their locks end. Of earlier probes what is not locked any
    more is removed.
    """
    locks.check_enabled()
    for key, version in locks.versions(f"{PROBES}/"):
        with suppress(RequestRefused):
            locks.remove(key, version)
    return {attempt.value: _holds(locks, attempt, now) for attempt in Attempt}


def _holds(locks: ObjectLocks, attempt: Attempt, now: datetime) -> bool:
    key, until = (
        f"{PROBES}/{attempt}-{secrets.token_hex(8)}",
        (now + LOCKED_FOR).replace(microsecond=0),
    )
    version = locks.create(key, b"locked by a probe\n", until)
    if version is None:
        raise StoreFault(f"{key}: another object has this name, which is random")
    with suppress(RequestRefused):
        _TRIES[attempt](locks, key, version, now)
    # The answer is not believed, only what is there afterwards.
    try:
        locked_until = locks.locked_until(key, version)
    except ObjectMissing:
        locked_until = None
    return locked_until is not None and locked_until >= until
