"""One binding's page, and revoking it there."""

import pytest
from sqlalchemy import select

from analytics.model.errors import StoreFault
from service.access.cross_site import csrf_token
from service.audit.refusals import QueryTooSlow
from service.core.errors import ReasonInvalid, StoreUnavailable
from service.core.text_rules import REASON_MAX
from service.store.tables import Session
from tests.conftest import grant
from tests.service.pages.page import AUDIT, ORG, OWN_PAGE, Page, fails, send_form, shown
from tests.service.pages.trust.pages import BINDINGS, SUB, see


def path_of(binding_id: str) -> str:
    return f"{BINDINGS}/{binding_id}"


def facts(page: Page) -> dict[str, str]:
    """What the page says of the binding, white space folded."""
    return {
        name.text: " ".join(said.text.split())
        for name, said in zip(page.all("dt"), page.all("dd"), strict=True)
    }


async def press(world, binding_id, who="owner", by="owner", **fields):
    """The answer to the revoke form that `by` was shown, sent by `who`."""
    page = await see(world, path_of(binding_id), by)
    return await send_form(world, page, f"{path_of(binding_id)}/revoke", who, **fields)


async def team_binding(world) -> str:
    """A binding of acme's team within an envelope."""
    await world.bind()
    return await world.bind(origin="team_admin", team_id=world.team.id)


async def state_of(world, binding_id):
    """When, by whom and why it was revoked."""
    (found,) = [one for one in await world.bindings() if one["id"] == binding_id]
    return found["revokedAt"], found["revokedBy"], found["revokedReason"]


async def test_the_page_has_every_field_and_the_history(world):
    binding_id = await world.bind(headers=world.session("owner"), event_names=["push", "schedule"])
    page = await see(world, path_of(binding_id))

    assert facts(page) == {
        "State": "✓ active",
        "Issuer": "https://token.actions.githubusercontent.com",
        "Subject": SUB,
        "Repository id": "123456789",
        "Events": "push, schedule",
        "Scope": "organisation",
        "Origin": "org_admin",
        "Added": "2026-03-04 12:00:00 by owner@acme.example",
        "Used": "never",
    }
    (created,) = [one.text for one in page.all("li")]
    assert created.startswith("2026-03-04 12:00:00 Binding created by owner@acme.example")
    (row,) = await world.audit(subject=binding_id)
    assert page.link("its request") == f"{AUDIT}?request_id={row['request_id']}"
    assert page.link("Rows that name it") == f"{AUDIT}?oidc_binding_id={binding_id}"
    assert page.link("Rows about it") == f"{AUDIT}?subject={binding_id}"


async def test_the_history_is_for_those_who_may_read_the_audit_log(world):
    await grant(world, "member", "oidc:r")
    page = await see(world, path_of(await world.bind()), "member")

    assert "History" not in page.html
    assert "/audit?" not in page.html


@pytest.mark.parametrize(
    "error", [QueryTooSlow(), StoreFault("a segment is damaged"), StoreUnavailable()], ids=repr
)
async def test_a_binding_is_shown_where_its_history_cannot_be_read(world, monkeypatch, error):
    """Damaged rows must not prevent revoking."""
    binding_id = await world.bind()
    fails(monkeypatch, "page", error)
    page = await see(world, path_of(binding_id))

    assert "could not be read" in page.html
    assert page.one("button", **{"class": "stop"}).text == "Revoke permanently"


async def test_revoking_says_what_it_does_and_is_one_row(world):
    binding_id = await world.bind()
    response = await press(world, binding_id, reason="moved to other/repo")

    assert response.status_code == 303
    assert response.headers["location"] == f"{path_of(binding_id)}?done=revoked"
    page = await see(world, response.headers["location"])
    assert page.one("p", role="status").text.startswith("The binding is revoked")
    assert facts(page)["State"] == "✕ revoked"
    assert facts(page)["Revoked"] == "2026-03-04 12:00:00 by owner@acme.example"
    assert facts(page)["Reason"] == "moved to other/repo"
    assert not page.all("button", **{"class": "stop"})
    revoked, _ = await world.audit(subject=binding_id)
    assert revoked["event"] == "oidc_binding_revoked"
    assert revoked["verdict_source"] == "dashboard"
    assert revoked["payload"]["revoked_reason"] == "moved to other/repo"


