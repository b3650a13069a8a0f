"""New advisories and deny rules are compared with past installs, once for each organisation."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from analytics.model.envelopes import InstallWouldBlock, OssFirstParty
from analytics.model.retention import Tier
from service.audit.refusals import QueryTooSlow
from service.audit.tenant_log import TenantLog
from service.packages.policy.document import parse_policy
from service.packages.policy.repository import set_policy
from service.store.tables import AdvisoryEntry, Organisation
from tests.budgets import sample
from tests.conftest import BY_OPERATOR, World
from tests.crashes import kill_process
from tests.service.packages.policy.osv_files import osv_record
from tests.service.packages.policy.test_blocklist_feeds import import_records
from tests.service.pages.page import add_install

HEX = "ab" * 32


async def installed(world: World, *releases: str, envelope: Any = None, **columns: str) -> None:
    """Rows of these installs, such as `npm:evil@1.0.0`, a minute apart."""
    for release in releases:
        ecosystem, _, rest = release.partition(":")
        name, _, version = rest.rpartition("@")
        world.clock.advance(minutes=1)
        await add_install(
            world, envelope, ecosystem=ecosystem, package_name=name, version=version, **columns
        )


async def deny(world: World, *entries: dict[str, str]) -> None:
    """Put a policy with these deny rules in force in acme."""
    policy = parse_policy({"deny": [{"ecosystem": "npm", **entry} for entry in entries]})
    async with world.services.store.write() as work:
        org = await work.session.get_one(Organisation, world.acme.id)
        await set_policy(work, org, policy, BY_OPERATOR)


async def matched(world: World) -> dict[str, dict[str, Any]]:
    """What the job has recorded in acme, by rule; each rule has one row."""
    await world.services.retro.match_due()
    rows = await world.audit(event="installs_matched")
    found = {row["payload"]["rule_id"]: row["payload"] for row in rows}
    assert len(found) == len(rows)
    return found


async def lists_stored(world: World) -> int:
    """How many generations of the blocklist have advisories."""
    async with world.services.store.read() as session:
        count = select(func.count(AdvisoryEntry.generation.distinct()))
        return await session.scalar(count) or 0


async def test_an_advisory_names_past_installs_and_their_runs(world: World) -> None:
    for run_id in ("1", "1", "2"):
        await installed(world, "npm:evil@1.0.0", run_id=run_id, repository_id="7")
    first = world.clock.now - timedelta(minutes=2)
    await installed(world, "npm:evil@2.0.0", "npm:other@1.0.0", "pypi:evil@1.0.0")

    await import_records(world, osv_record("MAL-1", versions=["1.0.0"], ranges=[]))
    await import_records(world, osv_record("MAL-2", "absent"), feed="own")

    assert await matched(world) == {
        "MAL-1": {
            "rule_id": "MAL-1",
            "source": "osv",
            "packages": ["npm:evil"],
            "installs": 3,
            "runs": 2,
            "first_at": f"{first:%Y-%m-%dT%H:%M:%S.%f}Z",
            "last_at": f"{first + timedelta(minutes=2):%Y-%m-%dT%H:%M:%S.%f}Z",
            "number": 2,
        }
    }
    (row,) = await world.audit(event="installs_matched")
    assert (row["subject"], row["actor"]) == ("MAL-1", "system:maintenance")
    counted = world.services.metrics.exposition().decode()
    assert 'countersign_retro_matches_total{source="osv"} 1.0' in counted
    assert 'countersign_retro_matches_total{source="operator"} 0.0' in counted
    assert await world.audit("other", event="installs_matched") == []


@pytest.mark.parametrize(
    ("entry", "rules"),
    [
        ({"package": "evil", "versions": "<2.0.0", "id": "rule"}, {"rule": 1}),
        ({"package": "e*", "id": "rule"}, {"rule": 2}),
        ({"package": "evil", "versions": ">=3", "id": "rule"}, {}),
        ({"package": "evil", "ecosystem": "pypi", "id": "rule"}, {}),
    ],
)
async def test_a_deny_rule_names_what_it_would_have_blocked(
    world: World, entry: dict[str, str], rules: dict[str, int]
) -> None:
    await installed(world, "npm:evil@1.0.0", "npm:evil@2.0.0")
    await deny(world, entry)

    found = await matched(world)

    assert {rule: (each["source"], each["installs"]) for rule, each in found.items()} == {
        rule: ("operator", installs) for rule, installs in rules.items()
    }


async def test_only_what_was_served_from_public_registries_counts(world: World) -> None:
    """What was let through in audit mode was served; a first-party package is another one."""
    would = InstallWouldBlock(blocked_by="blocklist_hit", rule_id="MAL-0")
    await installed(world, "npm:evil@1.0.0", envelope=would)
    await installed(world, "npm:evil@1.0.0", envelope=OssFirstParty(registry="own"))
    await import_records(world, osv_record("MAL-1"))

    assert (await matched(world))["MAL-1"]["installs"] == 1


async def test_files_are_told_by_their_digest(world: World) -> None:
    await installed(world, "npm:evil@1.0.0", file_sha256=HEX)
    await installed(world, "npm:evil@1.0.0", file_sha256="cd" * 32)
    await installed(world, "npm:evil@1.0.0")
    by_digest = osv_record("MAL-1", ranges=[])
    by_digest["affected"][0]["database_specific"] = {"package_integrity": {"sha256": HEX}}
    await import_records(world, by_digest)

    assert (await matched(world))["MAL-1"]["installs"] == 1


async def test_only_what_an_import_adds_or_widens_is_told(world: World) -> None:
    await installed(world, "npm:evil@1.0.0", "npm:evil@2.0.0", "npm:bad@1.0.0")
    await import_records(world, osv_record("MAL-1", versions=["1.0.0"], ranges=[]))
    assert (await matched(world)).keys() == {"MAL-1"}

    wider = osv_record("MAL-1", versions=["1.0.0", "2.0.0"], ranges=[])
    await import_records(world, wider, osv_record("MAL-2", "bad"))
    assert await lists_stored(world) == 2
    await world.services.retro.match_due()
    await world.services.retro.match_due()

    rows = [row["payload"] for row in await world.audit(event="installs_matched")]
    assert [(row["rule_id"], row["installs"], row["number"]) for row in rows] == [
        ("MAL-2", 1, 2),
        ("MAL-1", 1, 2),
        ("MAL-1", 1, 1),
    ]
    assert await lists_stored(world) == 1


async def test_another_change_of_the_policy_tells_nothing_again(world: World) -> None:
    await installed(world, "npm:evil@1.0.0")
    await deny(world, {"package": "evil", "id": "rule"})
    await matched(world)
    await deny(world, {"package": "evil", "id": "rule", "reason": "known"})
    await deny(world, {"package": "evil", "id": "rule", "reason": "known"}, {"package": "x"})

    assert (await matched(world))["rule"]["number"] == 1


async def test_rows_past_the_retention_are_not_looked_at(world: World) -> None:
    await installed(world, "npm:evil@1.0.0")
    world.clock.advance(days=400)
    async with world.services.store.write() as work:
        (await work.session.get_one(Organisation, world.acme.id)).tier = Tier.TEAM
    await import_records(world, osv_record("MAL-1"))

    assert await matched(world) == {}


async def test_an_organisation_that_cannot_be_compared_keeps_no_other_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared once its rows can be read again; the others' rows are not repeated."""
    await installed(world, "npm:evil@1.0.0")
    await import_records(world, osv_record("MAL-1"))
    read = TenantLog.read

    async def slow(log: TenantLog, *rest: Any) -> Any:
        if log.org.slug == "acme":
            raise QueryTooSlow
        return await read(log, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(TenantLog, "read", slow)
        with pytest.raises(QueryTooSlow):
            await world.services.retro.match_due()
    async with world.services.store.read() as session:
        other = await session.get_one(Organisation, world.other.id)

    assert (other.matched_generation, await lists_stored(world)) == (1, 1)
    assert (await matched(world)).keys() == {"MAL-1"}


async def test_thousands_of_packages_in_segments_and_journal(world: World) -> None:
    names = [f"evil-{number}" for number in range(150)]
    await installed(world, *(f"npm:{name}@1.0.0" for name in names[:120]))
    await world.services.sealer.seal_due(everything=True)
    await installed(world, *(f"npm:{name}@1.0.0" for name in names[100:]))
    await import_records(
        world, *(osv_record(f"MAL-{number}", name) for number, name in enumerate(names))
    )

    found = await matched(world)

    assert {each["packages"][0] for each in found.values()} == {f"npm:{name}" for name in names}
    assert sum(each["installs"] for each in found.values()) == 170


@sample(2)
@pytest.mark.parametrize(
    ("beginning", "number", "after"),
    [
        ("INSERT INTO leases", 1, ""),
        ("COMMIT", 1, "UPDATE organisations SET"),
        ("COMMIT", 1, "INSERT INTO journal"),
        ("COMMIT", 2, "INSERT INTO journal"),
        ("END", 1, ""),
    ],
)
async def test_a_match_is_recorded_once_whenever_the_job_is_killed(
    world: World, beginning: str, number: int, after: str
) -> None:
    """By kill -9, before and after the commit that records it."""
    await installed(world, "npm:evil@1.0.0")
    await import_records(world, osv_record("MAL-1"))
    await deny(world, {"package": "evil", "id": "rule"})

    settings, now = world.services.settings, world.clock.now
    await kill_process(settings, now, "match", beginning, number, after=after)
    world.clock.advance(seconds=settings.lease_s + 1)

    assert (await matched(world)).keys() == {"MAL-1", "rule"}
    assert await world.services.retro.match_due() is None
    assert len(await world.audit(event="installs_matched")) == 2
