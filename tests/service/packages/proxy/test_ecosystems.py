"""What holds alike for the packages of each ecosystem."""

import gzip
from datetime import datetime, timedelta
from typing import Any

import pytest

from service.core.settings import Settings
from tests.conftest import START
from tests.service.packages.proxy.proxied import (
    BIG,
    OLD,
    Proxied,
    deny,
    running_proxy,
    second_process,
    shown,
    wheel_of,
)
from tests.service.packages.proxy.registry import FakeRegistry


class Pypi:
    """The project `foo`; `upstream` is where the registry has the file of its version 1.0.0."""

    name = "pypi"
    page = "pypi/simple/foo/"
    upstream = "/files/foo-1.0.0-py3-none-any.whl"

    def puts(
        self, proxied: Proxied, *versions: str, content: bytes | None = None, newest: datetime = OLD
    ) -> None:
        """Publish `versions`, the last one at `newest`."""
        dates = dict.fromkeys(versions, OLD) | {versions[-1]: newest}
        proxied.publishes("foo", *(wheel_of("foo", v, content, at) for v, at in dates.items()))

    async def path(self, proxied: Proxied, version: str) -> str:
        return await proxied.path_of("foo", f"foo-{version}-py3-none-any.whl")

    async def marked(self, proxied: Proxied) -> set[str]:
        """The versions that the page says are refused."""
        files = (await proxied.page("foo"))["files"]
        return {file["filename"].split("-")[1] for file in files if file["yanked"]}


class Npm:
    """The package `foo`."""

    name = "npm"
    page = "npm/foo"
    upstream = "/tarballs/foo/1.0.0.tgz"

    def puts(
        self, proxied: Proxied, *versions: str, content: bytes = b"", newest: datetime = OLD
    ) -> None:
        proxied.publishes_npm("foo", *versions, content=content, at={versions[-1]: newest})

    async def path(self, proxied: Proxied, version: str) -> str:
        return f"npm/foo/-/foo-{version}.tgz"

    async def marked(self, proxied: Proxied) -> set[str]:
        versions = (await proxied.document("foo"))["versions"]
        return {name for name, version in versions.items() if version.get("deprecated")}


Shelf = Pypi | Npm

pytestmark = pytest.mark.parametrize("shelf", [Pypi(), Npm()], ids=["pypi", "npm"])


async def test_a_new_rule_holds_for_a_cached_file_in_every_process(proxied: Proxied, shelf: Shelf):
    shelf.puts(proxied, "1.0.0", "2.0.0")
    path = await shelf.path(proxied, "1.0.0")
    async with second_process(proxied) as other:
        before = [(await each.get(path)).status_code for each in (proxied, other)]
        etag = (await other.get(shelf.page)).headers["etag"]
        await proxied.policy(deny=[deny(shelf.name, "foo", "1.0.0", id="r1")])
        after = [(await each.get(path)).status_code for each in (proxied, other)]
        page = await other.get(shelf.page, if_none_match=etag)

    assert (before, after) == ([200, 200], [302, 302])
    assert page.status_code == 200


async def test_a_rule_saved_while_the_registry_answers_holds(proxied: Proxied, shelf: Shelf):
    """The registry may take a minute: the policy is asked again."""
    shelf.puts(proxied, "1.0.0")
    path = await shelf.path(proxied, "1.0.0")
    await proxied.get(shelf.page)
    asked_for = proxied.registry.asked[0].path
    answer = proxied.registry.answers[asked_for]

    async def slowly(asked: Any, writer: Any) -> None:
        await proxied.policy(deny=[deny(shelf.name, "foo", id="r1")])
        await answer(asked, writer)

    proxied.registry.does(asked_for, slowly)
    proxied.clock.advance(hours=1)

    assert (await proxied.get(path)).status_code == 302


async def test_a_file_known_to_the_client_is_refused_all_the_same(proxied: Proxied, shelf: Shelf):
    """304 would say that it may be used."""
    shelf.puts(proxied, "1.0.0")
    path = await shelf.path(proxied, "1.0.0")
    etag = (await proxied.get(path)).headers["etag"]
    await proxied.policy(deny=[deny(shelf.name, "foo", id="r1")])

    assert (await proxied.get(path, if_none_match=etag)).status_code == 302
    assert await proxied.events() == ["install_allowed", "blocklist_hit"]