async def test_a_note_is_one_of_ours(world):
    """An address must not put words on the page."""
    page = await see(world, f"{path_of(await world.bind())}?done=you%20were%20hacked")

    assert "hacked" not in page.html
    assert not page.all("p", role="status")


@pytest.mark.parametrize("reason", ["x" * (REASON_MAX + 1), "a\x00b", "a\nb"])
async def test_a_reason_that_is_none_is_named_and_kept(world, reason):
    binding_id = await world.bind()
    page = await shown(await press(world, binding_id, reason=reason), 400)

    assert page.one("p", id="hint-revoke-reason").text == ReasonInvalid.text
    assert "open" in page.one("details", **{"class": "danger"}).attributes
    assert page.values("reason")[0].replace("\ufffd", "\x00") == reason
    assert (await state_of(world, binding_id))[0] is None


async def test_a_concurrent_revoke_was_first(world):
    binding_id = await world.bind()
    page = await see(world, path_of(binding_id))
    await world.revoke(binding_id, "first")
    response = await send_form(world, page, f"{path_of(binding_id)}/revoke", reason="second")
    told = await shown(response, 409)

    assert "was already revoked" in told.one("div", role="alert").text
    assert facts(told)["Reason"] == "first"
    assert len(await world.audit(event="oidc_binding_revoked")) == 1


@pytest.mark.parametrize(
    ("who", "role", "granted", "of_org", "of_team"),
    [
        ("owner", None, (), True, True),
        ("admin", "admin", ("oidc:r", "oidc:w"), True, True),
        ("admin", "admin", ("oidc:r",), False, False),
        ("team_admin", "member", ("oidc:r", "oidc:w"), False, True),
        ("member", "member", ("oidc:r", "oidc:w"), False, False),
    ],
)
async def test_the_button_is_for_those_who_may(world, who, role, granted, of_org, of_team):
    if role:
        await grant(world, role, *granted)
    team_id = await team_binding(world)
    envelope = next(one["id"] for one in await world.bindings() if one["id"] != team_id)

    for binding_id, may in ((team_id, of_team), (envelope, of_org)):
        page = await see(world, path_of(binding_id), who)
        action = f"{path_of(binding_id)}/revoke"
        assert (action in page.forms) == may
        form = {"csrf": page.forms["/sign-out"]["csrf"]}
        response = await world.client.post(action, form=form, headers=world.session(who) | OWN_PAGE)
        assert response.status_code == (303 if may else 403)
        assert ((await state_of(world, binding_id))[0] is not None) == may


async def test_to_change_bindings_is_not_to_read_them(world):
    binding_id = await world.bind()
    token = csrf_token(world.services.settings.secret_key, await session_of(world, "admin"))
    await grant(world, "admin", "oidc:w")

    async def send(reason: str):
        return await world.client.post(
            f"{path_of(binding_id)}/revoke",
            form={"csrf": token, "reason": reason},
            headers=world.session("admin") | OWN_PAGE,
        )

    faulty = await send("x" * (REASON_MAX + 1))
    done = await send("over")
    late = await send("over")

    assert (faulty.status_code, done.status_code, late.status_code) == (403, 303, 403)
    assert done.headers["location"] == ORG
    for answer in (faulty, late):
        assert SUB not in await answer.get_data(as_text=True)


async def session_of(world, name) -> str:
    """The id of a member's session."""
    async with world.services.store.read() as session:
        mine = select(Session.id).where(Session.member_id == world.members[name].id)
        return await session.scalar(mine)
