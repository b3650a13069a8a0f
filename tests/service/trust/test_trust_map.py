"""The map of trust: exact, bounded, and for those who may see each part of it."""

import random
from datetime import timedelta

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


async def test_installs_are_those_of_all_rows_by_brute_force(world, monkeypatch):
    """Of generated rows, in the window and before it, of active, revoked and unlisted bindings."""
    monkeypatch.setattr(trust_map, "REPOSITORIES_MAX", 4)
    monkeypatch.setattr(trust_map, "BINDINGS_MAX", 2)
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
    listed = answer["repositories"]
    by_name = {
        f"acme/app-{number}": [id_ for id_ in (ids[number], ids[number + 6]) if id_ != ids[0]]
        for number in range(6)
    }
    for repository in listed:
        assert counts(repository["installs"]) == counted(*by_name[repository["name"]])
        for binding in repository["bindings"]:
            assert counts(binding["installs"]) == counted(binding["id"])
    sums = [sum(counts(repository["installs"])) for repository in listed]
    assert sums == sorted(sums, reverse=True)
    rest = [id_ for name, own in by_name.items() for id_ in own if name not in
            {repository["name"] for repository in listed}]  # fmt: skip
    assert answer["omitted_repositories"] == 2
    assert counts(answer["omitted"]) == counted(*rest)
    assert counts(answer["revoked"]) == counted(ids[0], "obind_imported")
    assert counts(answer["unbound"]) == counted(None)


async def test_a_binding_is_shown_with_what_it_may_act_for(world):
    used = await world.bind(
        sub_pattern=sub("app"), project_id=world.project.id, event_names=["push"]
    )
    await world.bind(sub_pattern="org/of/another/provider", repository_id="9")
    await add_install(world, oidc_binding_id=used)
    await add_install(world, BLOCK, oidc_binding_id=used)
    first, second = (await get_map(world))["repositories"]

    assert (first["name"], first["repository_id"]) == ("acme/app", "123456789")
    (binding,) = first["bindings"]
    assert binding["id"] == used
    assert binding["job"] == "main"
    assert binding["event_names"] == ["push"]
    assert binding["project"] == world.project.name
    assert binding["team"] is None
    assert counts(binding["installs"]) == (1, 1)
    assert second["name"] == "org/of/another/provider"
    assert second["bindings"][0]["job"] is None


async def test_repositories_of_one_name_and_different_ids_are_apart(world):
    """A name that was given away, and taken by another repository, is not the same one."""
    await world.bind(sub_pattern=sub("app"), repository_id="1")
    await world.bind(sub_pattern=sub("app"), repository_id="2")
    listed = (await get_map(world))["repositories"]

    assert [(one["name"], one["repository_id"]) for one in listed] == [
        ("acme/app", "1"),
        ("acme/app", "2"),
    ]


async def test_who_may_not_read_the_log_sees_no_counts(world):
    await add_install(world, oidc_binding_id=await world.bind(sub_pattern=sub("app")))
    await grant(world, "member", "oidc:r")
    answer = await get_map(world, **world.session("member"))

    assert answer["repositories"][0]["installs"] is None
    assert answer["repositories"][0]["bindings"][0]["installs"] is None
    assert (answer["omitted"], answer["revoked"], answer["unbound"]) == (None, None, None)


async def test_another_organisation_has_no_part_of_it(world):
    await add_install(world, oidc_binding_id=await world.bind(sub_pattern=sub("app")))
    answer = await get_map(world, "other")

    assert answer["repositories"] == []
    assert counts(answer["unbound"]) == counts(answer["revoked"]) == (0, 0)