async def test_time_alone_ends_a_cooldown(proxied: Proxied, shelf: Shelf):
    """Of a page that is in memory, with nothing else changed."""
    recent = START - timedelta(days=6, hours=23, minutes=59, seconds=50)
    shelf.puts(proxied, "1.0.0", "1.1.0", newest=recent)
    await proxied.policy(cooldown={"min_age_days": 7})
    path = await shelf.path(proxied, "1.1.0")
    assert await shelf.marked(proxied) == {"1.1.0"}
    assert (await proxied.get(path)).status_code == 302
    etags = []
    for seconds in (0, 9.9, 0.2):
        proxied.clock.advance(seconds=seconds)
        etags.append((await proxied.get(shelf.page)).headers["etag"])

    assert etags[0] == etags[1] != etags[2]
    assert await shelf.marked(proxied) == set()
    assert (await proxied.get(path)).status_code == 200
    assert await proxied.events() == ["cooldown_active", "install_allowed"]


async def test_in_audit_mode_nothing_is_marked(proxied: Proxied, shelf: Shelf):
    """What is served must be found as it would be without a policy."""
    shelf.puts(proxied, "1.0.0", "1.1.0")
    await proxied.policy(mode="audit", deny=[deny(shelf.name, "foo", "1.0.0", id="r1")])

    assert await shelf.marked(proxied) == set()


async def test_pages_are_confirmed_and_compressed(proxied: Proxied, shelf: Shelf):
    """A weak etag, because the same page is sent in two codings."""
    shelf.puts(proxied, *(f"1.{minor}.0" for minor in range(20)))
    plain = await proxied.get(shelf.page)
    packed = await proxied.get(shelf.page, accept_encoding="gzip")
    etag = packed.headers["etag"]
    known = await proxied.get(shelf.page, if_none_match=etag, accept_encoding="gzip")
    head = await proxied.send("HEAD", shelf.page)

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(await packed.get_data()) == await plain.get_data()
    assert etag == plain.headers["etag"] == head.headers["etag"]
    assert etag.startswith('W/"')
    assert (known.status_code, await known.get_data()) == (304, b"")
    for answer in (plain, packed, known):
        assert answer.headers["cache-control"] == "private, no-cache"
        assert {"accept", "accept-encoding", "authorization"} <= answer.vary.as_set()


async def test_a_file_is_fetched_once(proxied: Proxied, shelf: Shelf):
    """And then served from disk, also while the registry is down."""
    shelf.puts(proxied, "1.0.0", content=BIG)
    path = await shelf.path(proxied, "1.0.0")
    await proxied.get(path)
    proxied.registry.answers.clear()
    async with second_process(proxied) as other:
        served = [await (await each.get(path)).get_data() for each in (proxied, other)]

    assert served == [BIG, BIG]
    assert proxied.registry.times(shelf.upstream) == 1


async def test_a_file_with_another_digest_is_a_502(proxied: Proxied, shelf: Shelf):
    """No byte of it is sent, and nothing is kept."""
    shelf.puts(proxied, "1.0.0", content=b"right")
    path = await shelf.path(proxied, "1.0.0")
    proxied.registry.says(shelf.upstream, b"wrong")

    assert (await shown(await proxied.get(path)))[0] == 502
    proxied.registry.says(shelf.upstream, b"right")
    assert await (await proxied.get(path)).get_data() == b"right"


async def test_without_an_upstream_nothing_is_served(
    settings: Settings, registry: FakeRegistry, shelf: Shelf
):
    changed = {f"proxy_{shelf.name}_upstream": ""}
    async with running_proxy(settings, registry, **changed) as proxied:
        status, text = await shown(await proxied.get(shelf.page))

    assert status == 404
    assert text == (
        f"this proxy serves no {shelf.name} packages: its operator has set no registry for them"
    )
