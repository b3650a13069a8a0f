"""Making the active bindings match a list over the API, and the operator's view of a repository."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from service.store.organisations import get_named
from service.store.tables import Organisation, Project
from service.trust.bindings import sync_api
from service.trust.bindings.rules import ACTIVE_MAX
from tests.conftest import ISSUER, World, bindings_path, refused
from tests.service.trust.bindings.test_revoke_repository import active, created

SYNC = f"{bindings_path()}/sync"
EVERYWHERE = "/api/v1/operator/bindings"
LIST = {
    "issuer": ISSUER,
    "bindings": [
        {"sub_pattern": "repo:acme/a", "repository_id": "42", "event_names": ["push"]},
        {"sub_pattern": "repo:acme/b", "repository_id": 43, "project": "payments"},
    ],
}


async def sync(world: World, who: str | None = None, path: str = "", **body: Any) -> Any:
    headers = world.admin if who is None else world.session(who)
    return await world.client.post(f"{SYNC}{path}", headers=headers, json={**LIST, **body})


async def plan(world: World, **body: Any) -> Any:
    response = await sync(world, path="/plan", **body)
    assert response.status_code == 200, await response.get_data()
    return await response.get_json()


async def test_a_plan_is_applied_by_its_name_all_of_it_at_once(world: World) -> None:
    former = await created(world, "repo:acme/a", event_names=[])
    stale = await created(world, "repo:acme/old")
    planned = await plan(world, has_prune=True)

    done = await (await sync(world, has_prune=True, plan=planned["plan"], reason="tidy")).get_json()

    assert [each["action"] for each in planned["actions"]] == ["revoke", "replace", "create"]
    assert planned["actions"][1]["differences"] == {"event_names": {"from": [], "to": ["push"]}}
    assert (planned["applied"], done["applied"]) == (False, True)
    news = {each["new"] for each in done["actions"]} - {None}
    assert await active(world) == news
    assert not {former, stale} & news
    assert (await plan(world, has_prune=True))["actions"] == []
    origins = {binding["origin"] for binding in await world.bindings(state="active")}
    assert origins == {"org_admin"}


async def test_a_plan_that_others_overtook_is_not_applied(world: World) -> None:
    planned = await plan(world)
    await created(world, "repo:acme/a")
    before = await active(world)

    status, text = await refused(await sync(world, plan=planned["plan"]))

    assert (status, text) == (
        409,
        "the bindings were changed since the plan was made: plan again",
    )
    assert await active(world) == before


async def test_a_fault_names_the_binding(world: World) -> None:
    good = LIST["bindings"][0]
    for wrong, text in (
        ({"sub_pattern": "a*"}, "binding 2 (a*): "),
        (
            {"sub_pattern": "a", "project": "none"},
            "binding 2 (a): Project not found for this org: none",
        ),
        (good, "binding 2 (repo:acme/a): the same issuer, sub_pattern and id as binding 1"),
        ({"sub": "a"}, "Object contains unknown field `sub` - at `$.bindings[1]`"),
        ({"\ud800": 1}, "bindings must be text in UTF-8"),
    ):
        answer = await sync(world, path="/plan", bindings=[good, wrong])
        status, said = await refused(answer)
        assert (status, said[: len(text)]) == (400, text)


async def test_who_may_only_read_plans_and_does_not_apply(world: World) -> None:
    """An owner's bindings are the organisation's; the platform's stay the platform's."""
    planned = await plan(world)
    for who, path, status in (("auditor", "/plan", 403), ("owner", "/plan", 200)):
        assert (await sync(world, who, path)).status_code == status
    assert (await sync(world, "owner", plan=planned["plan"])).status_code == 200
    platform = [LIST["bindings"][0] | {"origin": "platform_admin"}]
    theirs = await sync(world, "owner", "/plan", bindings=platform)
    name = (await theirs.get_json())["plan"]
    answer = await sync(world, "owner", plan=name, bindings=platform)
    assert (await refused(answer))[0] == 400


async def test_a_repository_is_seen_and_revoked_in_every_organisation(world: World) -> None:
    """Exactly the bindings that were listed, or none of them."""
    for slug in ("acme", "other"):
        path = f"/api/v1/admin/orgs/{slug}/oidc-bindings"
        body = {"issuer": ISSUER, "sub_pattern": f"repo:{slug}/a", "repository_id": "66"}
        answer = await world.client.post(
            path, headers=world.admin, json=body | {"origin": "org_admin"}
        )
        assert answer.status_code == 201
    await created(world, "repo:acme/a", repository_id="67")

    async def listed(**query: str) -> list[Any]:
        asked = {"repository_id": "066", **query}
        response = await world.client.get(EVERYWHERE, headers=world.admin, query_string=asked)
        return (await response.get_json())["bindings"]

    found = await listed(issuer=ISSUER)
    body = {"issuer": ISSUER, "repository_id": "66", "reason": "leaked"}
    url = f"{EVERYWHERE}/revoke"
    some = body | {"binding_ids": [found[0]["id"]]}
    moved = await world.client.post(url, headers=world.admin, json=some)
    exact = body | {"binding_ids": [each["id"] for each in found]}
    done = await world.client.post(url, headers=world.admin, json=exact)
    none = await world.client.post(url, headers=world.admin, json=body | {"binding_ids": []})

    assert {each["org"] for each in found} == {"acme", "other"}
    assert await listed(issuer="https://b.example") == []
    assert (await refused(moved))[0] == 409
    assert (await done.get_json())["count"] == 2
    assert (await refused(none))[0] == 404
    assert await listed() == []
    assert {each["revokedReason"] for each in await listed(state="revoked")} == {"leaked"}
    for slug in ("acme", "other"):
        assert len(await world.audit(slug, event="oidc_binding_revoked")) == 1


async def test_a_longer_list_than_an_organisation_may_have_is_refused(world: World) -> None:
    """It is planned in a transaction for which all other changes wait."""
    entries = [{"sub_pattern": f"a{number}"} for number in range(ACTIVE_MAX + 1)]
    status, text = await refused(await sync(world, bindings=entries, plan="none"))

    assert (status, text) == (400, "Expected `array` of length <= 10000 - at `$.bindings`")


async def test_names_are_read_once_for_a_whole_list(world: World, monkeypatch) -> None:
    read = []

    async def counted(
        session: AsyncSession, org: Organisation, table: type[Project], name: str
    ) -> Project:
        read.append(name)
        return await get_named(session, org, table, name)

    monkeypatch.setattr(sync_api, "get_named", counted)
    entry = {"repository_id": 42, "project": "payments"}
    entries = [{**entry, "sub_pattern": f"a{number}"} for number in range(200)]

    planned = await plan(world, bindings=entries)

    assert len(planned["actions"]) == 200
    assert read == ["payments"]
