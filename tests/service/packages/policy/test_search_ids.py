"""Advisories and rules are found by their ids: what they are about is what is searched for."""

import pytest

from analytics.model.filters import InvalidQuery
from analytics.model.rows import VerdictSource
from service.access.callers import ApiKeyPrincipal, RequestOrigin, cli_caller
from service.audit.readings import Reading, Searcher
from service.packages.policy.document import parse_policy
from service.packages.policy.repository import set_policy
from service.packages.policy.search_ids import (
    PACKAGES_MAX,
    RECORDS_MAX,
    read_advisory,
    read_rule,
)
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, World
from tests.service.packages.policy.osv_files import EVERYTHING, osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import load

CVE = osv_record("GHSA-mh6f-8j2x-4483", "event-stream", aliases=["CVE-2018-16487", 7, "a b"])


def searcher(world: World, org: Organisation | None = None) -> Searcher:
    """The operator, who may read the policy."""
    return Searcher(world.services.store, org or world.acme, cli_caller("org_platform"))


async def _deny(world: World, *rules: dict[str, object]) -> None:
    async with world.services.store.write() as work:
        await set_policy(work, world.acme, parse_policy({"deny": [*rules]}), BY_OPERATOR)


@pytest.mark.parametrize(
    "text",
    [
        "GHSA-mh6f-8j2x-4483",
        "ghsa-MH6F-8j2x-4483",
        "CVE-2018-16487",
        "cve-2018-16487",
        "https://github.com/advisories/GHSA-mh6f-8j2x-4483",
        "https://nvd.nist.gov/vuln/detail/CVE-2018-16487#range-1",
    ],
)
async def test_an_imported_advisory_is_read_as_its_packages(world: World, text: str) -> None:
    await load(world.services.store, osv_zip([CVE]), ["*"])

    (reading,) = await read_advisory(searcher(world), text)

    assert reading.filters == {"ecosystem": ("npm",), "package": ("event-stream",)}


def _affected(reading: Reading, package: str, *versions: str) -> list[str]:
    assert reading.includes is not None
    return [each for each in versions if reading.includes(package, each)]


async def test_an_advisory_means_the_versions_that_it_affects(world: World) -> None:
    """A version that cannot be read cannot be shown to lie outside a range."""
    events = [{"introduced": "3.3.0"}, {"fixed": "3.3.7"}]
    record = osv_record(
        "GHSA-mh6f-8j2x-4483",
        "event-stream",
        ranges=[{"type": "SEMVER", "events": events}],
        versions=["4.0.0-rc.1"],
        aliases=["CVE-2018-16487"],
    )
    await load(world.services.store, osv_zip([record]), ["*"])

    (reading,) = await read_advisory(searcher(world), "cve-2018-16487")

    assert reading.filters["version"] == ("affected by cve-2018-16487",)
    assert reading.identity == {"ecosystem": ("npm",), "package": ("event-stream",)}
    versions = ("3.2.9", "3.3.0", "3.3.6", "3.3.7", "4.0.0-rc.1", "latest")
    affected = _affected(reading, "event-stream", *versions)
    assert affected == ["3.3.0", "3.3.6", "4.0.0-rc.1", "latest"]


async def test_advisories_with_the_same_alias_are_read_together(world: World) -> None:
    """As GHSA and PYSEC have it: each is about its package, in the versions of its ecosystem."""
    records = [
        osv_record(f"{database}-2026-1", name, ecosystem, versions=versions, ranges=ranges)
        | {"aliases": ["CVE-2026-1000"]}
        for database, name, ecosystem, versions, ranges in (
            ("GO", "both", "npm", ["1.0.0"], []),
            ("PYSEC", "both", "PyPI", ["2.0"], []),
            ("PYSEC-B", "both", "PyPI", ["3.0"], []),
            ("MAL", "evil", "npm", [], EVERYTHING),
        )
    ]
    await load(world.services.store, osv_zip(records), ["*"])

    (reading,) = await read_advisory(searcher(world), "CVE-2026-1000")

    versions = ("1.0.0", "1.0", "2", "3.0.0", "4.0.0")
    assert _affected(reading, "both", *versions) == ["1.0.0", "2", "3.0.0"]
    assert _affected(reading, "evil", *versions) == [*versions]


async def test_an_advisory_on_files_alone_means_all_versions(world: World) -> None:
    digest = {"package_integrity": [{"sha256": "ab" * 32}]}
    record = osv_record("MAL-2026-2", ranges=[])
    record["affected"][0]["database_specific"] = digest
    await load(world.services.store, osv_zip([record]), ["*"])

    (reading,) = await read_advisory(searcher(world), "MAL-2026-2")

    assert reading.filters == {"ecosystem": ("npm",), "package": ("evil",)}


