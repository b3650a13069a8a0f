"""A registry that offers another file under the name of one that was served before."""

import asyncio
import base64
import hashlib
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, text

from service.packages.proxy.artifacts import KEPT, delete_expired_artifacts
from service.packages.proxy.file_keys import FileKey, KnownFile
from service.store.tables import Artifact
from tests.conftest import START
from tests.databases import database_url
from tests.processes.command_line import Ran, invoke
from tests.service.packages.proxy.files import LARGE, held
from tests.service.packages.proxy.proxied import BIG, Proxied, deny, second_process, shown, wheel_of
from tests.service.packages.proxy.served import serving

WHEEL = "foo-1.0-py3-none-any.whl"
OLD_FILE, NEW_FILE = b"the file that was served", b"another one"
OLD_SHA, NEW_SHA = (hashlib.sha256(each).hexdigest() for each in (OLD_FILE, NEW_FILE))
NPM_PATH = "npm/left-pad/-/left-pad-1.0.0.tgz"
BLOCKED = "artifact_changed"
CHANGED = ["install_allowed", BLOCKED]


async def serve_and_change(proxied: Proxied, old: bytes = OLD_FILE, new: bytes = NEW_FILE) -> str:
    """Serve a wheel, then have the registry offer other bytes under its name; its path."""
    proxied.publishes("foo", wheel_of("foo", "1.0", old))
    path = await proxied.path_of("foo")
    assert await (await proxied.get(path)).get_data() == old
    proxied.publishes("foo", wheel_of("foo", "1.0", new))
    proxied.clock.advance(minutes=10)
    return path


async def test_the_file_that_was_served_is_served_on(proxied: Proxied):
    """A client that checks the old digest succeeds."""
    path = await serve_and_change(proxied)
    answer = await proxied.get(path)

    assert (answer.status_code, await answer.get_data()) == (200, OLD_FILE)
    assert answer.headers["etag"] == f'"sha256-{OLD_SHA}"'
    _, changed, allowed = await proxied.rows()
    assert (changed["event"], changed["decision"]) == (BLOCKED, "BLOCKED")
    assert changed["payload"] == {
        "file_name": WHEEL,
        "sha256_before": OLD_SHA,
        "sha256_now": NEW_SHA,
        "registry": f"{proxied.registry.url}/simple/",
    }
    assert changed["file_sha256"] == NEW_SHA
    assert (allowed["event"], allowed["file_sha256"]) == ("install_allowed", OLD_SHA)
    assert proxied.registry.times(f"/files/{WHEEL}") == 1


async def test_the_page_has_the_digest_that_was_served(proxied: Proxied):
    await serve_and_change(proxied)
    (file,) = (await proxied.page("foo"))["files"]

    assert file["hashes"] == {"sha256": OLD_SHA}
    assert file.get("size") in {None, len(OLD_FILE)}


@pytest.mark.parametrize("mode", ["enforce", "audit"])
async def test_without_the_old_file_the_name_is_refused_in_every_mode(proxied: Proxied, mode: str):
    """It is not at the registry any more, and the other one must not take its place."""
    path = await serve_and_change(proxied)
    await proxied.policy(mode=mode)
    await proxied.forget_files()
    answers = [await proxied.send(method, path) for method in ("GET", "HEAD", "GET")]

    assert [answer.status_code for answer in answers] == [302] * 3
    assert await proxied.events() == CHANGED
    row = (await proxied.rows())[-1]
    location = answers[0].headers["location"]
    assert f"/blocked/{row['id']}/foo/1.0/file+changed:" in location
    status, said = await shown(await proxied.client.get(location.partition("8080")[2]))
    assert (status, "file changed" in said) == (403, True)


async def test_what_was_served_is_known_after_a_restart_and_to_every_process(proxied: Proxied):
    """The cache may be deleted at any time."""
    path = await serve_and_change(proxied)
    await proxied.forget_files()
    async with second_process(proxied) as other:
        assert (await other.get(path)).status_code == 302


