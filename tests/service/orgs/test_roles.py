"""The API of roles: what an organisation grants them, by those who have it themselves."""

from typing import Any

import pytest

from tests.conftest import World, bindings_path, grant, refused
from tests.service.orgs.desk import answered, ask, last_row
from tests.service.pages.people.desk import actor, logged

BEYOND = "this role has rights beyond your own: ask a member who has it"


async def granted(world: World, role: str) -> list[str]:
    listed = (await answered(world, "GET", "/roles"))["roles"]
    (found,) = [each for each in listed if each["role"] == role]
    return list(found["granted"])


async def save(world: World, role: str, *capabilities: str, who: str = "owner", **more: Any) -> Any:
    body = {"capabilities": list(capabilities)} | more
    return await ask(world, "PUT", f"/roles/{role}", body, who)


async def test_roles_are_listed_with_their_defaults(world: World) -> None:
    await grant(world, "auditor", "oidc:r")
    roles = (await answered(world, "GET", "/roles"))["roles"]

    assert [role["role"] for role in roles] == ["owner", "admin", "auditor", "member"]
    assert len(roles[0]["defaults"]) == 12
    assert roles[2] == {
        "role": "auditor",
        "defaults": ["audit:r", "audit:export", "alert:w"],
        "granted": ["oidc:r"],
    }


async def test_what_is_granted_holds_from_the_next_request_on(world: World) -> None:
    statuses = [(await world.client.get(bindings_path(), headers=world.session("auditor")))]
    answer = await save(world, "auditor", "oidc:r")
    statuses.append(await world.client.get(bindings_path(), headers=world.session("auditor")))

    assert (await answer.get_json())["granted"] == ["oidc:r"]
    assert [each.status_code for each in statuses] == [403, 200]
    assert (await last_row(world))[:2] == ("role_override_changed", actor(world, "owner"))
    assert (await save(world, "auditor")).status_code == 200
    assert await granted(world, "auditor") == []


async def test_no_one_grants_what_they_lack(world: World) -> None:
    await grant(world, "admin", "org:admin")
    before = await logged(world)
    for role in ("admin", "auditor", "member"):
        for capability in ("oidc:r", "oidc:w"):
            answer = await save(world, role, "org:admin", capability, who="admin")
            assert await refused(answer) == (403, f"missing capability: {capability}")

    assert await logged(world) == before


async def test_what_they_have_they_may_grant(world: World) -> None:
    await grant(world, "admin", "org:admin", "oidc:r")

    answer = await save(world, "member", "oidc:r", "audit:r", who="admin")
    assert (await answer.get_json())["granted"] == ["audit:r", "oidc:r"]


@pytest.mark.parametrize("role", ["owner", "admin"])
async def test_no_one_changes_a_role_beyond_their_own(world: World, role: str) -> None:
    """Not even to revoke something: an auditor does not decide over admins."""
    await grant(world, "admin", "oidc:r")
    await grant(world, "auditor", "org:admin", "oidc:r")
    before = await logged(world)

    assert await refused(await save(world, role, who="auditor")) == (403, BEYOND)
    assert await logged(world) == before


@pytest.mark.parametrize(
    ("based_on", "status"), [(["oidc:w"], 409), ([], 409), (["audit:r", "oidc:r"], 200)]
)
async def test_a_change_based_on_older_grants_restores_none(
    world: World, based_on: list[str], status: int
) -> None:
    await grant(world, "member", "oidc:r", "audit:r")
    answer = await save(world, "member", "oidc:w", before=list(reversed(based_on)))

    assert answer.status_code == status
    if status == 409:
        text = "the role was changed concurrently; its current value is shown"
        assert await refused(answer) == (409, text)
        assert await granted(world, "member") == ["audit:r", "oidc:r"]
        assert (await save(world, "member", "oidc:w")).status_code == 200


@pytest.mark.parametrize(
    ("role", "capabilities", "text"),
    [
        ("auditor", ["oidc:*"], "capability must be one of oidc:r, oidc:w, audit:r, "),
        ("king", ["oidc:r"], "role must be one of owner, admin, auditor, member"),
        ("auditor", "oidc:r", "capabilities must be an array of strings"),
        ("auditor", [5], "capabilities must be an array of strings"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_none_is_refused(
    shared_world: World, role: str, capabilities: object, text: str
) -> None:
    before = await logged(shared_world)
    answer = await ask(shared_world, "PUT", f"/roles/{role}", {"capabilities": capabilities})

    status, said = await refused(answer)
    assert (status, said[: len(text)]) == (400, text)
    assert await logged(shared_world) == before
