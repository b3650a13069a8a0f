"""A publisher that is killed at any request to the bucket leaves a table that is right."""

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tests.budgets import only_full
from tests.conftest import settings_over
from tests.crashes import order_for
from tests.interpreters import start_module
from tests.service.audit.open_table.conftest import LakeWorld
from tests.service.audit.open_table.test_crashes import OPERATIONS
from tests.store_proxy import Answer, Request, StoreProxy, store_proxy

pytestmark = [pytest.mark.slow, only_full, pytest.mark.timeout(900)]

REQUESTS_MAX = 100


@pytest.fixture
def proxy(bucket) -> Iterator[StoreProxy]:
    with store_proxy(bucket.server.endpoint) as running:
        yield running


@pytest.fixture
def settings(tmp_path, bucket, proxy):
    return bucket.settings(
        settings_over(tmp_path), segments_endpoint=proxy.endpoint, orphan_grace_s=3600.0
    )


async def kill_after_request(lake: LakeWorld, proxy: StoreProxy, work: str, number: int) -> bool:
    """Do `work` in a process that is killed once its `number`th write of metadata is stored.

    False if it ends before, without an error.
    """
    settings = msgspec.structs.replace(
        lake.services.settings, lake_formats=(lake.format,), log_level="error"
    )
    given = order_for(settings, lake.audit.clock.now, work, "no step begins so")
    process = start_module("tests.crashes", given, is_fresh=False, stderr=subprocess.PIPE)
    left = number

    def killing(request: Request, ask: Callable[[], Answer]) -> Answer:
        nonlocal left
        answer = ask()
        if request.is_of_metadata and request.is_write:
            left -= 1
            if left == 0:
                process.kill()
        return answer

    proxy.fault = killing
    _, errors = await asyncio.to_thread(process.communicate)
    proxy.fault = None
    assert process.returncode in {0, -signal.SIGKILL}, errors.decode()
    return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("name", "work"),
    [("first publication", "publish"), ("publication", "publish"), ("expiry", "expire")],
)
async def test_what_is_killed_after_any_write_is_made_good(
    filled: LakeWorld, proxy: StoreProxy, name: str, work: str
):
    async def kill(number: int) -> bool:
        return await kill_after_request(filled, proxy, work, number)

    await OPERATIONS[name].crash_at_each(filled, range(1, REQUESTS_MAX), kill)
