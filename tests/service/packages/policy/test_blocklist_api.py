"""The operator's API of the blocklist: what is in force, and removing a feed."""

from typing import Any

from tests.conftest import World, refused
from tests.service.packages.policy.osv_files import osv_record
from tests.service.packages.policy.test_blocklist_feeds import import_records, in_force

BLOCKLIST = "/api/v1/operator/blocklist"


async def shown(world: World) -> Any:
    """What the operator is shown."""
    response = await world.client.get(BLOCKLIST, headers=world.admin)
    assert response.status_code == 200
    return await response.get_json()


async def remove(world: World, feed: str) -> Any:
    """The answer to the removal of `feed`."""
    return await world.client.delete(f"{BLOCKLIST}/feeds/{feed}", headers=world.admin)


async def test_without_an_import_there_is_nothing(world: World) -> None:
    assert await shown(world) == {"current": None, "feeds": [], "imports": []}


async def test_feeds_and_imports_are_shown(world: World) -> None:
    await import_records(world, osv_record("MAL-1", "one"), osv_record("MAL-2", "two"))
    await import_records(world, osv_record("GHSA-1", "three", "PyPI"), ids=["*"], feed="own")

    status = await shown(world)

    assert status["current"] == status["imports"][0]
    assert [entry["generation"] for entry in status["imports"]] == [2, 1]
    assert status["current"]["state"] == "imported"
    assert [(feed["feed"], feed["ecosystem"], feed["advisories"]) for feed in status["feeds"]] == [
        ("osv", "npm", 2),
        ("own", "pypi", 1),
    ]
    assert not any(feed["is_stale"] for feed in status["feeds"])


async def test_a_feed_is_stale_after_the_time_that_is_set(world: World) -> None:
    await import_records(world, osv_record("MAL-1", "one"))
    world.clock.advance(seconds=world.services.settings.blocklist_stale_s + 1)

    assert [feed["is_stale"] for feed in (await shown(world))["feeds"]] == [True]


async def test_a_feed_is_removed_and_every_organisation_has_the_row(world: World) -> None:
    """The row names the admin token, which acts for the platform."""
    await import_records(world, osv_record("MAL-1", "one"))
    await import_records(world, osv_record("MAL-2", "two"), feed="own")

    answer = await remove(world, "own")

    assert answer.status_code == 200
    assert await answer.get_json() == {"generation": 3, "feed": "own", "removed": {"npm": 1}}
    assert await in_force(world, "npm:one", "npm:two") == {"npm:one": "MAL-1"}
    for slug in ("acme", "other"):
        row, *_ = await world.audit(slug, event="blocklist_imported")
        assert (row["actor"], row["actor_source"]) == ("system:admin-token", "admin_token")
        assert row["actor_tenant_id"] == world.services.settings.platform_tenant_id
        assert row["verdict_source"] == "admin_api"
        assert row["payload"]["removed"] == {"npm": 1}


async def test_a_feed_that_is_not_listed_cannot_be_removed(world: World) -> None:
    status, text = await refused(await remove(world, "none"))

    assert status == 404
    assert "the blocklist has no feed none" in text


async def test_a_name_that_no_feed_can_have_is_refused(world: World) -> None:
    status, _ = await refused(await remove(world, "No Feed"))

    assert status == 400
