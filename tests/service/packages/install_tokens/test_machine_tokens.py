"""Members install from their own machines with tokens that can do nothing else."""

from datetime import timedelta
from typing import Any

import pytest

from analytics.model.instants import format_ms
from service.access.callers import member_actor
from service.access.refusals import LACKS_CAPABILITY, SignInAgain
from service.core.secrets import token_hash
from service.orgs.members import end_sessions, remove_member
from service.packages.install_tokens.machine_tokens import LIVE_OF_MEMBER_MAX
from service.packages.install_tokens.tokens import MACHINE_TOKENS_KEPT, delete_expired_tokens
from service.packages.refusals import (
    MACHINE_TOKEN_ENDED,
    MACHINE_TOKEN_OF_ANOTHER_ORG,
    InstallUnauthenticated,
)
from service.store.tables import Member
from tests.conftest import BY_OPERATOR, START, World, grant, refused
from tests.other_programs import stored_bytes
from tests.service.gates import Gate
from tests.service.orgs.desk import answered, ask
from tests.service.packages.install_tokens.jobs import INSTALL, bearer, install

TOKENS = "/machine-tokens"
HOURS_12 = timedelta(hours=12)


async def issued(world: World, who: str = "owner", **more: Any) -> dict[str, Any]:
    return await answered(world, "POST", TOKENS, {"name": "laptop", **more}, who)


async def listed(world: World, who: str = "owner") -> list[dict[str, Any]]:
    return (await answered(world, "GET", TOKENS, who=who))["machine_tokens"]


async def member_with_install(world: World) -> str:
    """A member whose role was granted the right to install, and nothing else."""
    await grant(world, "member", INSTALL)
    return "member"


async def test_a_member_gets_a_token_for_half_a_day(world: World):
    who = await member_with_install(world)
    answer = await issued(world, who)

    token = answer.pop("token")
    member = world.members["member"]
    assert token.startswith("csm_")
    assert answer == {
        "id": answer["id"],
        "name": "laptop",
        "member_id": member.id,
        "member": member.email,
        "created_at": format_ms(START),
        "expires_at": format_ms(START + HOURS_12),
    }
    assert await listed(world, who) == [answer]
    assert token_hash(token).encode() in stored_bytes(world.services.settings.data_dir)
    assert token.encode() not in stored_bytes(world.services.settings.data_dir)
    (row,) = await world.audit(event="machine_token_issued")
    assert (row["subject"], row["actor"]) == (answer["id"], member_actor("github", member.id))
    assert token not in str(row)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/audit"), ("GET", "/machine-tokens"), ("GET", "/oidc-bindings")]
)
async def test_it_opens_nothing_but_the_proxy(world: World, method: str, path: str):
    """What an install script steals from its environment must not act as the member."""
    token = (await issued(world))["token"]
    for headers in ({"authorization": f"Bearer {token}"}, {"x-service-api-key": token}):
        answer = await world.client.open(
            f"/api/v1/admin/orgs/acme{path}", method=method, headers=headers
        )
        assert answer.status_code == 401
    sent = await world.client.post(
        "/api/v1/orgs/acme/install-tokens", headers={"x-service-api-key": token}
    )
    assert sent.status_code == 401


async def test_it_ends_by_time_and_is_deleted_later(world: World):
    token = (await issued(world))["token"]
    world.clock.advance(hours=11, minutes=59)
    await install(world, bearer(token))
    world.clock.advance(minutes=1)
    with pytest.raises(MACHINE_TOKEN_ENDED):
        await install(world, bearer(token))

    world.clock.advance(seconds=MACHINE_TOKENS_KEPT.total_seconds())
    await delete_expired_tokens(world.services.store)
    with pytest.raises(InstallUnauthenticated) as gone:
        await install(world, bearer(token))
    assert not isinstance(gone.value, MACHINE_TOKEN_ENDED)


async def revoked_by_its_member(world: World, token: dict[str, Any]) -> None:
    await answered(world, "DELETE", f"{TOKENS}/{token['id']}", who="member")
    (row,) = await world.audit(event="machine_token_revoked")
    assert row["subject"] == token["id"]


async def revoked_by_an_owner(world: World, token: dict[str, Any]) -> None:
    await answered(world, "DELETE", f"{TOKENS}/{token['id']}")


async def removed(world: World, _: dict[str, Any]) -> None:
    async with world.services.store.write() as work:
        member = await work.session.get_one(Member, world.members["member"].id)
        await remove_member(work, await work.session.merge(world.acme), member, BY_OPERATOR)


async def signed_out_everywhere(world: World, _: dict[str, Any]) -> None:
    async with world.services.store.write() as work:
        member = await work.session.get_one(Member, world.members["member"].id)
        await end_sessions(work, await work.session.merge(world.acme), member, BY_OPERATOR)


