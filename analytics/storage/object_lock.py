"""Object lock: versions of objects that cannot be removed before an instant, through `botocore`.

`obstore` has no requests for it. Credentials are those that AWS's own clients find. As in
`analytics.storage.object_client`, no error carries one, or a line of what the server answered.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.bucket_place import BucketPlace
from analytics.storage.import_claims import OWN
from analytics.storage.segment_store import ObjectMissing

PROBES: Final = f"{OWN}/lock-probe"
LOCKED_FOR: Final = timedelta(days=1)
SHORTENED_TO: Final = timedelta(hours=1)
_CONNECTIONS_MAX: Final = 16
_ATTEMPTS_MAX: Final = 3
_VARIABLES: Final = {
    # As obstore reads them.
    "region": ("region", ["AWS_REGION", "AWS_DEFAULT_REGION"], "us-east-1", None),
    "aws_endpoint": (None, "AWS_ENDPOINT", None, None),
    "ca_bundle": ("ca_bundle", ["AWS_CA_BUNDLE", "SSL_CERT_FILE"], None, None),
}
_EXISTS: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})


class LockMode(StrEnum):
    """With GOVERNANCE those who have the permission for it may end a lock, otherwise none may."""

    GOVERNANCE = "governance"
    COMPLIANCE = "compliance"


class NoObjectLock(StoreFault):
    """The bucket was created without object lock."""


class RequestRefused(StoreFault):
    """The object store refused a request: because of a lock, or of rights; `code` says why."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class ObjectLocks:
    """Locks of the objects at `place`. Every method may raise StoreFault.

    Instants are of whole seconds, as S3 keeps them.
    """

    def __init__(self, place: BucketPlace, endpoint: str, wait_s: float, mode: LockMode) -> None:
        """`endpoint` is the address of the S3 API, "" for that of AWS or AWS_ENDPOINT_URL."""
        self.mode = mode
        self._place = place
        self._endpoint = endpoint
        self._wait_s = wait_s

    def check_enabled(self) -> None:
        """Raise NoObjectLock unless the bucket can lock objects."""
        url = f"s3://{self._place.bucket}"
        try:
            with _faults(url):
                found = self._client.get_object_lock_configuration(Bucket=self._place.bucket)
        except ObjectMissing:
            found = {"ObjectLockConfiguration": {}}
        if found["ObjectLockConfiguration"].get("ObjectLockEnabled") != "Enabled":
            raise NoObjectLock(f"{url} was created without object lock")

    def create(self, key: str, content: bytes, until: datetime) -> str | None:
        """Store a small new object that is locked until then; its version.

        None, changing nothing, if there is one.
        """
        try:
            stored = self._send(
                "put_object",
                key,
                Body=content,
                IfNoneMatch="*",
                ChecksumAlgorithm="SHA256",
                ObjectLockMode=self.mode.upper(),
                ObjectLockRetainUntilDate=until,
            )
        except RequestRefused as fault:
            if fault.code in _EXISTS:
                return None
            raise
        return str(stored["VersionId"])

    def locked_until(self, key: str, version: str = "") -> datetime | None:
        """When the lock of the object, or of that version of it, ends; None: it has none."""
        found = self._send("head_object", key, version)
        until: datetime | None = found.get("ObjectLockRetainUntilDate")
        return until

    def extend(self, key: str, until: datetime) -> datetime:
        """Lock the object at least until then; its lock may end later already. Returns its end."""
        locked_until = self.locked_until(key)
        if locked_until is not None and locked_until >= until:
            return locked_until
        self.retain(key, until)
        return until

    def retain(self, key: str, until: datetime, version: str = "") -> None:
        """Have the lock end then, earlier too. Raises RequestRefused."""
        retention = {"Mode": self.mode.upper(), "RetainUntilDate": until}
        self._send("put_object_retention", key, version, Retention=retention)

    def hold(self, key: str, *, is_held: bool) -> None:
        """Begin or end a legal hold of the object, which is in force beside its lock."""
        status = "ON" if is_held else "OFF"
        self._send("put_object_legal_hold", key, LegalHold={"Status": status})

    def versions(self, prefix: str) -> list[tuple[str, str]]:
        """Key and version of all that was stored and removed below `prefix`."""
        skipped = len(self._key(""))
        with _faults(prefix):
            pages = self._client.get_paginator("list_object_versions")
            return [
                (entry["Key"][skipped:], entry["VersionId"])
                for page in pages.paginate(Bucket=self._place.bucket, Prefix=self._key(prefix))
                for kind in ("Versions", "DeleteMarkers")
                for entry in page.get(kind, ())
            ]

    def remove(self, key: str, version: str, *, is_bypassing: bool = False) -> None:
        """Remove a version; a missing one is no fault. Raises RequestRefused.

        `is_bypassing` uses the permission to end locks of mode GOVERNANCE, if there is one.
        """
        bypass = {"BypassGovernanceRetention": True} if is_bypassing else {}
        self._send("delete_object", key, version, **bypass)

    def _key(self, key: str) -> str:
        return f"{self._place.prefix}/{key}" if self._place.prefix else key

    def _send(self, request: str, key: str, version: str = "", **given: object) -> dict[str, Any]:
        """The answer to a request of botocore's about the object, or that version of it."""
        named = {"Bucket": self._place.bucket, "Key": self._key(key)}
        named |= {"VersionId": version} if version else {}
        with _faults(key):
            answer: dict[str, Any] = getattr(self._client, request)(**named, **given)
        return answer

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - botocore makes its class when it runs
        from botocore.config import Config
        from botocore.session import Session

        session = Session(session_vars=_VARIABLES)
        return session.create_client(
            "s3",
            endpoint_url=self._endpoint or session.get_config_variable("aws_endpoint"),
            config=Config(
                connect_timeout=min(self._wait_s / 2, 5),
                read_timeout=self._wait_s,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS_MAX},
                max_pool_connections=_CONNECTIONS_MAX,
                s3={"addressing_style": "path"},
            ),
        )


@contextmanager
def _faults(key: str) -> Iterator[None]:
    """Raise what fails in the block as a StoreFault that names the key."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NoConnection

    try:
        yield
    except ClientError as error:
        raise _fault(key, error.response) from None
    except (NoConnection, HTTPClientError):
        raise StoreUnreachable(f"{key}: the object store is not reachable") from None
    except BotoCoreError as error:
        # Its name says what is wrong, such as NoCredentialsError.
        raise StoreUnreachable(f"{key}: no request can be made: {type(error).__name__}") from None


def _fault(key: str, answer: dict[str, Any]) -> StoreFault:
    status, code = answer["ResponseMetadata"]["HTTPStatusCode"], str(answer["Error"]["Code"])
    if code == "NoSuchBucket":
        return StoreUnreachable(f"{key}: the bucket does not exist")
    if status == 404:
        return ObjectMissing(f"{key}: the object is missing")
    reason = f" ({code})" if re.fullmatch(r"[A-Za-z0-9]{1,60}", code) else ""
    text = f"{key}: the object store answered {status}{reason}"
    return RequestRefused(text, code) if 400 <= status < 500 else StoreUnreachable(text)


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
    """Whether the lock of a new object held, for each attempt to break it. Raises StoreFault.

    Stores say that they lock objects, and remove them all the same.
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
