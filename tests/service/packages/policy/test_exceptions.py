"""A member asks for an exception from the cooldown, an owner decides; each is an audit row."""

from typing import Any

import pytest
from sqlalchemy import update

from service.packages.policy import exceptions as limits
from service.store.tables import PolicyException
from tests.conftest import World
from tests.service.packages.policy.test_routes import ask, checked, put, refusal

ASKED = {"ecosystem": "pypi", "package": "Requests==2.32.3", "reason": "fixes CVE-2026-1"}
COOLDOWN = {"cooldown": {"min_age_days": 7}}


async def requested(world: World, who: str = "member", **changes: Any) -> Any:
    """The response to a member's request."""
    return await world.client.post(
        "/api/v1/admin/orgs/acme/policy/exceptions",
        headers=world.session(who),
        json=ASKED | changes,
    )


async def decided(world: World, exception_id: str, **body: str) -> Any:
    return await ask(world, "POST", f"/exceptions/{exception_id}/decide", body)


async def test_a_member_asks_and_an_owner_allows(world: World) -> None:
    await put(world, COOLDOWN)
    asked = await (await requested(world)).get_json()
    before = await checked(world, ecosystem="pypi", package="requests==2.32.3")

    answer = await decided(world, asked["id"], decision="allow", reason="urgent")

    after = await checked(world, ecosystem="pypi", package="requests==2.32.3")
    other = await checked(world, ecosystem="pypi", package="requests==2.32.4")
    assert (asked["package"], asked["version"], asked["state"]) == ("requests", "2.32.3", "open")
    assert (await answer.get_json())["state"] == "allowed"
    assert before["decision"] is None
    assert (after["decision"], after["rule_id"]) == ("ALLOWED", asked["id"])
    assert other["decision"] is None


@pytest.mark.parametrize("version", ["1.2.3beta", "01.2.3", "==1.2.3", "9007199254740991.0.0"])
async def test_a_version_that_no_rule_can_name_is_refused_at_once(world: World, version: str):
    """Npm reads such versions. An exception is a rule, so an owner could not allow it."""
    await put(world, COOLDOWN)
    answer = await requested(world, ecosystem="npm", package="left-pad", version=version)

    assert answer.status_code == 400
    text = (await answer.get_json())["error"]
    assert text.startswith("version must be spelled as in a rule")
    assert await world.audit(event="policy_exception_requested") == []


@pytest.mark.parametrize("name", ["*", "left-*", "@acme/*", "le*ft"])
async def test_a_name_that_a_rule_takes_for_several_is_refused(world: World, name: str):
    """Old names of npm have `*`: the rule would let every package through."""
    await put(world, COOLDOWN)
    answer = await requested(world, ecosystem="npm", package=name, version="1.0.0")

    assert answer.status_code == 400
    assert (await answer.get_json())["error"].startswith("package must not have `*`")
    assert await world.audit(event="policy_exception_requested") == []


async def test_an_older_request_for_such_a_name_is_not_allowed(world: World):
    """It may wait since before they were refused; it can be declined."""
    await put(world, COOLDOWN)
    asked = await (await requested(world, ecosystem="npm", package="x@1.0.0")).get_json()
    async with world.services.store.write() as work:
        await work.session.execute(update(PolicyException).values(package="*"))

    allowed = await decided(world, asked["id"], decision="allow")
    declined = await decided(world, asked["id"], decision="decline")

    assert (allowed.status_code, declined.status_code) == (400, 200)
    assert (await checked(world, ecosystem="npm", package="y@1.0.0"))["decision"] is None


async def test_each_step_is_an_audit_row(world: World) -> None:
    asked = await (await requested(world)).get_json()
    await decided(world, asked["id"], decision="allow")

    (request,) = await world.audit(event="policy_exception_requested")
    (decision,) = await world.audit(event="policy_exception_decided")
    (change,) = await world.audit(event="policy_changed")

    assert request["actor"].endswith(world.members["member"].id)
    assert request["payload"]["reason"] == "fixes CVE-2026-1"
    assert decision["actor"] == "system:admin-token"
    assert decision["payload"]["state"] == "allowed"
    assert request["subject"] == decision["subject"] == asked["id"]
    assert change["payload"]["after"]["allow"][0].startswith(f"{asked['id']}: pypi:requests")


async def test_a_declined_request_changes_no_policy(world: World) -> None:
    """And can be asked again."""
    asked = await (await requested(world)).get_json()

    answer = await decided(world, asked["id"], decision="decline", reason="wait a week")

    assert (await answer.get_json())["decided_reason"] == "wait a week"
    assert await world.audit(event="policy_changed") == []
    assert (await requested(world)).status_code == 201


async def test_a_request_is_decided_once(world: World) -> None:
    asked = await (await requested(world)).get_json()
    await decided(world, asked["id"], decision="decline")

    again = await refusal(await decided(world, asked["id"], decision="allow"))
    elsewhere = await ask(
        world, "POST", f"/exceptions/{asked['id']}/decide", {"decision": "allow"}, "other"
    )
    unknown = await decided(world, "pexc_0", decision="allow")

    assert again == (409, "this request is declined already: request a new one")
    assert (elsewhere.status_code, unknown.status_code) == (404, 404)