async def test_the_address_of_before_works_on(proxied: Proxied):
    """Lock files have it; PyPI's addresses contain a digest, so the other file has another."""
    proxied.publishes("foo", wheel_of("foo", "1.0", OLD_FILE))
    path = await proxied.path_of("foo")
    await proxied.get(path)
    other = wheel_of("foo", "1.0", NEW_FILE, url=f"{proxied.registry.url}/elsewhere/{WHEEL}")
    proxied.publishes("foo", other)
    proxied.clock.advance(minutes=10)
    new_path = await proxied.path_of("foo")

    assert "elsewhere" in new_path
    for each in (path, new_path):
        assert await (await proxied.get(each)).get_data() == OLD_FILE


async def test_each_organisation_that_asks_gets_its_rows(proxied: Proxied):
    path = await serve_and_change(proxied)
    for _ in range(3):
        await proxied.get(path)

    assert await proxied.events() == [*CHANGED, "install_allowed"]
    assert await proxied.world.audit("other", event=BLOCKED) == []


async def test_a_rule_holds_for_the_file_of_before(proxied: Proxied):
    path = await serve_and_change(proxied)
    await proxied.policy(deny=[deny("pypi", "foo", id="r1")])

    assert (await proxied.get(path)).status_code == 302
    assert (await proxied.events())[-1] == "blocklist_hit"


async def test_the_cooldown_counts_from_the_publication_of_the_served_file(proxied: Proxied):
    proxied.publishes("foo", wheel_of("foo", "1.0", OLD_FILE))
    path = await proxied.path_of("foo")
    await proxied.get(path)
    proxied.publishes("foo", wheel_of("foo", "1.0", NEW_FILE, at=START))
    await proxied.policy(cooldown={"min_age_days": 7})
    proxied.clock.advance(minutes=10)

    assert (await proxied.get(path)).status_code == 200
    assert (await proxied.page("foo"))["files"][0]["yanked"] is False


async def test_a_file_that_never_arrived_is_not_what_was_served(proxied: Proxied):
    """A registry that repairs a wrong digest is not refused for it."""
    gate = asyncio.Event()
    proxied.publishes("foo", wheel_of("foo", "1.0", LARGE))
    proxied.registry.does(f"/files/{WHEEL}", held(LARGE[:-1] + b"!", gate, len(LARGE)))
    async with serving(proxied) as served:
        assert not (await served.get(await proxied.path_of("foo"), on_body=gate)).is_whole
        await served.services.proxy.installs.close()
    proxied.publishes("foo", wheel_of("foo", "1.0", OLD_FILE))
    proxied.clock.advance(minutes=10)

    assert await (await proxied.get(await proxied.path_of("foo"))).get_data() == OLD_FILE
    assert BLOCKED not in await proxied.events()


async def test_a_large_file_is_known_before_its_last_byte_is_sent(proxied: Proxied):
    gate = asyncio.Event()
    proxied.publishes("foo", wheel_of("foo", "1.0", LARGE))
    proxied.registry.does(f"/files/{WHEEL}", held(LARGE, gate, len(LARGE)))
    async with serving(proxied) as served:
        path = await proxied.path_of("foo")
        assert (await served.get(path, on_body=gate)).body == LARGE
        async with proxied.world.services.store.read() as session:
            known = (await session.execute(text("SELECT digest FROM artifacts"))).all()

    assert known == [(f"sha256:{hashlib.sha256(LARGE).hexdigest()}",)]


async def test_an_npm_tarball_that_changes_is_refused(proxied: Proxied):
    proxied.publishes_npm("left-pad", "1.0.0", content=OLD_FILE)
    assert await (await proxied.get(NPM_PATH)).get_data() == OLD_FILE
    proxied.publishes_npm("left-pad", "1.0.0", content=NEW_FILE)
    proxied.clock.advance(minutes=10)
    dist = (await proxied.document("left-pad"))["versions"]["1.0.0"]["dist"]
    answer = await proxied.get(NPM_PATH)

    digest = base64.b64encode(hashlib.sha512(OLD_FILE).digest()).decode()
    assert {name: value for name, value in dist.items() if name != "tarball"} == {
        "integrity": f"sha512-{digest}"
    }
    assert await answer.get_data() == OLD_FILE
    _, changed, _ = await proxied.rows()
    assert (changed["payload"]["sha256_before"], changed["payload"]["sha256_now"]) == (
        OLD_SHA,
        None,
    )