@pytest.mark.parametrize(
    "end", [revoked_by_its_member, revoked_by_an_owner, removed, signed_out_everywhere]
)
async def test_the_next_request_after_its_end_is_refused(world: World, end: Any):
    token = await issued(world, await member_with_install(world))
    await install(world, bearer(token["token"]))
    await end(world, token)

    with pytest.raises(MACHINE_TOKEN_ENDED):
        await install(world, bearer(token["token"]))
    assert await listed(world) == []


async def test_it_installs_only_while_its_member_may(world: World):
    token = (await issued(world, await member_with_install(world)))["token"]
    await install(world, bearer(token))
    await grant(world, "member", "oidc:r")

    with pytest.raises(LACKS_CAPABILITY) as lacking:
        await install(world, bearer(token))
    assert lacking.value.text == LACKS_CAPABILITY(value=INSTALL).text


async def test_it_is_of_its_own_organisation_alone(world: World):
    token = (await issued(world))["token"]
    with pytest.raises(MACHINE_TOKEN_OF_ANOTHER_ORG):
        await install(world, bearer(token), slug="other")
    answer = await ask(world, "GET", TOKENS, who="stranger")
    assert answer.status_code == 403


async def test_members_see_and_revoke_only_their_own(world: World):
    who = await member_with_install(world)
    own, foreign = await issued(world, who), await issued(world)

    assert [token["id"] for token in await listed(world, who)] == [own["id"]]
    assert {token["id"] for token in await listed(world)} == {own["id"], foreign["id"]}
    status, text = await refused(await ask(world, "DELETE", f"{TOKENS}/{foreign['id']}", who=who))
    assert (status, text) == (403, LACKS_CAPABILITY(value="org:admin").text)
    status, _ = await refused(await ask(world, "DELETE", f"{TOKENS}/mtok_none", who=who))
    assert status == 404


@pytest.mark.parametrize(
    ("who", "body", "status", "beginning"),
    [
        ("member", {"name": "a"}, 403, "missing capability: packages:install"),
        ("admin", {"name": "a", "member": "owner@acme.example"}, 403, "missing capability"),
        ("operator", {"name": "a"}, 403, "machine tokens are for members: name one"),
        ("owner", {"name": ""}, 400, "name must not be empty"),
        ("owner", {"name": "a\u202eb"}, 400, "name must"),
        ("owner", {}, 400, "name is required"),
        ("owner", {"name": "a", "scope": "audit:r"}, 400, "unknown field: scope"),
        ("owner", {"name": "a", "member": "mem_none"}, 404, "Member not found"),
    ],
)
async def test_a_wrong_request_names_what_is_wrong(
    world: World, who: str, body: dict[str, Any], status: int, beginning: str
):
    answered_status, text = await refused(await ask(world, "POST", TOKENS, body, who))
    assert (answered_status, text[: len(beginning)]) == (status, beginning)
    assert await listed(world) == []


async def test_an_administrator_issues_one_for_a_member_below_them(gate: Gate):
    world = gate.world
    await grant(world, "admin", "org:admin")
    token = await issued(world, "admin", member=world.members["member"].email)
    assert token["member_id"] == world.members["member"].id
    answer = await ask(
        world, "POST", TOKENS, {"name": "x", "member": world.members["owner"].id}, "admin"
    )
    assert answer.status_code == 403


async def test_one_of_another_member_needs_a_recent_sign_in(world: World):
    """A stolen session must not install in another's name."""
    world.clock.advance(minutes=11)
    body = {"name": "x", "member": world.members["member"].id}
    status, text = await refused(await ask(world, "POST", TOKENS, body))

    assert (status, text) == (403, SignInAgain.text)
    await issued(world)


async def test_all_that_end_with_the_sessions_are_recorded(world: World):
    tokens = {(await issued(world))["id"] for _ in range(2)}
    owner = world.members["owner"].id
    await answered(world, "POST", f"/members/{owner}/sign-out", who="operator")

    rows = await world.audit(event="machine_token_revoked")
    assert {row["subject"] for row in rows} == tokens


async def test_an_administrator_may_list_the_own_ones_alone(world: World):
    own = await issued(world)
    await issued(world, await member_with_install(world))
    answer = await answered(world, "GET", TOKENS, own="true")
    assert [token["id"] for token in answer["machine_tokens"]] == [own["id"]]


async def test_a_member_has_a_bounded_number(world: World):
    for _ in range(LIVE_OF_MEMBER_MAX):
        token = await issued(world)
    status, text = await refused(await ask(world, "POST", TOKENS, {"name": "one more"}))
    assert (status, str(LIVE_OF_MEMBER_MAX) in text) == (409, True)
    await answered(world, "DELETE", f"{TOKENS}/{token['id']}")
    await issued(world)
