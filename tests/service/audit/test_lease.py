"""The lease: one process at a time adds or removes segments."""

import asyncio
import contextlib
import errno
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from service.packages.proxy.install_marks import delete_expired_marks
from service.store.lease import LeaseKeeper, LeaseLost, LeaseTaken
from service.store.store import Store
from service.store.tables import Lease, Organisation
from tests.analytics.samples import sample_row
from tests.conftest import START

LIFETIME = timedelta(seconds=60)
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def keeper(audit):
    settings = audit.services.settings
    return LeaseKeeper(audit.services.store, settings.data_dir, LIFETIME)


async def lease_row(audit) -> Lease:
    async with audit.services.store.read() as session:
        return (await session.scalars(select(Lease))).one()


async def change_lease(audit, **values) -> None:
    """What another machine does to the row."""
    async with audit.services.store.write() as work:
        await work.session.execute(update(Lease).values(**values))


async def rename_acme(audit, lease) -> None:
    """Some change, committed under `lease`."""
    acme = Organisation.id == audit.world.acme.id
    async with lease.write() as work:
        await work.session.execute(update(Organisation).where(acme).values(slug="renamed"))


async def test_every_holder_has_a_higher_epoch(audit, keeper):
    """A commit can tell that its lease is still the one it started under."""
    epochs = []
    for _ in range(3):
        async with keeper.hold() as lease:
            epochs.append(lease.epoch)

    assert epochs == [1, 2, 3]


async def test_frequent_jobs_lock_the_database_for_no_turn_of_the_loop(audit, keeper, monkeypatch):
    """When the machine is full, a turn of a process in the idle class takes a second."""
    services = audit.services
    audit.clock.advance(days=400)
    monkeypatch.setattr(Store, "write", None)  # in which each statement is a turn

    async with keeper.hold() as lease:
        await lease.write_at_once(lambda work: None)
    await services.garbage_collector.delete_expired_answers()
    await services.rejected.delete_expired()
    await delete_expired_marks(services.store)

    assert (await lease_row(audit)).expires_at == audit.clock.now


async def test_a_lease_that_was_lost_is_not_given_back(audit, keeper):
    """It is of another machine by then."""
    later = START + 2 * LIFETIME
    async with keeper.hold() as lease:
        await change_lease(audit, holder="another", epoch=lease.epoch + 1, expires_at=later)

    row = await lease_row(audit)
    assert (row.holder, row.expires_at) == ("another", later)


async def test_a_lease_expires_after_its_lifetime_and_a_commit_extends_it(audit, keeper):
    async with keeper.hold() as lease:
        assert (await lease_row(audit)).expires_at == START + LIFETIME
        audit.clock.advance(seconds=30)
        async with lease.write():
            pass
        assert (await lease_row(audit)).expires_at == audit.clock() + LIFETIME


async def test_a_lease_that_was_given_back_can_be_taken_by_any_machine(audit, keeper):
    async with keeper.hold():
        pass
    await change_lease(audit, holder="another-machine/1/lease_1")

    async with keeper.hold() as lease:
        assert lease.epoch == 2


async def test_within_this_machine_one_holder_excludes_all_others(audit, keeper, worker):
    """The file lock: no waiting, the second goes without."""
    async with keeper.hold():
        with pytest.raises(LeaseTaken):
            await worker.garbage_collector.clear_orphans()
    assert await worker.garbage_collector.clear_orphans() == 0


@pytest.mark.slow
async def test_a_second_process_that_holds_the_lease_keeps_us_from_sealing(audit):
    await audit.accept([sample_row(START)])
    lock_file = str(audit.services.settings.data_dir / "seal.lock")
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDER,
        lock_file,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await holder.stdout.readline() == b"held\n"
        with pytest.raises(LeaseTaken):
            await audit.seal()
    finally:
        holder.kill()
        await holder.communicate()
    assert await audit.seal() > 0


@pytest.mark.parametrize(("left", "is_taken"), [(1, False), (0, True), (-1, True)])
async def test_another_machines_lease_is_respected_until_it_expires(audit, keeper, left, is_taken):
    """A row has no lock that could vanish with its holder."""
    async with keeper.hold():
        pass
    expires_at = START + timedelta(microseconds=left)
    await change_lease(audit, holder="another-machine/1/lease_1", epoch=7, expires_at=expires_at)

    with contextlib.nullcontext() if is_taken else pytest.raises(LeaseTaken):
        async with keeper.hold():
            pass
    row = await lease_row(audit)

    assert row.epoch == (8 if is_taken else 7)
    assert row.holder.startswith("another-machine/") is not is_taken


@pytest.mark.parametrize("content", ["", "of something else: " * 9])
async def test_our_own_dead_process_is_not_waited_for(audit, keeper, content):
    (audit.services.settings.data_dir / "segments.lock").write_text(content)
    async with keeper.hold() as lease:
        ours = lease.holder
    await change_lease(audit, holder=ours, expires_at=START + timedelta(days=1))

    async with keeper.hold() as lease:
        assert lease.epoch == 2


async def test_another_data_dirs_lease_on_this_machine_is_respected(audit, keeper, tmp_path):
    """Nodes of a fleet may share a machine: the other's file lock says nothing about ours."""
    other = LeaseKeeper(audit.services.store, tmp_path, LIFETIME)
    async with keeper.hold():
        with pytest.raises(LeaseTaken):
            async with other.hold():
                pass
    async with other.hold() as lease:
        assert lease.epoch == 2


async def test_a_copied_data_dir_is_another_one(audit, keeper, tmp_path):
    """Its lock file has the same content, and is not the one that the holder has locked."""
    async with keeper.hold():
        lock_file = audit.services.settings.data_dir / "segments.lock"
        (tmp_path / "segments.lock").write_bytes(lock_file.read_bytes())
        with pytest.raises(LeaseTaken):
            async with LeaseKeeper(audit.services.store, tmp_path, LIFETIME).hold():
                pass


@pytest.mark.parametrize("takeover", [{"holder": "another-machine/1/x"}, {"epoch": 7}])
async def test_nothing_is_committed_under_a_lost_lease(audit, keeper, takeover):
    """Two sealers would write the same rows into two segments."""
    async with keeper.hold() as lease:
        await change_lease(audit, **takeover)

        with pytest.raises(LeaseLost):
            await rename_acme(audit, lease)

    assert (await audit.get()).status_code == 200
    assert (await audit.get(slug="renamed")).status_code == 404


async def test_giving_back_a_lost_lease_does_not_end_the_new_holders(audit, keeper):
    expires_at = START + timedelta(hours=1)
    async with keeper.hold() as lease:
        await change_lease(
            audit, holder="another-machine/1/x", epoch=lease.epoch + 1, expires_at=expires_at
        )

    assert (await lease_row(audit)).expires_at == expires_at


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_lock_that_cannot_be_had_leaves_no_descriptor_open(keeper, monkeypatch):
    """Some network file systems have no locks: each round of maintenance would leave one."""

    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unsupported)
    before = open_descriptors()
    for _ in range(5):
        with pytest.raises(OSError, match=os.strerror(errno.ENOLCK)):
            async with keeper.hold():
                pass

    assert open_descriptors() == before
