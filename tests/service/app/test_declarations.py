"""Organisations as they are declared: what is named becomes so, and what is not stays as it is."""

from typing import Any

import pytest

from tests.conftest import World, refused

PATH = "/api/v1/operator/declaration"
ADA, BOB = "ada@new.example", "bob@new.example"
VALID: dict[str, Any] = {
    "tier": "team",
    "projects": ["payments"],
    "role_overrides": {"admin": ["oidc:w", "oidc:r"]},
    "members": {ADA: {"role": "owner", "idp": "github"}, BOB: {"idp": "google"}},
    "teams": {"platform": {"admins": [BOB]}},
    "policy": {"cooldown": {"min_age_days": 7}},
}


async def declare(world: World, declared: object) -> Any:
    return await world.client.post(PATH, headers=world.admin, json=declared)


async def changes(world: World, **orgs: object) -> list[str]:
    """The events that the declaration of these organisations caused."""
    response = await declare(world, {"orgs": orgs})
    assert response.status_code == 200, await response.get_data()
    return (await response.get_json())["changes"]


async def everything(world: World, slug: str) -> list[Any]:
    """What a declaration can change of an organisation, and every row about it."""
    found: list[Any] = [await world.audit(slug)]
    for part in ("", "/projects", "/teams", "/members", "/roles", "/domains", "/policy"):
        path = f"/api/v1/admin/orgs/{slug}{part}"
        found.append(await (await world.client.get(path, headers=world.admin)).get_json())
    return found


async def test_the_same_declaration_again_changes_nothing(world: World) -> None:
    """It can be applied by every deployment: the log shows what changed, not that it ran."""
    first = await changes(world, new=VALID)
    there = await everything(world, "new")
    again = await changes(world, new=VALID)

    assert sorted(first) == sorted(
        [
            *("org_created", "role_override_changed", "project_created", "policy_changed"),
            *("member_added", "member_added", "team_created", "team_admin_changed"),
        ]
    )
    assert again == []
    assert await everything(world, "new") == there
    log, org, projects, teams, members, *_ = there
    assert {row["actor"] for row in log} == {"system:admin-token"}
    assert org["tier"] == "team"
    assert [each["name"] for each in projects["projects"]] == ["payments"]
    assert [admin["email"] for admin in teams["teams"][0]["admins"]] == [BOB]
    roles = {each["email"]: each["role"] for each in members["members"]}
    assert roles == {ADA: "owner", BOB: "member"}


@pytest.mark.parametrize(
    ("declared", "refusal"),
    [
        ({"organisations": {}}, "Object contains unknown field `organisations`"),
        ({"orgs": {"new": {"tierr": "team"}}}, "orgs.new: Object contains unknown field"),
        ({"orgs": {"new": {"tier": "gold"}}}, "orgs.new: tier must be one of"),
        ({"orgs": {"new": {"projects": [1]}}}, "orgs.new: Expected `str`, got `int`"),
        (
            {"orgs": {"new": {"members": {"eve@x.example": {"role": 3, "idp": "github"}}}}},
            "orgs.new.members.eve@x.example: Expected `str | null`, got `int`",
        ),
        (
            {"orgs": {"new": {"members": {"eve@x.example": {"idp": "myspace"}}}}},
            "orgs.new: members.eve@x.example: idp must be one of",
        ),
        (
            {"orgs": {"new": {"teams": {"platform": {"admins": ["eve@x.example"]}}}}},
            "orgs.new: teams.platform: Member not found for this org: eve@x.example",
        ),
        (
            {"orgs": {"new": {"members": {ADA: {"idp": "github", "role": "admin"}}}}},
            f"orgs.new: members.{ADA}: the last owner cannot be removed",
        ),
        (
            {"orgs": {"new": {"members": {ADA: {"idp": "google"}}}}},
            f"orgs.new: members.{ADA}: a member's idp cannot be changed",
        ),
        (
            {"orgs": {"new": {"sign_in_domains": {"google": ["acme"]}}}},
            "orgs.new: sign_in_domains.google: domain must look like",
        ),
        (
            {"orgs": {"new": {"sign_in_domains": {"gogle": []}}}},
            "orgs.new: Invalid enum value 'gogle'",
        ),
        ({"orgs": {"new": {"policy": {"mode": "off"}}}}, "orgs.new: policy: mode: "),
        ({"orgs": {"new": {"legal_hold": ""}}}, "orgs.new: a legal hold needs a reason"),
        ({"orgs": {"not a slug": {}}}, "orgs.not a slug: slug must be"),
    ],
)
async def test_a_refused_declaration_names_the_place_and_changes_nothing(
    world: World, declared: dict[str, Any], refusal: str
) -> None:
    await changes(world, new=VALID)
    there = await everything(world, "new")
    first = {"first": {"projects": ["payments"]}}
    orgs = {"orgs": first | declared["orgs"]} if "orgs" in declared else declared

    status, text = await refused(await declare(world, orgs))

    assert (status, text[: len(refusal)]) == (400, refusal)
    assert await everything(world, "new") == there
    listed = await world.client.get("/api/v1/operator/orgs", headers=world.admin)
    slugs = {each["slug"] for each in (await listed.get_json())["organisations"]}
    assert "first" not in slugs


async def test_an_organisation_can_change_hands(world: World) -> None:
    """It is never without an owner, whatever the order."""
    await changes(world, new=VALID)
    members = {
        ADA: {"role": "member", "idp": "github"},
        BOB: {"role": "owner", "idp": "google"},
    }

    assert await changes(world, new={"members": members}) == ["member_role_changed"] * 2


async def test_the_domains_of_a_provider_become_those_that_are_declared(world: World) -> None:
    old = {"google": ["old.example", "kept.example"], "github": ["acme.example"]}
    await changes(world, acme={"sign_in_domains": old})
    new = {"sign_in_domains": {"google": ["New.example", "kept.example"]}}

    assert await changes(world, acme=new) == ["sign_in_domain_changed"] * 2
    assert await changes(world, acme=new) == []
    path = "/api/v1/admin/orgs/acme/domains"
    listed = await (await world.client.get(path, headers=world.admin)).get_json()
    assert {(each["domain"], each["idp"]) for each in listed["domains"]} == {
        ("new.example", "google"),
        ("kept.example", "google"),
        ("acme.example", "github"),
    }


async def test_what_is_left_out_stays_as_it_is(world: World) -> None:
    """A tier that is not mentioned must not fall back, nor an owner become a member."""
    await changes(world, new=VALID)
    await changes(world, new={"tier": "enterprise"})
    before = await everything(world, "new")

    assert await changes(world, new={"members": {ADA: {"idp": "github"}}}) == []
    assert await everything(world, "new") == before


@pytest.mark.parametrize("orgs", ["\ud800", {"\ud800": "\ud800"}])
async def test_half_a_surrogate_pair_is_refused(world: World, orgs: object) -> None:
    status, text = await refused(await declare(world, {"orgs": orgs}))

    assert (status, text) == (400, "orgs must be text in UTF-8")
