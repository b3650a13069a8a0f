"""Changes that give access need a recent sign-in, which a passkey gives in place."""

from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from service.access.sessions import find_session
from service.core.header_names import SESSION_COOKIE
from service.store.tables import Session
from tests.conftest import World, refused, running_world
from tests.service.access.passkeys.holders import PROFILE, Holder
from tests.service.pages.page import ORG, Page

KEYS = "/api/v1/admin/orgs/acme/api-keys"
AGAIN = f"{PROFILE}/sign-in-again"
TEXT = "sign in again to do this"
RECENT_S = 600


@pytest.fixture
async def owner(world: World) -> Holder:
    """An owner with a passkey, whose sign-in is as old as it may be and a moment more."""
    holder = Holder(world).with_session_of("owner")
    assert (await holder.register()).status_code == 201
    world.clock.advance(seconds=RECENT_S)
    return holder


async def issue(world: World, headers: dict[str, str]) -> Any:
    return await world.client.post(
        KEYS, headers=headers, json={"name": "ci", "scopes": ["audit:r"]}
    )


async def confirm(holder: Holder, **lies: Any) -> Any:
    """Use the passkey on the page that asks for it."""
    csrf = await holder.csrf()
    begun = await holder.post_json(f"{AGAIN}/begin", {"csrf": csrf})
    assert begun.status_code == 200
    proof = holder.authenticator.prove(await begun.get_json(), **lies)
    return await holder.post_json(f"{AGAIN}/finish", {"csrf": csrf, "credential": proof})


async def send(holder: Holder, page: str, form: str = "", **typed: str) -> Any:
    """Fill in a form of a page of the organisation, with the page's hidden fields."""
    shown = Page(await (await holder.get(f"{ORG}/{page}")).get_data(as_text=True))
    hidden = {name: shown.values(name)[0] for name in ("csrf", "once") if shown.values(name)}
    return await holder.post(form or f"{ORG}/{page}", **(hidden | typed))


async def test_the_api_asks_for_a_recent_sign_in(world: World) -> None:
    world.clock.advance(seconds=RECENT_S - 1)
    assert (await issue(world, world.session("owner"))).status_code == 201
    world.clock.advance(seconds=1)
    bearer = {"authorization": f"Bearer {world.cookies['owner']}"}

    assert await refused(await issue(world, world.session("owner"))) == (403, TEXT)
    assert await refused(await issue(world, bearer)) == (403, TEXT)


async def test_the_admin_token_is_no_session(world: World) -> None:
    world.clock.advance(days=1)

    assert (await issue(world, world.admin)).status_code == 201


async def test_what_takes_access_away_needs_none(world: World) -> None:
    """A leaked key is revoked at once."""
    key = await (await issue(world, world.session("owner"))).get_json()
    world.clock.advance(seconds=RECENT_S)
    answer = await world.client.delete(f"{KEYS}/{key['id']}", headers=world.session("owner"))

    assert answer.status_code == 200


async def test_the_bindings_of_the_specification_need_none(world: World) -> None:
    world.clock.advance(seconds=RECENT_S)

    assert (await world.create(world.session("owner"))).status_code == 201


async def test_the_operator_sets_how_recent(settings: Any, clock: Any) -> None:
    brief = msgspec.structs.replace(settings, recent_sign_in_s=5.0)
    async with running_world(brief, clock, has_sealer=False) as world:
        world.clock.advance(seconds=4)
        assert (await issue(world, world.session("owner"))).status_code == 201
        world.clock.advance(seconds=1)
        assert (await issue(world, world.session("owner"))).status_code == 403


@pytest.mark.parametrize(
    ("page", "form", "typed"),
    [
        ("keys", "", {"name": "npm proxy", "scopes": "audit:r"}),
        ("members", "", {"email": "new@acme.example", "role": "member", "idp": "github"}),
        ("members", "members/{auditor}/role", {"role": "admin"}),
        ("members", "members/{auditor}/link", {}),
        ("teams", "teams/{team}/admins", {"member": "auditor@acme.example"}),
        ("roles", "roles/auditor", {"capability": "oidc:r", "before": ""}),
    ],
)
async def test_pages_ask_for_it_and_then_do_it(
    owner: Holder, page: str, form: str, typed: dict[str, str]
) -> None:
    world = owner.world
    place = form.format(auditor=world.members["auditor"].id, team=world.team.id)
    path = f"{ORG}/{place}" if place else ""
    before = await world.audit()
    asked = await send(owner, page, path, **typed)

    assert asked.status_code == 403
    shown = Page(await asked.get_data(as_text=True))
    assert "Sign in again to do this" in shown.one("section", id="sign-in-again").text
    assert await world.audit() == before
    assert (await confirm(owner)).status_code == 200
    assert (await send(owner, page, path, **typed)).status_code in {200, 303}
    assert len(await world.audit()) > len(before) + 1, "one row is of the passkey"


