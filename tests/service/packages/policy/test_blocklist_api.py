"""The operator's API of the blocklist: what is in force, comparing with it, and removing a feed."""

import json
import threading
from typing import Any

import pytest

from service.packages.policy import sbom
from service.packages.policy.blocklist_api import SENT_SBOM_BYTES_MAX
from tests.conftest import World, refused
from tests.service.packages.policy.osv_files import osv_record
from tests.service.packages.policy.test_blocklist_feeds import import_records, in_force
from tests.service.test_off_the_loop import threads_of

BLOCKLIST = "/api/v1/operator/blocklist"


async def shown(world: World) -> Any:
    response = await world.client.get(BLOCKLIST, headers=world.admin)
    assert response.status_code == 200
    return await response.get_json()


async def remove(world: World, feed: str) -> Any:
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


async def check(world: World, content: str | bytes, kind: str = "application/json") -> Any:
    """The answer to a bill of materials."""
    headers = world.admin | {"content-type": kind}
    return await world.client.post(f"{BLOCKLIST}/check", headers=headers, data=content)


def bill(*purls: str) -> str:
    components = [{"type": "library", "purl": purl} for purl in purls]
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": components})


async def test_a_bill_of_materials_is_compared(world: World) -> None:
    await import_records(world, osv_record("MAL-1", "one"), osv_record("MAL-2", "two"))

    answer = await check(world, bill("pkg:npm/one@1.0.0", "pkg:npm/good@1.0.0", "pkg:gem/a@1"))

    assert answer.status_code == 200
    assert await answer.get_json() == {
        "compared": 2,
        "others": 1,
        "findings": [
            {"ecosystem": "npm", "package": "one", "version": "1.0.0", "advisories": ["MAL-1"]}
        ],
    }


async def test_a_comparison_with_an_empty_list_is_refused(world: World) -> None:
    """It must not look like one without findings."""
    answer = await check(world, bill("pkg:npm/one@1.0.0"))

    assert await refused(answer) == (
        409,
        "the blocklist is empty: import an archive of OSV records first",
    )


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        ('{"spdxVersion": "SPDX-2.3", "packages": []}', "application/json", 400),
        ("", "application/json", 400),
        (b'{"bomFormat": "CycloneDX", "components": [{"purl": "\xff"}]}', "application/json", 400),
        (bill(), "text/plain", 415),
    ],
)
async def test_what_is_no_bill_of_materials_is_refused(
    world: World, content: str | bytes, kind: str, status: int
) -> None:
    assert (await refused(await check(world, content, kind)))[0] == status


async def test_a_long_bill_of_materials_is_compared_and_a_longer_one_refused(world: World) -> None:
    """Real ones have some hundred KB, far more than other bodies may."""
    await import_records(world, osv_record("MAL-1", "one"))
    text = bill(*(f"pkg:npm/one@1.0.{number}" for number in range(5_000)))
    assert len(text) > world.services.settings.body_bytes_max

    compared = await check(world, text)
    too_long = await check(world, text + " " * SENT_SBOM_BYTES_MAX)

    assert (await compared.get_json())["compared"] == 5_000
    assert (await refused(too_long))[0] == 413


async def test_a_bill_of_materials_is_read_in_a_thread(world: World, monkeypatch) -> None:
    """One of 16 MiB takes a part of a second."""
    threads = threads_of(monkeypatch, sbom, "parse_sbom")
    await import_records(world, osv_record("MAL-1", "one"))

    answer = await check(world, bill("pkg:npm/one@1.0.0"))

    assert answer.status_code == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads
