"""The cure at the proxy: what is listed, served and recorded, and what the pages say."""

from datetime import timedelta
from typing import Any

import pytest

from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import load
from tests.service.packages.proxy.proxied import OLD, Proxied, wheel_of

CURE = {"min_age_days": 7, "cure": True}
BY_ADVISORY = {"affected": "1.0.0", "advisory_id": "MAL-1"}


async def advise(proxied: Proxied, name: str, ecosystem: str, *versions: str) -> None:
    """Import MAL-1, which affects these versions."""
    record = osv_record("MAL-1", name, ecosystem, versions=list(versions), ranges=[])
    await load(proxied.world.services.store, osv_zip([record]))


async def npm(proxied: Proxied, **cooldown: Any) -> dict[str, Any]:
    """left-pad: 1.0.0 is old and affected, 1.1.0 and 1.2.0 are two days old; its document."""
    young = proxied.clock.now - timedelta(days=2)
    proxied.publishes_npm(
        "left-pad", "1.0.0", "1.1.0", "1.2.0", at={"1.1.0": young, "1.2.0": young}
    )
    await advise(proxied, "left-pad", "npm", "1.0.0")
    await proxied.policy(cooldown=cooldown or CURE)
    document: dict[str, Any] = await proxied.document("left-pad")
    return document


def tarball(version: str) -> str:
    return f"npm/left-pad/-/left-pad-{version}.tgz"


async def test_npm_documents_lead_to_the_cure(proxied: Proxied):
    """A range finds it, and so does the tag that points above it."""
    document = await npm(proxied)

    marked = {name for name, each in document["versions"].items() if "deprecated" in each}
    assert marked == {"1.0.0", "1.2.0"}
    assert document["dist-tags"]["latest"] == "1.1.0"
    tags = await proxied.get("npm/-/package/left-pad/dist-tags")
    assert await tags.get_json() == {"latest": "1.1.0"}


async def test_its_file_is_served_and_the_row_says_why(proxied: Proxied):
    await npm(proxied)

    statuses = [(await proxied.get(tarball(v))).status_code for v in ("1.0.0", "1.1.0", "1.2.0")]

    assert statuses == [302, 200, 302]
    assert await proxied.events() == ["blocklist_hit", "install_allowed", "cooldown_active"]
    (row,) = [row for row in await proxied.rows() if row["event"] == "install_allowed"]
    assert row["payload"]["cured"] == BY_ADVISORY


async def test_without_it_the_cooldown_holds(proxied: Proxied):
    document = await npm(proxied, min_age_days=7)

    assert "deprecated" in document["versions"]["1.1.0"]
    assert (await proxied.get(tarball("1.1.0"))).status_code == 302


async def test_pypi_pages_lead_to_the_cure(proxied: Proxied):
    young = proxied.clock.now - timedelta(days=2)
    fixed, newer = wheel_of("pad", "1.1.0", at=young), wheel_of("pad", "1.2.0", at=young)
    proxied.publishes("pad", wheel_of("pad", "1.0.0"), fixed, newer)
    await advise(proxied, "pad", "PyPI", "1.0.0")
    await proxied.policy(cooldown=CURE)

    files = (await proxied.page("pad"))["files"]
    assert [file["yanked"] is False for file in files] == [False, True, False]
    for wheel, status in ((fixed, 200), (newer, 302)):
        path = await proxied.path_of("pad", wheel.filename)
        assert (await proxied.get(path)).status_code == status


async def test_a_page_changes_when_the_fix_is_advised_or_old_enough(proxied: Proxied):
    """Pages are cached until something decides otherwise: an import, or time."""
    await npm(proxied)
    proxied.clock.advance(days=5)
    old_enough = await proxied.document("left-pad")
    await advise(proxied, "left-pad", "npm", "1.0.0", "1.1.0")
    advised = await proxied.document("left-pad")

    assert "deprecated" not in old_enough["versions"]["1.2.0"]
    assert "MAL-1" in advised["versions"]["1.1.0"]["deprecated"]
    assert advised["dist-tags"]["latest"] == "1.2.0"


async def test_a_fix_that_is_withdrawn_is_none(proxied: Proxied):
    young = proxied.clock.now - timedelta(days=2)
    proxied.publishes(
        "pad",
        wheel_of("pad", "1.0.0", at=OLD),
        wheel_of("pad", "1.1.0", at=young, yanked="oops"),
        wheel_of("pad", "1.2.0", at=young),
    )
    await advise(proxied, "pad", "PyPI", "1.0.0")
    await proxied.policy(cooldown=CURE)

    files = (await proxied.page("pad"))["files"]

    assert files[2]["yanked"] is False


@pytest.mark.parametrize(("is_known", "decision"), [(True, "ALLOWED"), (False, "BLOCKED")])
async def test_a_check_asks_the_document_that_was_fetched(
    proxied: Proxied, is_known: bool, decision: str
):
    """It asks no registry: of a package that was never installed, no cure is known."""
    if is_known:
        await npm(proxied)
    else:
        await advise(proxied, "left-pad", "npm", "1.0.0")
        await proxied.policy(cooldown=CURE)
    asked = {"ecosystem": "npm", "package": "left-pad@1.1.0"}
    asked["published_at"] = f"{proxied.clock.now:%Y-%m-%dT%H:%M:%SZ}"

    answer = await proxied.client.post(
        "/api/v1/admin/orgs/acme/policy/check", json=asked, headers=proxied.world.admin
    )

    said = await answer.get_json()
    assert said["decision"] == decision, said
    assert said["reason"].startswith("the cure: " if is_known else "too new: ")