async def test_requests_are_listed_newest_first(world: World) -> None:
    first = await (await requested(world)).get_json()
    world.clock.advance(seconds=1)
    second = await (await requested(world, package="requests==2.32.4")).get_json()
    await decided(world, first["id"], decision="decline")

    async def listed(query: str = "", slug: str = "acme") -> list[str]:
        body = await (await ask(world, "GET", f"/exceptions{query}", slug=slug)).get_json()
        return [one["id"] for one in body["exceptions"]]

    assert await listed() == [second["id"], first["id"]]
    assert await listed("?state=open") == [second["id"]]
    assert await listed("?limit=1") == [second["id"]]
    assert await listed(slug="other") == []
    assert (await ask(world, "GET", "/exceptions?state=x")).status_code == 400


async def test_each_request_is_on_one_page(world: World) -> None:
    """Those of one instant, too: which of them comes first does not change."""
    made = {
        (await (await requested(world, package=f"requests==2.32.{number}")).get_json())["id"]
        for number in range(5)
    }

    async def page(query: str) -> tuple[list[str], str | None]:
        body = await (await ask(world, "GET", f"/exceptions?limit=2{query}")).get_json()
        return [entry["id"] for entry in body["exceptions"]], body["next_cursor"]

    first, cursor = await page("")
    second, next_cursor = await page(f"&cursor={cursor}")
    third, last = await page(f"&cursor={next_cursor}")
    of_another_list = await ask(world, "GET", f"/exceptions?state=open&cursor={cursor}")

    assert list(map(len, (first, second, third))) == [2, 2, 1]
    assert {*first, *second, *third} == made
    assert last is None
    assert of_another_list.status_code == 400


async def test_members_ask_and_do_not_decide(world: World) -> None:
    asked = await (await requested(world)).get_json()
    path = "/api/v1/admin/orgs/acme/policy/exceptions"

    seen = await world.client.get(path, headers=world.session("member"))
    decided_by_member = await world.client.post(
        f"{path}/{asked['id']}/decide",
        headers=world.session("member"),
        json={"decision": "allow"},
    )
    stranger = await requested(world, "stranger", package="a==1")

    assert (seen.status_code, decided_by_member.status_code, stranger.status_code) == (403,) * 3


async def test_the_same_release_is_asked_for_once_and_requests_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of owners must stay readable."""
    monkeypatch.setattr(limits, "OPEN_MAX", 2)
    assert (await requested(world)).status_code == 201

    same = await refusal(await requested(world, "owner"))
    await requested(world, package="requests==2.32.4")
    third = await refusal(await requested(world, package="requests==2.32.5"))

    assert same[0] == 409
    assert third == (
        409,
        "limit of 2 open requests reached: decide some first",
    )


async def test_one_member_may_not_fill_the_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others must still be able to ask."""
    monkeypatch.setattr(limits, "OPEN_OF_MEMBER_MAX", 1)
    first = await (await requested(world)).get_json()

    second = await refusal(await requested(world, package="requests==2.32.4"))
    other = await requested(world, "owner", package="requests==2.32.4")
    await world.client.post(
        f"/api/v1/admin/orgs/acme/policy/exceptions/{first['id']}/decide",
        headers=world.session("owner"),
        json={"decision": "decline"},
    )
    after_decision = await requested(world, package="requests==2.32.5")

    assert second == (
        409,
        "limit of 1 open requests of one member reached: wait for a decision on yours",
    )
    assert other.status_code == 201
    assert after_decision.status_code == 201


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reason": ""}, "reason: must be 1 to 256"),
        ({"reason": None}, "reason is required"),
        ({"reason": "a\nb"}, "reason: must be 1 to 256"),
        ({"package": "requests"}, "version is required"),
        ({"package": "requests==latest"}, "version: "),
        ({"ecosystem": "gem"}, "ecosystem must be"),
        ({"published_at": "2026-01-01T00:00:00Z"}, "unknown field: published_at"),
        ({"note": "x"}, "unknown field: note"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_request_names_the_field(
    shared_world: World, changes: dict[str, Any], said: str
) -> None:
    status, text = await refusal(await requested(shared_world, **changes))

    assert status == 400
    assert said in text
    assert await shared_world.audit(event="policy_exception_requested") == []


@pytest.mark.parametrize("body", [{}, {"decision": "maybe"}, {"decision": "allow", "who": "x"}])
async def test_a_wrong_decision_changes_nothing(world: World, body: dict[str, str]) -> None:
    asked = await (await requested(world)).get_json()

    assert (await decided(world, asked["id"], **body)).status_code == 400
    assert (await decided(world, asked["id"], decision="decline")).status_code == 200


async def test_a_policy_is_no_other_organisations(world: World) -> None:
    await put(world, COOLDOWN)

    other = await (await ask(world, "GET", slug="other")).get_json()

    assert other["revision"] == 0
    assert other["policy"]["cooldown"] is None
