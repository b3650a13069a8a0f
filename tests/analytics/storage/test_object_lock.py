"""Object lock in a real S3 server, and the probe that tells a server that only claims it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from moto.server import ThreadedMotoServer

from analytics.storage.bucket_place import parse_place
from analytics.storage.object_lock import (
    PROBES,
    Attempt,
    LockMode,
    NoObjectLock,
    ObjectLocks,
    RequestRefused,
    probe,
)
from analytics.storage.segment_store import ObjectMissing, StoreFault
from tests.polling import HANG_S, eventually
from tests.seaweedfs import LOCKING, Bucket, create_locking, locking

HOUR = timedelta(hours=1)


def real_now() -> datetime:
    """By the clock that the server has, too."""
    return datetime.now(UTC).replace(microsecond=0)


def lock_shortly(locks: ObjectLocks, key: str) -> tuple[str, datetime]:
    """The version of a new object, and when its lock ends: in seconds.

    A server refuses a lock that ended before the request arrived: then the next one is longer.
    """
    for length in (3, 10, 30):
        until = real_now() + timedelta(seconds=length)
        try:
            version = locks.create(key, b"", until)
        except RequestRefused:
            continue
        assert version
        return version, until
    raise AssertionError(f"no lock of {key}")


def locks_of(bucket: Bucket, mode: LockMode = LockMode.COMPLIANCE) -> ObjectLocks:
    return ObjectLocks(parse_place(bucket.url), bucket.server.endpoint, HANG_S, mode)


@pytest.fixture
def locks(bucket) -> ObjectLocks:
    return locks_of(locking(bucket))


def test_a_new_object_is_locked_and_an_existing_one_is_left_alone(locks):
    until = real_now() + HOUR

    version = locks.create("a/1.txt", b"first", until)

    assert version
    assert locks.create("a/1.txt", b"second", until + HOUR) is None
    assert locks.locked_until("a/1.txt") == until
    assert locks.versions("a/") == [("a/1.txt", version)]
    with pytest.raises(RequestRefused, match="AccessDenied"):
        locks.remove("a/1.txt", version)


def test_a_lock_is_extended_and_never_shortened(locks):
    until = real_now() + HOUR
    locks.create("a", b"", until)

    assert locks.extend("a", until + HOUR) == until + HOUR
    assert locks.extend("a", until) == until + HOUR

    assert locks.locked_until("a") == until + HOUR
    with pytest.raises(RequestRefused):
        locks.retain("a", until)


@pytest.mark.slow
def test_a_legal_hold_outlasts_the_lock(locks):
    version, until = lock_shortly(locks, "a")
    locks.hold("a", is_held=True)
    eventually(lambda: real_now() > until, "the end of the lock")
    with pytest.raises(RequestRefused):
        locks.remove("a", version)

    locks.hold("a", is_held=False)
    locks.remove("a", version)

    assert locks.versions("a") == []
    with pytest.raises(ObjectMissing):
        locks.locked_until("a")


def test_a_bucket_without_object_lock_is_told(bucket):
    with pytest.raises(NoObjectLock, match="was created without object lock"):
        locks_of(bucket).check_enabled()

    locks_of(locking(bucket)).check_enabled()


def test_no_error_has_a_credential_or_an_answer(bucket, monkeypatch):
    """Answers of servers repeat parts of the request."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown-key")
    with pytest.raises(StoreFault) as refused:
        locks_of(bucket).check_enabled()
    assert "unknown-key" not in str(refused.value)
    assert refused.value.__cause__ is None

    gone = ObjectLocks(parse_place("s3://gone/p"), "http://127.0.0.1:9", 0.2, LockMode.COMPLIANCE)
    with pytest.raises(StoreFault, match="not reachable"):
        gone.check_enabled()


def test_seaweedfs_keeps_locks(locks):
    found = probe(locks, real_now())

    assert found == dict.fromkeys(Attempt, True)


def test_a_lock_that_these_credentials_may_bypass_is_reported(bucket):
    """The tests' own are an administrator's, who may end locks of mode governance."""
    found = probe(locks_of(locking(bucket), LockMode.GOVERNANCE), real_now())

    assert [attempt for attempt in found if not found[attempt]] == [Attempt.BYPASS]


@pytest.mark.slow
def test_a_probe_removes_what_earlier_ones_left_once_it_is_unlocked(locks):
    _, ended = lock_shortly(locks, f"{PROBES}/old")
    probe(locks, real_now())
    eventually(lambda: real_now() > ended, "the end of the lock")

    probe(locks, real_now())

    left = [key for key, _ in locks.versions(f"{PROBES}/")]
    assert f"{PROBES}/old" not in left
    assert len(left) == 2 * len(Attempt)


@pytest.fixture
def moto(monkeypatch) -> Iterator[ObjectLocks]:
    """A server that says it has object lock. The probe must find that retention is shortened."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    create_locking(endpoint)
    yield ObjectLocks(parse_place(f"s3://{LOCKING}/p"), endpoint, HANG_S, LockMode.COMPLIANCE)
    server.stop()


def test_a_server_that_lets_retention_be_shortened_is_reported(moto):
    """Version 5.2.5 of moto claims COMPLIANCE."""
    found = probe(moto, real_now())

    assert [attempt for attempt in found if not found[attempt]] == [Attempt.SHORTEN]
