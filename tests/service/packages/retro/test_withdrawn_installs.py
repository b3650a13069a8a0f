"""Past installs of releases that a registry has withdrawn, found in every organisation."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from service.app.background_jobs import own_jobs
from service.app.composition import Services
from service.packages.proxy.artifacts import SETTLED
from service.packages.proxy.document_cache import EMPTIED_AFTER
from tests.conftest import World
from tests.crashes import kill_process
from tests.polling import HANG_S, until
from tests.processes.command_line import invoke
from tests.service.packages.proxy.conftest import proxied, registry
from tests.service.packages.proxy.proxied import Proxied, second_process, wheel_of
from tests.service.packages.proxy.registry import Asked
from tests.service.packages.proxy.test_withdrawn import OTHER, served
from tests.service.packages.retro.test_affected_api import affected
from tests.service.packages.retro.test_matcher import installed, matched

__all__ = ["invoke", "proxied", "registry"]

RULE = "withdrawn:pypi:foo@1.0"


async def withdraw(proxied: Proxied, *left: Any) -> None:
    """The registry lists foo 2.0 alone, and what is `left`; and does so for long enough."""
    proxied.publishes("foo", OTHER, *left)
    await proxied.page("foo")
    proxied.clock.now += SETTLED
    await ask_again(proxied)


async def ask_again(proxied: Proxied) -> None:
    """Run the job that asks registries, and wait until what it notes counts for past installs."""
    await proxied.world.services.proxy.ask_again("platform")
    proxied.clock.advance(minutes=1)


async def test_installs_of_a_withdrawn_release_are_found_in_every_organisation(proxied: Proxied):
    world = proxied.world
    await served(proxied, OTHER)
    await installed(world, "pypi:foo@1.0", "pypi:foo@2.0", "npm:foo@1.0", slug="other")
    await withdraw(proxied)

    found = await matched(world)

    assert found.keys() == {RULE}
    rule = found[RULE]
    assert (rule["source"], rule["installs"], rule["packages"]) == ("registry", 1, ["pypi:foo"])
    (other,) = await world.audit("other", event="installs_matched")
    assert (other["payload"]["rule_id"], other["payload"]["installs"]) == (RULE, 1)
    assert await matched(world) == found
    counted = world.services.metrics.exposition().decode()
    assert 'countersign_retro_matches_total{source="registry"} 2.0' in counted


async def test_one_older_document_that_no_request_follows_tells_nothing(proxied: Proxied):
    """A network that delivers documents has older ones, and a row stays."""
    await served(proxied, OTHER)
    proxied.publishes("foo", OTHER)
    await proxied.page("foo")
    proxied.publishes("foo", wheel_of("foo", "1.0"), OTHER)
    proxied.clock.now += SETTLED + timedelta(minutes=1)

    assert await matched(proxied.world) == {}
    assert not (await affected(proxied.world, RULE))["is_in_force"]
    asked = proxied.registry.times("/simple/foo/")
    for _ in range(3):
        await ask_again(proxied)
        assert await matched(proxied.world) == {}
    assert proxied.registry.times("/simple/foo/") == asked + 1  # it lists the file: that is all


async def test_a_registry_that_does_not_answer_is_asked_until_it_does(proxied: Proxied):
    await served(proxied, OTHER)
    proxied.publishes("foo", OTHER)
    await proxied.page("foo")
    proxied.registry.says("/simple/foo/", status=503)
    proxied.clock.now += SETTLED
    await ask_again(proxied)
    assert await matched(proxied.world) == {}
    proxied.publishes("foo", OTHER)

    await ask_again(proxied)

    assert (await matched(proxied.world)).keys() == {RULE}


async def test_a_package_that_is_gone_is_asked_for_again_by_another_process(proxied: Proxied):
    """The one that saw it first ended, and no client asks again: nothing is in memory."""
    await served(proxied)
    proxied.publishes("bar", wheel_of("bar", "1.0"))
    proxied.registry.says("/simple/foo/", status=404)
    async with second_process(proxied) as first:
        assert (await first.get("pypi/simple/foo/")).status_code == 404
    proxied.clock.now += SETTLED
    await ask_again(proxied)
    proxied.clock.now += EMPTIED_AFTER
    await ask_again(proxied)
    assert await matched(proxied.world) == {}  # it may have lost all packages
    await proxied.page("bar")

    await ask_again(proxied)

    assert (await matched(proxied.world)).keys() == {RULE}


def last_runs(services: Services) -> dict[str, float]:
    """When each job last ran without failing."""
    name = "countersign_maintenance_last_success_timestamp_seconds"
    exposed = services.metrics.exposition().decode()
    return {job: float(at) for job, at in re.findall(rf'{name}{{task="(\w+)"}} (\S+)', exposed)}


async def test_a_registry_that_does_not_answer_keeps_no_other_job_waiting(proxied: Proxied):
    await served(proxied, OTHER)
    proxied.publishes("foo", OTHER)
    await proxied.page("foo")
    proxied.clock.now += SETTLED
    services, stop, asked = proxied.world.services, asyncio.Event(), asyncio.Event()

    async def hangs(_: Asked, __: asyncio.StreamWriter) -> None:
        asked.set()
        await stop.wait()

    proxied.registry.does("/simple/foo/", hangs)
    services.proxy.registries[Ecosystem.PYPI].public.documents.patience_s = HANG_S
    loops = asyncio.gather(*(loop.run(stop) for loop in own_jobs(services)))
    await asked.wait()
    proxied.clock.advance(hours=1)
    await until(lambda: last_runs(services)["verify_suspects"] == proxied.clock.now.timestamp())
    assert "ask_registries_again" not in last_runs(services)

    stop.set()
    await loops


async def test_nothing_is_told_before_it_is_certain_nor_of_what_is_listed_again(proxied: Proxied):
    await served(proxied, OTHER)
    proxied.publishes("foo", OTHER)
    await proxied.page("foo")
    assert await matched(proxied.world) == {}
    proxied.publishes("foo", wheel_of("foo", "1.0"), OTHER)
    proxied.clock.now += SETTLED
    await proxied.page("foo")

    assert await matched(proxied.world) == {}


async def test_it_is_told_again_if_it_is_withdrawn_again(proxied: Proxied):
    await served(proxied, OTHER)
    await withdraw(proxied)
    await matched(proxied.world)
    proxied.publishes("foo", wheel_of("foo", "1.0"), OTHER)
    proxied.clock.advance(minutes=1)
    await proxied.page("foo")
    assert not (await affected(proxied.world, RULE))["is_in_force"]
    await proxied.world.services.retro.match_due()
    proxied.clock.advance(minutes=10)
    await withdraw(proxied)

    await proxied.world.services.retro.match_due()

    assert len(await proxied.world.audit(event="installs_matched")) == 2


async def test_other_files_of_the_version_are_told_apart_by_their_digest(proxied: Proxied):
    proxied.publishes("foo", wheel_of("foo", "1.0"), OTHER)
    await served(proxied, OTHER)
    files = {"file_sha256": "ab" * 32}
    await installed(proxied.world, "pypi:foo@1.0", **files)
    await installed(proxied.world, "pypi:foo@1.0")
    await withdraw(proxied)

    assert (await matched(proxied.world))[RULE]["installs"] == 2


async def test_one_withdrawn_release_is_asked_for_by_its_id(proxied: Proxied):
    await served(proxied, OTHER)
    assert not (await affected(proxied.world, RULE))["is_in_force"]
    await withdraw(proxied)

    found = await affected(proxied.world, RULE)

    assert found["is_in_force"]
    assert [each["rule_id"] for each in found["affected"]] == [RULE]
    assert [(each["version"], each["is_cached"]) for each in found["files"]] == [("1.0", True)]
    assert [entry["version"] for entry in found["entries"]] == ["1.0"]
    assert not (await affected(proxied.world, "withdrawn:pypi:foo@2.0"))["is_in_force"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
async def test_a_match_is_recorded_once_whenever_the_job_is_killed(proxied: Proxied, number: int):
    await served(proxied, OTHER)
    await withdraw(proxied)
    settings, now = proxied.world.services.settings, proxied.clock.now

    await kill_process(settings, now, "match", "COMMIT", number, after="INSERT INTO journal")
    proxied.clock.advance(seconds=settings.lease_s + 1)

    assert (await matched(proxied.world)).keys() == {RULE}


async def test_the_command_knows_no_such_id(world: World):
    found = await affected(world, RULE)

    assert (found["is_in_force"], found["affected"]) == (False, [])
