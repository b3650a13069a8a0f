"""Files over a real connection: one that is not what its document says never ends cleanly."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest

from analytics.model.ecosystems import Ecosystem
from service.packages.proxy.answers import UpstreamLimits
from tests.service.packages.proxy.files import LARGE, cut_after, held, unsized
from tests.service.packages.proxy.proxied import BIG, Proxied, wheel_of
from tests.service.packages.proxy.registry import Answer, Asked, FakeRegistry, head
from tests.service.packages.proxy.served import Served, serving

WHEEL = "/files/foo-1.0-py3-none-any.whl"
TARBALL = "/tarballs/left-pad/1.0.0.tgz"
NPM_PATH = "npm/left-pad/-/left-pad-1.0.0.tgz"
WRONG = BIG[:-1] + b"!"


@pytest.fixture
async def served(proxied: Proxied) -> AsyncIterator[Served]:
    """A server whose registry offers a large file of each kind."""
    proxied.publishes("foo", wheel_of("foo", "1.0", BIG))
    proxied.publishes_npm("left-pad", "1.0.0", content=BIG)
    async with serving(proxied) as running:
        yield running


async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Send forever, as fast as it goes."""
    writer.write(head())
    while True:
        writer.write(BIG)
        await writer.drain()


async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Begin, and say nothing more."""
    writer.write(head(content_length=str(len(BIG))) + BIG[: len(BIG) // 2])
    await writer.drain()
    await asyncio.sleep(60)


def sized(content: bytes) -> Answer:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head(content_length=str(len(content))) + content)

    return answer


async def test_a_file_that_is_right_comes_whole(served: Served):
    path = await served.proxied.path_of("foo")
    for _ in range(2):
        answer = await served.get(path)
        assert (answer.status, answer.is_whole) == (200, True)
        assert answer.body == BIG
    assert served.proxied.registry.times(WHEEL) == 1
    assert len(await served.proxied.rows()) == 1


@pytest.mark.parametrize(
    "lie",
    [
        sized(WRONG),
        unsized(WRONG),
        cut_after(BIG, 500_000),
        unsized(BIG[:-1]),
        unsized(BIG + b"!"),
        endless,
    ],
    ids=["digest", "digest, unsized", "breaks off", "too short", "too long", "endless"],
)
async def test_a_wheel_that_is_not_what_its_page_says_is_cut(served: Served, lie: Answer):
    registry = served.proxied.registry
    path = await served.proxied.path_of("foo")
    registry.does(WHEEL, lie)
    answer = await served.get(path)

    assert not answer.is_whole or answer.status == 502
    assert len(answer.body) < len(BIG)
    registry.says(WHEEL, BIG)
    assert (await served.get(path)).body == BIG
    assert served.services.proxy.files.counts["damaged"] == 0


@pytest.mark.parametrize(
    ("sent", "size"),
    [(LARGE[:-1] + b"!", len(LARGE)), (LARGE[:-1] + b"!", None), (LARGE[:-50_000], len(LARGE))],
    ids=["digest", "digest, unsized", "breaks off"],
)
async def test_a_tarball_that_is_not_what_its_document_says_is_cut(
    served: Served, sent: bytes, size: int | None
):
    registry, gate = served.proxied.registry, asyncio.Event()
    served.proxied.publishes_npm("left-pad", "1.0.0", content=LARGE)
    registry.does(TARBALL, held(sent, gate, size))
    answer = await served.get(NPM_PATH, on_body=gate)

    assert (answer.status, answer.is_whole) == (200, False)
    registry.says(TARBALL, LARGE)
    good = await served.get(NPM_PATH)
    assert (good.is_whole, hashlib.sha256(good.body).digest()) == (
        True,
        hashlib.sha256(LARGE).digest(),
    )


@pytest.mark.parametrize("content", [b"short and wrong", b""])
async def test_a_short_file_that_is_wrong_is_a_502_without_a_byte_of_it(
    served: Served, content: bytes
):
    """Nothing is sent before the digest is right."""
    served.proxied.publishes("bar", wheel_of("bar", "1.0", b"short and right"))
    path = await served.proxied.path_of("bar")
    served.proxied.registry.says("/files/bar-1.0-py3-none-any.whl", content)
    answer = await served.get(path)

    assert (answer.status, answer.is_whole) == (502, True)
    assert b"wrong" not in answer.body


@pytest.mark.parametrize(
    "lie",
    [sized(WRONG), unsized(WRONG), cut_after(BIG, 500_000), cut_after(BIG, 0), sized(b"<html>")],
    ids=["another file", "another file, unsized", "half a file", "no byte", "a page"],
)
async def test_the_next_request_gets_the_right_file(served: Served, lie: Answer):
    wheel = await served.proxied.path_of("foo")
    for path, source in ((wheel, WHEEL), (NPM_PATH, TARBALL)):
        served.proxied.registry.does(source, lie)
        answer = await served.get(path)
        assert (answer.status, answer.is_whole) != (200, True)

        served.proxied.registry.says(source, BIG)
        answer = await served.get(path)
        assert (answer.status, answer.is_whole, answer.body) == (200, True, BIG)


async def test_another_length_is_noticed_before_the_first_byte(served: Served):
    """The page says how long the file is, and so does the registry."""
    path = await served.proxied.path_of("foo")
    served.proxied.registry.says(WHEEL, BIG + b"!")

    assert (await served.get(path)).status == 502


async def test_a_redirect_to_an_unknown_host_is_a_502(served: Served, elsewhere: FakeRegistry):
    path = await served.proxied.path_of("foo")
    served.proxied.registry.says(WHEEL, status=302, location=f"{elsewhere.url}/x.whl")

    assert (await served.get(path)).status == 502
    assert elsewhere.asked == []


async def test_a_registry_that_stops_sending_ends_in_a_cut(served: Served):
    registry = served.services.proxy.registries[Ecosystem.PYPI].public
    assert registry is not None
    registry.upstream.limits = UpstreamLimits(progress_s=0.3)
    path = await served.proxied.path_of("foo")
    served.proxied.registry.does(WHEEL, silent)
    answer = await served.get(path)

    assert (answer.status, answer.is_whole) == (200, False)


async def test_a_part_of_a_file_that_is_wrong_is_a_502(served: Served):
    """The digest is of the whole: no part is sent before it is right."""
    path = await served.proxied.path_of("foo")
    served.proxied.registry.does(WHEEL, sized(WRONG))
    answer = await served.get(path, "range: bytes=0-99")

    assert (answer.status, answer.is_whole) == (502, True)
