"""No member gains rights beyond their own: org:admin by an override makes no owner."""

from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import World, grant, refused
from tests.service.orgs.desk import ask
from tests.service.pages.people.desk import add_person, logged

BEYOND = "this role has rights beyond your own: ask a member who has it"
ABOUT_A_MEMBER = ["role", "", "sign-out", "remove-passkeys", "link"]


async def with_delegates(world: World) -> World:
    """Admins, and auditors, who may run the organisation without being owners of it."""
    await grant(world, "admin", "org:admin")
    await grant(world, "auditor", "org:admin")
    await add_person(world, "second_admin", "admin")
    await add_person(world, "second_owner", "owner")
    return world


@pytest.fixture
async def delegates(world: World) -> World:
    return await with_delegates(world)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_delegates(shared_world: World) -> World:
    """For tests that change nothing."""
    return await with_delegates(shared_world)


async def change(world: World, whom: str, what: str, who: str, role: str = "member") -> Any:
    """The answer to `who`, who does `what` about the member `whom`; "" is their removal."""
    path = f"/members/{world.members[whom].id}"
    if not what:
        return await ask(world, "DELETE", path, who=who)
    return await ask(
        world, "POST", f"{path}/{what}", {"role": role} if what == "role" else None, who
    )


async def invite(world: World, role: str, who: str) -> Any:
    body = {"email": "new@acme.example", "idp": "github", "role": role}
    return await ask(world, "POST", "/members", body, who)


@pytest.mark.parametrize("what", ABOUT_A_MEMBER)
@pytest.mark.parametrize(
    ("who", "whom"), [("admin", "owner"), ("auditor", "owner"), ("auditor", "admin")]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_no_one_decides_over_a_higher_role(
    shared_delegates: World, who: str, whom: str, what: str
) -> None:
    before = await logged(shared_delegates)

    assert await refused(await change(shared_delegates, whom, what, who)) == (403, BEYOND)
    assert await logged(shared_delegates) == before


@pytest.mark.parametrize("what", ABOUT_A_MEMBER)
async def test_no_one_decides_over_who_may_do_more(delegates: World, what: str) -> None:
    await grant(delegates, "member", "oidc:w")
    before = await logged(delegates)

    answer = await change(delegates, "member", what, "admin", role="auditor")
    assert await refused(answer) == (403, BEYOND)
    assert await logged(delegates) == before


@pytest.mark.parametrize("what", ABOUT_A_MEMBER)
async def test_among_equals_and_below_everything_can_be_done(delegates: World, what: str) -> None:
    for whom in ("second_admin", "member"):
        answer = await change(delegates, whom, what, "admin", role="auditor")
        assert answer.status_code == (201 if what == "link" else 200)


@pytest.mark.parametrize(
    ("who", "role", "is_let"),
    [
        ("admin", "owner", False),
        ("admin", "admin", True),
        ("auditor", "admin", False),
        ("auditor", "member", True),
        ("owner", "owner", True),
    ],
)
async def test_no_one_gives_a_role_beyond_their_own(
    delegates: World, who: str, role: str, *, is_let: bool
) -> None:
    answers = [
        await invite(delegates, role, who),
        await change(delegates, "member", "role", who, role),
    ]
    if is_let:
        assert [answer.status_code for answer in answers] == [201, 200]
        return
    answers.append(await change(delegates, who, "role", who, role))
    assert [await refused(answer) for answer in answers] == [(403, BEYOND)] * 3


async def test_all_capabilities_together_make_no_owner(delegates: World) -> None:
    await grant(delegates, "admin", "oidc:r", "oidc:w", "org:admin")

    answer = await change(delegates, "owner", "link", "admin")
    assert await refused(answer) == (403, BEYOND)


async def test_the_admin_token_is_bound_by_nothing(delegates: World) -> None:
    answer = await change(delegates, "owner", "link", "operator")

    assert answer.status_code == 201
