"""Wrong answers in place of the object store: no table is started over, no file is removed."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from service.audit.open_table.publisher import Publisher
from service.core.errors import StoreUnavailable
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START, settings_over
from tests.service.audit.open_table.conftest import LakeWorld
from tests.service.audit.open_table.test_removal import HOUR, merge, unlink
from tests.store_proxy import Answer, Fault, Request, StoreProxy, store_proxy

pytestmark = pytest.mark.slow

WAIT_S = 4.0
ENDS_WITHIN_S = 50.0
"""Less than libraries wait by themselves, and enough for each of their attempts."""

Ask = Callable[[], Answer]
ETAG = '"0123456789abcdef0123456789abcdef"'
STORED = (
    b'<?xml version="1.0"?><CompleteMultipartUploadResult>'
    b"<ETag>" + ETAG.encode() + b"</ETag></CompleteMultipartUploadResult>"
)
PAGE = b"<html><body>Sign in to this network</body></html>"


def page(status: int) -> Fault:
    """The page of a network or a balancer, in answer to everything about tables."""

    def fault(request: Request, ask: Ask) -> Answer:
        if not request.is_of_metadata:
            return ask()
        return Answer(status, PAGE, {"content-type": "text/html"})

    return fault


def page_for_reads(request: Request, ask: Ask) -> Answer:
    """So that a new table could be written."""
    return ask() if request.is_write else page(200)(request, ask)


def lose_commits(request: Request, ask: Ask) -> Answer:
    """An answer as if an object had been stored, to what makes a new version of a table."""
    is_part, is_commit = "partNumber" in request.path, ".json" in request.path
    if is_part or request.method not in {"PUT", "POST"} or not is_commit:
        return ask()
    if "uploadId" not in request.path and request.method == "POST":
        return ask()  # begins an upload of parts
    return Answer(200, STORED, {"ETag": ETAG, "content-type": "application/xml"})


def stall(request: Request, ask: Ask) -> Answer:
    """The beginning of an answer, and then nothing."""
    return Answer(200, b"<", length=1_000, end="stall") if request.is_of_metadata else ask()


FAULTS = [
    pytest.param(page(200), id="a page", marks=only_full),
    pytest.param(page(404), id="a page with 404", marks=only_full),
    pytest.param(page_for_reads, id="a page to reads"),
    pytest.param(lose_commits, id="lost commits", marks=only_full),
    pytest.param(stall, id="a stall", marks=only_full),
]


@pytest.fixture
def proxy(bucket) -> Iterator[StoreProxy]:
    with store_proxy(bucket.server.endpoint) as running:
        yield running


@pytest.fixture
def settings(tmp_path, bucket, proxy):
    return bucket.settings(
        settings_over(tmp_path),
        segments_endpoint=proxy.endpoint,
        segments_wait_s=WAIT_S,
        orphan_grace_s=3600.0,
    )


async def committed_versions(lake: LakeWorld) -> set[str]:
    """The files that make versions of the table, also of another one in its place."""
    folder = "_delta_log" if lake.format == "delta" else "metadata"
    location = lake.places.location(lake.key())
    names = await asyncio.to_thread(lake.places.files.names, f"{location}/{folder}")
    return {name for name in names if name.endswith(".json")}


def forget_heads(publisher: Publisher) -> None:
    """As a process that was started over."""
    publisher._heads.clear()


async def add_segment(lake: LakeWorld) -> None:
    """Something to publish."""
    await lake.audit.accept([sample_row(START)])
    await lake.audit.seal()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_publication_that_is_answered_wrongly_leaves_the_table(
    filled: LakeWorld, proxy: StoreProxy, fault: Fault
):
    """The table's first version has expired: nothing in the bucket refuses another first one."""
    await filled.publish()
    await add_segment(filled)
    await filled.publish()
    filled.audit.clock.advance(hours=25)
    await filled.services.publisher.expire()
    await add_segment(filled)
    identity, versions = await filled.identity(), await committed_versions(filled)
    forget_heads(filled.services.publisher)

    proxy.fault = fault
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(ENDS_WITHIN_S):
            await filled.publish()

    proxy.fault = None
    assert await committed_versions(filled) == versions
    await filled.assert_no_file_is_missing()
    assert (await filled.publish()).added == 1
    assert await filled.identity() == identity
    await filled.assert_published()


@only_full  # libraries try again for seconds
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.id != "lost commits"])
async def test_a_sweep_that_is_answered_wrongly_removes_nothing(
    filled: LakeWorld, proxy: StoreProxy, fault: Fault
):
    """A table that cannot be read may name every file."""
    await merge(filled)
    filled.audit.clock.now += HOUR
    await filled.publish()
    filled.audit.clock.now += 48 * HOUR

    proxy.fault = fault
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(ENDS_WITHIN_S):
            await unlink(filled)

    proxy.fault = None
    await filled.assert_published()


@only_full
async def test_a_table_that_is_really_gone_is_started_over(filled: LakeWorld):
    await filled.publish()
    identity = await filled.identity()
    await asyncio.to_thread(filled.places.table(filled.key()).remove)
    forget_heads(filled.services.publisher)

    assert (await filled.publish()).added == 4

    assert await filled.identity() != identity
    await filled.assert_published()