@pytest.mark.parametrize(
    ("offered", "is_same"),
    [
        ({"sha512:01"}, True),
        ({"sha512:01", "sha1:ff"}, True),
        ({"sha256:02", "md5:ff"}, True),
        ({"sha512:02"}, False),
        ({"sha512:01", "sha256:03"}, False),
        ({"sha1:01"}, False),
        (set(), False),
    ],
)
def test_files_are_the_same_if_a_digest_says_so_and_none_denies_it(
    offered: set[str], is_same: bool
):
    """A registry that no longer states such a digest could offer anything."""
    fill = {"sha512": 128, "sha256": 64, "sha1": 40, "md5": 32}

    def full(digest: str) -> str:
        algorithm, value = digest.split(":")
        return f"{algorithm}:{value * (fill[algorithm] // 2)}"

    known = KnownFile("1.0", FileKey("sha512", "01" * 64), "02" * 32, None)
    assert known.is_same(frozenset(map(full, offered))) is is_same


async def test_a_file_is_remembered_for_two_years_after_its_last_install(proxied: Proxied):
    async def count() -> Any:
        async with proxied.world.services.store.read() as session:
            return await session.scalar(text("SELECT count(*) FROM artifacts"))

    proxied.publishes("foo", wheel_of("foo", "1.0", BIG))
    path = await proxied.path_of("foo")
    await proxied.get(path)
    proxied.clock.advance(days=100)
    await proxied.get(path)
    proxied.clock.now += KEPT - timedelta(days=1)
    await delete_expired_artifacts(proxied.world.services.store)
    assert await count() == 1
    proxied.clock.advance(days=1)
    await delete_expired_artifacts(proxied.world.services.store)
    assert await count() == 0


async def test_of_too_many_files_the_oldest_are_forgotten(proxied: Proxied, monkeypatch):
    monkeypatch.setattr("service.packages.proxy.artifacts.ARTIFACTS_MAX", 2)
    for number in range(4):
        proxied.publishes("foo", wheel_of("foo", f"1.{number}"))
        await proxied.get(await proxied.path_of("foo"))
        proxied.clock.advance(minutes=1)
    await delete_expired_artifacts(proxied.world.services.store)
    async with proxied.world.services.store.read() as session:
        rows = (await session.execute(text("SELECT version FROM artifacts ORDER BY version"))).all()

    assert rows == [("1.2",), ("1.3",)]


async def test_many_files_of_one_registry_push_out_none_of_another(proxied: Proxied, monkeypatch):
    """Otherwise one could fill a registry of one's own to have others' files replaced unnoticed."""
    monkeypatch.setattr("service.packages.proxy.artifacts.ARTIFACTS_MAX", 3)
    proxied.publishes("foo", wheel_of("foo", "1.0"))
    await proxied.get(await proxied.path_of("foo"))
    proxied.publishes_npm("many", *(f"1.{number}.0" for number in range(5)))
    for number in range(5):
        proxied.clock.advance(minutes=1)
        await proxied.get(f"npm/many/-/many-1.{number}.0.tgz")

    await delete_expired_artifacts(proxied.world.services.store)

    async with proxied.world.services.store.read() as session:
        rows = (await session.execute(text("SELECT version FROM artifacts ORDER BY version"))).all()
    assert rows == [("1.0",), ("1.3.0",), ("1.4.0",)]


