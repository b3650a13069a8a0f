"""Marks of installs are forgotten when no request can belong to them any more."""

from datetime import timedelta

from sqlalchemy import func, select

from service.packages.proxy.install_marks import (
    CONTINUATION,
    REPEAT,
    Mark,
    delete_expired_marks,
    install_key,
)
from service.store.tables import InstallMark
from tests.conftest import START
from tests.service.packages.proxy.proxied import Proxied, second_process, wheel_of

MOMENT = timedelta(microseconds=1)


def test_a_mark_covers_repeats_for_ten_minutes_and_parts_for_a_day() -> None:
    """Nothing before it: a clock that was set back hides no install."""
    mark = Mark(START, 1)
    for window, is_continuation in ((REPEAT, False), (CONTINUATION, True)):
        assert mark.covers(START, is_continuation=is_continuation)
        assert mark.covers(START + window - MOMENT, is_continuation=is_continuation)
        assert not mark.covers(START + window, is_continuation=is_continuation)
        assert not mark.covers(START - MOMENT, is_continuation=is_continuation)


def test_a_key_is_of_all_that_tells_installs_apart() -> None:
    parts = ["org", "key//", "pypi\0foo\x001.0\0sha256-00", "install_allowed"]
    keys = {install_key(*parts)}
    for index in range(4):
        changed = [part + "\udc80" if at == index else part for at, part in enumerate(parts)]
        keys.add(install_key(*changed))

    assert len(keys) == 5


async def test_old_marks_are_deleted_and_rows_stay(proxied: Proxied):
    """The row is the record; the mark is for repeats alone."""
    services = proxied.world.services
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    await proxied.get(await proxied.path_of("foo"))
    await delete_expired_marks(services.store)
    assert await _count(proxied) == 1
    proxied.clock.advance(hours=24)
    await delete_expired_marks(services.store)

    assert await _count(proxied) == 0
    assert len(await proxied.rows()) == 1


async def test_a_repeat_in_a_process_without_memory_is_the_same_install(proxied: Proxied):
    """The mark is stored with the row."""
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    path = await proxied.path_of("foo")
    for _ in range(2):
        async with second_process(proxied) as other:
            assert (await other.get(path)).status_code == 200

    assert len(await proxied.rows()) == 1


async def _count(proxied: Proxied) -> int:
    async with proxied.world.services.store.read() as session:
        return await session.scalar(select(func.count()).select_from(InstallMark)) or 0
