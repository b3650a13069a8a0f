"""Asking for the installs that one advisory or deny rule would have blocked."""

from typing import Any

import pytest

from tests.conftest import World, refused
from tests.service.packages.policy.osv_files import osv_record
from tests.service.packages.policy.test_blocklist_feeds import import_records
from tests.service.packages.proxy.conftest import proxied, registry
from tests.service.packages.proxy.proxied import Proxied, wheel_of
from tests.service.packages.retro.test_matcher import deny, installed

__all__ = ["proxied", "registry"]


async def asked(world: World, rule_id: str, slug: str = "acme", who: str = "auditor") -> Any:
    path = f"/api/v1/admin/orgs/{slug}/affected/{rule_id}"
    return await world.client.get(path, headers=world.session(who))


async def affected(world: World, rule_id: str, **whose: str) -> Any:
    answer = await asked(world, rule_id, **whose)
    assert answer.status_code == 200
    return await answer.get_json()


async def test_an_advisory_of_long_ago_names_the_installs_of_today(world: World) -> None:
    await import_records(world, osv_record("MAL-1", aliases=["CVE-2026-1"]))
    await world.services.retro.match_due()
    await installed(world, "npm:evil@1.0.0", run_id="7", repository_id="1", subject="repo:acme/app")
    await installed(world, "npm:evil@2.0.0", "npm:other@1.0.0")

    found = await affected(world, "CVE-2026-1")

    assert found["is_in_force"]
    (rule,) = found["affected"]
    assert (rule["rule_id"], rule["source"], rule["number"]) == ("MAL-1", "osv", 1)
    assert (rule["installs"], rule["runs"], rule["packages"]) == (2, 1, ["npm:evil"])
    assert sorted(file["version"] for file in found["files"]) == ["1.0.0", "2.0.0"]
    entries = [(row["version"], row["subject"], row["run_id"]) for row in found["entries"]]
    assert entries == [("2.0.0", None, None), ("1.0.0", "repo:acme/app", "7")]


async def test_a_deny_rule_with_any_id_and_an_advisory_of_the_same(world: World) -> None:
    await installed(world, "npm:evil@1.0.0", "npm:evil@2.0.0")
    await deny(world, {"package": "evil", "versions": "<2", "id": "INC/4711 <2"})
    await import_records(world, osv_record("MAL-1"))
    await deny(world, {"package": "evil", "versions": "<2", "id": "MAL-1"})

    both = (await affected(world, "MAL-1"))["affected"]
    assert [(each["source"], each["installs"]) for each in both] == [("operator", 1), ("osv", 2)]
    assert not (await affected(world, "INC/4711 <2"))["is_in_force"]
    await deny(world, {"package": "evil", "versions": "<2", "id": "INC/4711 <2"})
    (rule,) = (await affected(world, "INC/4711 <2"))["affected"]
    assert (rule["installs"], rule["number"]) == (1, 3)


async def test_an_id_that_is_not_in_force_is_no_all_clear(world: World) -> None:
    await installed(world, "npm:evil@1.0.0")

    found = await affected(world, "MAL-1")

    assert (found["is_in_force"], found["affected"], found["entries"]) == (False, [], [])


@pytest.mark.parametrize("place", ["/api/v1/admin/orgs/acme", "/admin/ui/orgs/acme"])
async def test_an_id_with_a_nul_is_refused_whichever_database_it_is(world: World, place: str):
    answer = await world.client.get(f"{place}/affected/MAL%001", headers=world.admin)

    assert answer.status_code == 400
    assert "must not have a NUL character" in await answer.get_data(as_text=True)


async def test_each_organisation_sees_its_own_and_who_may_read_its_log(world: World) -> None:
    await installed(world, "npm:evil@1.0.0")
    await import_records(world, osv_record("MAL-1"))

    assert (await affected(world, "MAL-1", slug="other", who="stranger"))["affected"] == []
    assert (await asked(world, "MAL-1", who="stranger")).status_code == 403
    assert (await refused(await asked(world, "MAL-1", who="member")))[0] == 403


async def test_a_file_is_told_to_be_in_the_cache_of_the_proxy(proxied: Proxied) -> None:
    proxied.publishes("foo", wheel_of("foo", "1.0", b"one"), wheel_of("foo", "2.0", b"two"))
    await (await proxied.get(await proxied.path_of("foo"))).get_data()
    await import_records(proxied.world, osv_record("MAL-1", "foo", "PyPI"))

    before = (await affected(proxied.world, "MAL-1"))["files"]
    await proxied.forget_files()
    after = (await affected(proxied.world, "MAL-1"))["files"]

    assert [(each["version"], each["is_cached"]) for each in before] == [("1.0", True)]
    assert [(each["version"], each["is_cached"]) for each in after] == [("1.0", False)]