async def countersign(proxied: Proxied, *arguments: str) -> Ran:
    """A command over the data dir of the service."""
    data_dir = proxied.world.services.settings.data_dir
    environment = {
        "COUNTERSIGN_DATA_DIR": str(data_dir),
        "COUNTERSIGN_DATABASE_URL": database_url(data_dir),
    }
    return await asyncio.to_thread(invoke, [*arguments, "--json"], environment)


async def test_the_operator_accepts_a_change_by_its_digest(proxied: Proxied):
    path = await serve_and_change(proxied)
    async with second_process(proxied) as other:
        for each in (proxied, other):
            assert await (await each.get(path)).get_data() == OLD_FILE
            assert (await each.page("foo"))["files"][0]["hashes"] == {"sha256": OLD_SHA}
        (listed,) = (await countersign(proxied, "artifact", "list")).json["artifacts"]
        assert (listed["digest"], listed["offered_digest"]) == (
            f"sha256:{OLD_SHA}",
            f"sha256:{NEW_SHA}",
        )
        wrong = await countersign(
            proxied, "artifact", "accept", WHEEL, "--digest", f"sha256:{OLD_SHA}"
        )
        assert (wrong.code, "countersign artifact list" in wrong.refusal) == (1, True)
        accepted = await countersign(
            proxied, "artifact", "accept", WHEEL, "--digest", f"sha256:{NEW_SHA}"
        )
        assert accepted.json["digest"] == f"sha256:{NEW_SHA}"
        for each in (proxied, other):
            assert await (await each.get(path)).get_data() == NEW_FILE
            assert (await each.page("foo"))["files"][0]["hashes"] == {"sha256": NEW_SHA}
        assert (await countersign(proxied, "artifact", "list")).json == {"artifacts": []}

    for slug in ("acme", "other"):
        (row,) = await proxied.world.audit(slug, event="artifact_accepted")
        assert row["payload"] == {
            "ecosystem": "pypi",
            "registry": f"{proxied.registry.url}/simple/",
            "package": "foo",
            "version": "1.0",
            "file_name": WHEEL,
            "digest_before": f"sha256:{OLD_SHA}",
            "digest_now": f"sha256:{NEW_SHA}",
        }


async def test_a_registry_that_takes_its_change_back_offers_nothing_to_accept(proxied: Proxied):
    """Accepted by then, the other file would refuse the one that is offered."""
    path = await serve_and_change(proxied)
    assert await (await proxied.get(path)).get_data() == OLD_FILE
    assert len((await countersign(proxied, "artifact", "list")).json["artifacts"]) == 1
    proxied.publishes("foo", wheel_of("foo", "1.0", OLD_FILE))
    proxied.clock.advance(minutes=10)
    assert await (await proxied.get(path)).get_data() == OLD_FILE
    order = ("artifact", "accept", WHEEL, "--digest", f"sha256:{NEW_SHA}")

    assert (await countersign(proxied, "artifact", "list")).json == {"artifacts": []}
    assert (await countersign(proxied, *order)).code == 1
    proxied.publishes("foo", wheel_of("foo", "1.0", NEW_FILE))
    proxied.clock.advance(minutes=10)
    await proxied.get(path)
    assert (await countersign(proxied, *order)).code == 0


async def test_a_name_at_several_registries_needs_one_of_them(proxied: Proxied):
    path = await serve_and_change(proxied)
    await proxied.get(path)
    async with proxied.world.services.store.write() as work:
        (artifact,) = (await work.session.scalars(select(Artifact))).all()
        columns = [column.name for column in Artifact.__table__.columns]
        values = {name: getattr(artifact, name) for name in columns}
        work.session.add(Artifact(**{**values, "registry_url": "https://mirror.example/simple/"}))
    order = ("artifact", "accept", WHEEL, "--digest", f"sha256:{NEW_SHA}")
    refused = await countersign(proxied, *order)

    assert (refused.code, "--registry" in refused.refusal) == (1, True)
    url = f"{proxied.registry.url}/simple/"
    assert (await countersign(proxied, *order, "--registry", url)).json["registry"] == url
