"""No member gains rights beyond their own: org:admin by an override makes no owner."""

import pytest

from tests.conftest import World, grant
from tests.service.pages.people.desk import add_person, leads_to, logged, post, see, shown

BEYOND = "This role has rights beyond your own: ask a member who has it."
ABOUT_A_MEMBER = ["role", "remove", "sign-out", "remove-passkeys", "link"]


@pytest.fixture
async def delegates(world: World) -> World:
    """Admins, and auditors, who may run the organisation without being owners of it."""
    await grant(world, "admin", "org:admin")
    await grant(world, "auditor", "org:admin")
    await add_person(world, "second_admin", "admin")
    await add_person(world, "second_owner", "owner")
    return world


async def refusal(world: World, action: str, who: str, **fields: str) -> str:
    """What the 403 to the form of `who` says; it must have changed nothing."""
    before = await logged(world)
    page = await shown(await post(world, action, who, **fields), 403)
    assert await logged(world) == before
    return page.one("div", role="alert").text


@pytest.mark.parametrize("what", ABOUT_A_MEMBER)
@pytest.mark.parametrize(
    ("who", "whom"), [("admin", "owner"), ("auditor", "owner"), ("auditor", "admin")]
)
async def test_no_one_decides_over_a_higher_role(delegates, who, whom, what):
    """Not by a new role, not by an end, and not by a link that signs in as them."""
    action = f"members/{delegates.members[whom].id}/{what}"

    assert BEYOND in await refusal(delegates, action, who, role="member")


@pytest.mark.parametrize("what", ABOUT_A_MEMBER)
async def test_no_one_decides_over_who_may_do_more(delegates, what):
    """A lower role, too, may have been granted what one's own lacks."""
    await grant(delegates, "member", "oidc:w")
    member = delegates.members["member"]

    assert BEYOND in await refusal(
        delegates, f"members/{member.id}/{what}", "admin", role="auditor"
    )


@pytest.mark.parametrize("what", ABOUT_A_MEMBER)
async def test_among_equals_and_below_everything_can_be_done(delegates, what):
    """What org:admin is granted for."""
    for whom in ("second_admin", "member"):
        action = f"members/{delegates.members[whom].id}/{what}"
        answer = await post(delegates, action, "admin", role="auditor")
        assert answer.status_code == (200 if what == "link" else 303)


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
async def test_no_one_gives_a_role_beyond_their_own(delegates, who, role, is_let):
    """Neither to a new member, nor to another one, nor to themselves."""
    invited = {"email": "new@acme.example", "idp": "github", "role": role}
    raised = f"members/{delegates.members['member'].id}/role"
    own = f"members/{delegates.members[who].id}/role"
    if is_let:
        leads_to(await post(delegates, "members", who, **invited))
        leads_to(await post(delegates, raised, who, role=role))
        return
    assert BEYOND in await refusal(delegates, "members", who, **invited)
    assert BEYOND in await refusal(delegates, raised, who, role=role)
    assert BEYOND in await refusal(delegates, own, who, role=role)


async def test_all_capabilities_together_make_no_owner(delegates):
    """Only an owner decides over owners, whatever an admin is granted."""
    await grant(delegates, "admin", "oidc:r", "oidc:w", "org:admin")
    action = f"members/{delegates.members['owner'].id}/link"

    assert BEYOND in await refusal(delegates, action, "admin")


async def test_the_page_offers_what_can_be_done(delegates):
    """Who is out of reach has no buttons; roles that cannot be given are not to be chosen."""
    page = await see(delegates, "members", "auditor")
    out_of_reach = [delegates.members[whom].id for whom in ("owner", "admin")]

    assert not [action for action in page.forms if any(who in action for who in out_of_reach)]
    assert {one.attributes["value"] for one in page.all("option")} & {"owner", "admin"} == set()
    assert any(delegates.members["member"].id in action for action in page.forms)


async def test_the_admin_token_is_bound_by_nothing(delegates):
    """Nor is the operator, whose commands need no right."""
    page = await delegates.client.get("/admin/ui/orgs/acme/members", headers=delegates.admin)
    forms = (await shown(page)).forms
    answer = await delegates.client.post(
        (action := f"/admin/ui/orgs/acme/members/{delegates.members['owner'].id}/link"),
        form=forms[action],
        headers=delegates.admin,
    )

    assert answer.status_code == 200