async def test_what_was_typed_stays_in_the_form(owner: Holder) -> None:
    asked = await send(owner, "keys", name="npm proxy", scopes="audit:r", expires="30d")

    shown = Page(await asked.get_data(as_text=True))
    assert shown.one("input", id="issue-name").attributes["value"] == "npm proxy"


async def test_the_form_of_the_page_still_works_after_a_passkey(owner: Holder) -> None:
    asked = await send(owner, "keys", name="npm proxy", scopes="audit:r")
    shown = Page(await asked.get_data(as_text=True))
    hidden = {name: shown.values(name)[0] for name in ("csrf", "once")}
    assert (await confirm(owner)).status_code == 200
    done = await owner.post(f"{ORG}/keys", name="npm proxy", scopes="audit:r", **hidden)

    assert done.status_code == 200
    assert 'id="key-secret"' in await done.get_data(as_text=True)


async def test_the_former_cookie_ends(owner: Holder) -> None:
    """A copy of it is worth nothing from then on."""
    before = owner.cookies[SESSION_COOKIE]
    answer = await confirm(owner)

    assert await answer.get_json() == {"next": None}
    assert owner.cookies[SESSION_COOKIE] != before
    stolen = Holder(owner.world)
    stolen.cookies[SESSION_COOKIE] = before
    assert (await stolen.get(PROFILE)).status_code != 200
    assert (await owner.get(PROFILE)).status_code == 200
    (row, *_) = await owner.world.audit(event="passkey_authentication_succeeded")
    assert row["subject"] == owner.world.members["owner"].id


async def test_the_passkey_of_another_member_confirms_nothing(owner: Holder) -> None:
    """It would be theirs to use, on their own session."""
    world = owner.world
    thief = Holder(world, authenticator=owner.authenticator).with_session_of("admin")
    answer = await confirm(thief)

    assert answer.status_code == 403
    (row,) = await world.audit(event="sign_in_failed")
    assert row["payload"]["reason"] == "the passkey answered for another member"
    async with world.services.store.read() as session:
        lifetimes = world.services.authenticator.lifetimes
        found = await find_session(
            session, Session.member_id == world.members["admin"].id, lifetimes, world.clock()
        )
    assert found is not None
    assert found[0].authenticated_at < world.clock()


async def test_a_form_of_another_session_confirms_nothing(owner: Holder) -> None:
    answer = await owner.post_json(f"{AGAIN}/begin", {"csrf": "0" * 64})

    assert answer.status_code == 403


async def test_passkeys_are_added_and_removed_after_a_recent_sign_in(owner: Holder) -> None:
    """A thief must not leave a passkey of their own behind."""
    begun = await owner.post_json(f"{PROFILE}/passkeys/begin", {"csrf": await owner.csrf()})
    assert await refused(begun) == (403, TEXT)
    (passkey,) = (await owner.profile()).values("passkey")
    removing = await owner.post(
        f"{PROFILE}/passkeys/remove", csrf=await owner.csrf(), passkey=passkey
    )
    assert removing.headers["location"].startswith(AGAIN)
    page = Page(await (await owner.get(AGAIN)).get_data(as_text=True))
    assert page.one("section", id="sign-in-again")

    assert (await confirm(owner)).status_code == 200
    removing = await owner.post(
        f"{PROFILE}/passkeys/remove", csrf=await owner.csrf(), passkey=passkey
    )
    assert removing.headers["location"].endswith("done=passkey-removed")


async def test_a_command_line_is_approved_after_a_recent_sign_in(owner: Holder) -> None:
    client = owner.world.app.test_client(use_cookies=False)
    asked = await client.post("/api/v1/device/code", form={"client_id": "countersign-cli"})
    codes = await asked.get_json()
    answer = {"csrf": await owner.csrf(), "code": codes["user_code"]}
    approved = await owner.post("/device/decision", decision="approve", **answer)

    assert approved.status_code == 403
    page = Page(await approved.get_data(as_text=True))
    assert page.one("section", id="sign-in-again")
    assert codes["user_code"] in page.html
    assert (await confirm(owner)).status_code == 200
    approved = await owner.post("/device/decision", decision="approve", **answer)
    assert "The command line is signed in" in await approved.get_data(as_text=True)


async def test_a_sign_in_under_a_clock_that_was_ahead_is_not_recent(world: World) -> None:
    """It would be for as long as the clock was ahead, and a stolen session with it."""
    headers = world.session("owner")
    world.clock.advance(seconds=-RECENT_S + 1)
    assert (await issue(world, headers)).status_code == 201
    world.clock.advance(seconds=-1)

    assert (await issue(world, headers)).status_code == 403


async def test_a_session_from_before_counts_from_its_creation(world: World) -> None:
    async with world.services.store.write() as work:
        await work.session.execute(update(Session).values(authenticated_at=None))
    assert (await issue(world, world.session("owner"))).status_code == 201
    world.clock.advance(seconds=RECENT_S)

    assert (await issue(world, world.session("owner"))).status_code == 403