async def test_only_the_list_in_force_is_asked(world: World) -> None:
    """Names stay over imports; an advisory that was withdrawn must not come back by its name."""
    store = world.services.store
    await load(store, osv_zip([CVE, osv_record("MAL-2026-1")]), ["*"])
    await load(store, osv_zip([osv_record("MAL-2026-1")]), ["*"])

    with pytest.raises(InvalidQuery, match="no imported advisory"):
        await read_advisory(searcher(world), "CVE-2018-16487")
    assert await read_advisory(searcher(world), "MAL-2026-1")


async def test_an_advisory_of_another_feed_is_found_by_its_own_id(world: World) -> None:
    store = world.services.store
    await load(store, osv_zip([osv_record("ACME-2026-1", "evil")]), ["*"], feed="acme")
    (reading,) = await read_advisory(searcher(world), "ACME-2026-1")
    assert reading.filters["package"] == ("evil",)


async def test_an_unknown_advisory_is_refused(world: World) -> None:
    """As the name of a package it would occur in no row, which would be believed."""
    with pytest.raises(InvalidQuery, match="search for the package") as refusal:
        await read_advisory(searcher(world), "GHSA-aaaa-bbbb-cccc")
    assert refusal.value.field == "q"


@pytest.mark.parametrize(
    "text", ["npm-run-all", "go-2024", "event-2024-11-01", "cve-search", "mal"]
)
async def test_names_of_packages_are_no_advisories(world: World, text: str) -> None:
    assert await read_advisory(searcher(world), text) == []


async def test_an_advisory_of_very_many_packages_is_refused(world: World) -> None:
    store = world.services.store
    record = osv_record("MAL-2026-1")
    record["affected"] = [
        {"package": {"ecosystem": "npm", "name": f"evil-{number}"}, "versions": ["1.0.0"]}
        for number in range(PACKAGES_MAX + 1)
    ]
    await load(store, osv_zip([record]), ["*"])

    with pytest.raises(InvalidQuery, match="more than 50 packages"):
        await read_advisory(searcher(world), "MAL-2026-1")


async def test_an_alias_of_very_many_advisories_is_refused(world: World) -> None:
    """Those that are not read may name other versions of the same package."""
    records = [
        osv_record(f"MAL-2026-{number}", ranges=[], versions=[f"1.0.{number}"])
        | {"aliases": ["CVE-2026-1000"]}
        for number in range(RECORDS_MAX + 1)
    ]
    await load(world.services.store, osv_zip(records[1:]), ["*"])
    assert len(await read_advisory(searcher(world), "CVE-2026-1000")) == 1
    await load(world.services.store, osv_zip(records), ["*"])

    with pytest.raises(InvalidQuery, match="in more than 200 advisories"):
        await read_advisory(searcher(world), "CVE-2026-1000")


async def test_a_rule_is_read_as_the_releases_that_it_denies(world: World) -> None:
    rule = {"ecosystem": "npm", "package": "left-pad", "versions": ["<1.3.0"], "id": "old-pads"}
    await _deny(world, rule, {"ecosystem": "npm", "package": "@evil/*", "id": "no-evil"})

    (old,) = await read_rule(searcher(world), "old-pads")
    (evil,) = await read_rule(searcher(world), "no-evil")

    assert old.identity == {"ecosystem": ("npm",), "package": ("left-pad",)}
    assert old.includes is not None
    versions = ("1.2.9", "1.3.0", "no version")
    assert [old.includes("left-pad", each) for each in versions] == [True, False, False]
    assert evil.filters == {"ecosystem": ("npm",), "package": ("@evil/*",)}
    assert await read_rule(searcher(world), "left-pad") == []
    assert await read_rule(searcher(world, world.other), "old-pads") == []


@pytest.mark.parametrize("scopes", [["audit:r"], ["audit:r", "policy:r"]])
async def test_a_rule_is_read_for_those_who_may_read_the_policy(
    world: World, scopes: list[str]
) -> None:
    """To read the log gives no right to the policy."""
    await _deny(world, {"ecosystem": "npm", "package": "left-pad", "id": "old-pads"})
    key = ApiKeyPrincipal(
        key_id="key_1",
        tenant_id=world.acme.id,
        project_id=None,
        scopes=frozenset(scopes),
        origin=RequestOrigin(VerdictSource.ADMIN_API),
    )

    readings = await read_rule(Searcher(world.services.store, world.acme, key), "old-pads")

    assert bool(readings) is ("policy:r" in scopes)


async def test_an_advisory_is_not_read_as_a_rule_for_an_auditor(world: World) -> None:
    await load(world.services.store, osv_zip([CVE]), ["*"])
    await _deny(world, {"ecosystem": "npm", "package": "left-pad", "id": "GHSA-mh6f-8j2x-4483"})
    packages = []
    for who in ("owner", "auditor"):
        answer = await world.client.get(
            "/api/v1/admin/orgs/acme/audit/reading?q=GHSA-mh6f-8j2x-4483",
            headers=world.session(who),
        )
        (word,) = (await answer.get_json())["words"]
        packages += word["filters"]["package"]

    assert packages == ["left-pad", "event-stream"]
