"""Which role may decide over which, and what becomes of sessions when a role rises."""

import pytest

from service.access.callers import MemberPrincipal
from service.access.refusals import ROLE_BEYOND_OWN
from service.access.roles import Capability, Role, covers
from service.orgs.members import issue_sign_in, set_role
from service.store.tables import Member, Organisation
from tests.conftest import BY_OPERATOR, START, World, bindings_path, grant

ALL = [str(capability) for capability in Capability]


@pytest.mark.parametrize(
    ("role", "others"),
    [
        ("owner", ["owner", "admin", "auditor", "member"]),
        ("admin", ["admin", "auditor", "member"]),
        ("auditor", ["auditor", "member"]),
        ("member", ["member"]),
    ],
)
@pytest.mark.parametrize("overrides", [{}, {"admin": ALL, "auditor": ALL, "member": ALL}])
def test_no_role_covers_a_higher_one_whatever_it_is_granted(role, others, overrides):
    covered = [other for other in Role if covers(Role(role), other, overrides)]

    assert covered == others


def test_a_lower_role_that_may_do_more_is_not_covered():
    """An override can lift members above an admin in one respect; then they are out of reach."""
    overrides = {"member": ["oidc:w"]}

    assert not covers(Role.ADMIN, Role.MEMBER, overrides)
    assert covers(Role.ADMIN, Role.AUDITOR, overrides)
    assert covers(Role.OWNER, Role.MEMBER, overrides)


async def test_no_one_decides_over_another_organisations_members(world: World):
    stranger = world.members["stranger"]
    caller = MemberPrincipal(
        session_id="sess_1",
        member_id=stranger.id,
        tenant_id=stranger.tenant_id,
        role=Role.OWNER,
        authenticated_at=START,
        identity_provider="github",
        admin_of=frozenset(),
        is_cross_site=False,
        origin=None,  # type: ignore[arg-type] - how they came in plays no part
    )

    caller.require_outranks(Role.OWNER, world.other)
    with pytest.raises(ROLE_BEYOND_OWN):
        caller.require_outranks(Role.MEMBER, world.acme)


@pytest.mark.parametrize(("role", "is_signed_in"), [("owner", False), ("member", True)])
async def test_who_rises_has_to_sign_in_again(world: World, role, is_signed_in):
    """Otherwise a thief of the session would rise with its member."""
    await grant(world, "member", "oidc:r")
    await grant(world, "auditor", "oidc:r")
    async with world.services.store.write() as work:
        org = await work.session.get_one(Organisation, world.acme.id)
        auditor = await work.session.get_one(Member, world.members["auditor"].id)
        link = await issue_sign_in(work, org, auditor, BY_OPERATOR)
        await set_role(work, org, auditor, role, BY_OPERATOR)

    seen = await world.client.get(bindings_path(), headers=world.session("auditor"))
    used = await world.client.post(
        "/sign-in", form={"token": link}, headers={"origin": "http://localhost:8080"}
    )

    assert seen.status_code == (200 if is_signed_in else 401)
    assert used.status_code == (303 if is_signed_in else 401)
