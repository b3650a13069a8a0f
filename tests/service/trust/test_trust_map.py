"""The map of trust: exact, bounded, and for those who may see each part of it."""

import random
from datetime import timedelta

import pytest

from analytics.model.envelopes import BlocklistHit
from service.store.journal import append
from service.trust import trust_map
from tests.analytics.samples import sample_row
from tests.conftest import grant
from tests.service.pages.page import add_install

MAP = "/api/v1/admin/orgs/{}/trust/map"
BLOCK = BlocklistHit(rule_id="MAL-1", source="osv")


async def get_map(world, slug="acme", **headers):
    response = await world.client.get(MAP.format(slug), headers=headers or world.admin)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_json()


def sub(repository, ref="main"):
    return f"repo:acme/{repository}:ref:refs/heads/{ref}"


def counts(installs):
    return installs["allowed"], installs["blocked"]


@pytest.mark.parametrize(("repositories", "bindings", "listed_max"), [(3, 200, 6), (60, 8, 8)])
async def test_installs_are_those_of_all_rows_by_brute_force(
    world, monkeypatch, repositories, bindings, listed_max
):
    """Of generated rows, in the window and before it, of active, revoked and unlisted bindings."""
    monkeypatch.setattr(trust_map, "REPOSITORIES_MAX", repositories)
    monkeypatch.setattr(trust_map, "BINDINGS_MAX", bindings)
    draw, ids = random.Random(5), []
    for number in range(12):
        subject = sub(f"app-{number % 6}", f"b{number}")
        ids.append(await world.bind(sub_pattern=subject, repository_id=str(1 + number % 6)))
    await world.revoke(ids[0])
    now, rows = world.clock.now, []
    for _ in range(600):
        at = now - timedelta(days=draw.uniform(0, 40))
        binding_id = draw.choice([None, "obind_imported", *ids])
        decision = draw.choice(["ALLOWED", "ALLOWED", "BLOCKED", None])
        event = {"ALLOWED": "install_allowed", "BLOCKED": "blocklist_hit"}.get(decision, "x")
        rows.append(sample_row(at, event=event, decision=decision, oidc_binding_id=binding_id))
    async with world.services.store.write() as work:
        await append(work.session, world.acme.id, rows, now=now)
    start = (now - timedelta(days=30)).replace(hour=0, minute=0, second=0, microsecond=0)

    def counted(*binding_ids):
        decisions = [
            row.decision
            for row in rows
            if row.created_at >= start and row.oidc_binding_id in binding_ids
        ]
        return decisions.count("ALLOWED"), decisions.count("BLOCKED")

    answer = await get_map(world)
    listed = {binding["id"]: counts(binding["installs"]) for binding in answer["bindings"]}
    by_repository = {
        f"acme/app-{number}": counted(*{ids[number], ids[number + 6]} - {ids[0]})[0]
        for number in range(6)
    }
    first = sorted(by_repository, key=lambda name: -by_repository[name])
    shown = [*dict.fromkeys(each["repository"] for each in answer["bindings"])]

    assert listed == {id_: counted(id_) for id_ in listed}
    assert shown == first[: len(shown)]
    assert len(shown) <= repositories
    assert listed_max - 1 <= len(listed) <= listed_max  # one repository has a single binding
    assert (answer["repository_count"], answer["binding_count"]) == (6, 11)
    assert counts(answer["elsewhere"]) == counted("obind_imported", *set(ids) - set(listed))
    assert counts(answer["unbound"]) == counted(None)


async def test_a_binding_is_shown_with_what_it_may_act_for(world):
    used = await world.bind(
        sub_pattern=sub("app"), project_id=world.project.id, event_names=["push"]
    )
    await world.bind(sub_pattern="org/of/another/provider", repository_id="9")
    await add_install(world, oidc_binding_id=used)
    await add_install(world, BLOCK, oidc_binding_id=used)
    binding, other = (await get_map(world))["bindings"]

    assert (binding["id"], binding["repository"], binding["job"]) == (used, "acme/app", "main")
    assert binding["repository_id"] == "123456789"
    assert binding["event_names"] == ["push"]
    assert (binding["project"], binding["team"]) == (world.project.name, None)
    assert counts(binding["installs"]) == (1, 1)
    assert (other["repository"], other["job"]) == ("org/of/another/provider", None)


async def test_repositories_of_one_name_and_different_ids_are_apart(world):
    """A name that was given away, and taken by another repository, is not the same one."""
    await world.bind(sub_pattern=sub("app"), repository_id="1")
    await world.bind(sub_pattern=sub("app"), repository_id="2")

    assert (await get_map(world))["repository_count"] == 2


async def test_who_may_not_read_the_log_sees_no_counts(world):
    await add_install(world, oidc_binding_id=await world.bind(sub_pattern=sub("app")))
    await grant(world, "member", "oidc:r")
    answer = await get_map(world, **world.session("member"))

    assert [binding["installs"] for binding in answer["bindings"]] == [None]
    assert (answer["elsewhere"], answer["unbound"]) == (None, None)


async def test_another_organisation_has_no_part_of_it(world):
    await add_install(world, oidc_binding_id=await world.bind(sub_pattern=sub("app")))
    answer = await get_map(world, "other")

    assert answer["bindings"] == []
    assert counts(answer["unbound"]) == counts(answer["elsewhere"]) == (0, 0)
