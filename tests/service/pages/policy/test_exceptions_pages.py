"""The pages about exceptions: every member asks, who may change the policy decides."""

from typing import Any

import pytest

from tests.conftest import World, grant
from tests.service.pages.page import send, send_form, shown
from tests.service.pages.people.desk import actor, get, leads_to, logged, see
from tests.service.pages.policy.desk import POLICY, csrf, in_force

EXCEPTIONS = f"{POLICY}/exceptions"
NEW = f"{EXCEPTIONS}/new"
VITE = {"ecosystem": "npm", "package": "vite", "version": "1.2.3", "reason": "fixes a hole"}


async def ask(world: World, who: str = "member", **changes: str) -> Any:
    return await send_form(
        world, await see(world, "policy/exceptions/new", who), NEW, who, **(VITE | changes)
    )


async def decide(world: World, decision: str, who: str = "owner", **fields: str) -> Any:
    """The answer to the decision on the oldest request."""
    page = await see(world, "policy/exceptions", who)
    action = next(path for path in page.forms if path.endswith("/decide"))
    return await send_form(world, page, action, who, decision=decision, **fields)


async def test_a_member_asks_and_an_owner_allows(world: World):
    answer = await ask(world)
    assert leads_to(answer) == f"{NEW}?done=asked"
    page = await see(world, "policy/exceptions")
    assert "fixes a hole" in page.html
    assert "member@acme.example" in page.html
    assert "1 request waits for a decision" in (await see(world, "policy")).html

    answer = await decide(world, "allow", reason="looked at it")
    assert leads_to(answer) == f"{EXCEPTIONS}?done=allowed"
    (rule,) = (await in_force(world))[1]["allow"]
    assert (rule["package"], rule["versions"]) == ("vite", ["1.2.3"])
    events = await logged(world)
    assert [event for event, _, _ in events[:3]] == [
        "policy_exception_decided",
        "policy_changed",
        "policy_exception_requested",
    ]
    assert [who for _, who, _ in events[:3]] == [
        actor(world, "owner"),
        actor(world, "owner"),
        actor(world, "member"),
    ]
    assert "looked at it" in (await see(world, "policy/exceptions")).html


async def test_what_is_declined_changes_no_policy(world: World):
    await ask(world)
    leads_to(await decide(world, "decline", reason="wait a week"))
    page = await see(world, "policy/exceptions?done=declined")

    assert await in_force(world) == (0, {})
    assert "wait a week" in page.html
    assert page.one("p", role="status").text == "Declined: the policy is unchanged."


async def test_the_form_is_filled_in_from_its_address(world: World):
    page = await see(world, "policy/exceptions/new?package=%40acme%2Fx&version=2.0.0", "member")

    assert page.one("input", id="ask-package").attributes["value"] == "@acme/x"
    assert page.one("input", id="ask-version").attributes["value"] == "2.0.0"
    assert "owner@acme.example" in page.html
    assert "selected" in page.one("option", value="npm").attributes
    assert f'href="{POLICY}"' not in page.html


async def test_what_was_decided_meanwhile_is_said_so(world: World):
    await ask(world)
    old = await see(world, "policy/exceptions")
    leads_to(await decide(world, "decline"))
    action = next(path for path in old.forms if path.endswith("/decide"))
    page = await shown(await send_form(world, old, action, decision="allow"), 409)

    assert "declined already" in page.one("div", role="alert").text
    assert await in_force(world) == (0, {})
    missing = await send_form(world, old, action, decision="nothing")
    assert missing.status_code == 400


@pytest.mark.parametrize("who", ["member", "admin", "auditor"])
async def test_only_who_may_change_the_policy_decides(world: World, who: str):
    await ask(world)
    action = await _decision(world)
    fields = await csrf(world, who) | {"decision": "allow"}
    assert (await send(world, action, fields, who)).status_code == 403
    assert (await get(world, "policy/exceptions", who)).status_code == 403
    await grant(world, who, "policy:r")

    seen = await see(world, "policy/exceptions", who)
    assert "fixes a hole" in seen.html
    assert action not in seen.forms
    assert (await send(world, action, fields, who)).status_code == 403
    assert await in_force(world) == (0, {})


async def _decision(world: World) -> str:
    """Where the form that decides on the oldest request goes."""
    page = await see(world, "policy/exceptions")
    return next(path for path in page.forms if path.endswith("/decide"))
