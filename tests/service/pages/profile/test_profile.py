"""A member's own page: what it shows, and what its forms end."""

from typing import Any

import pytest

from service.core.header_names import SESSION_COOKIE
from service.orgs.members import issue_cookie, issue_sign_in
from service.pages.profile import browser_words
from tests.conftest import BY_OPERATOR, World, refused
from tests.service.access.passkeys.holders import PROFILE, Holder
from tests.service.pages.page import Page

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"


@pytest.fixture
def holder(world: World) -> Holder:
    return Holder(world).with_session_of("auditor")


async def sign_in_elsewhere(holder: Holder, user_agent: str = FIREFOX) -> Holder:
    """The same member in another browser, by a link."""
    world = holder.world
    async with world.services.store.write() as work:
        token = await issue_sign_in(work, world.acme, world.members["auditor"], BY_OPERATOR)
    other = Holder(world)
    own = {"origin": "http://localhost:8080", "user-agent": user_agent}
    assert (await other.post("/sign-in", headers=own, token=token)).status_code == 303
    return other


async def send(holder: Holder, action: str, **fields: str) -> Any:
    return await holder.post(f"{PROFILE}/{action}", csrf=await holder.csrf(), **fields)


async def sessions(holder: Holder) -> list[str]:
    return (await holder.profile()).values("session")


async def test_it_says_who_the_member_is(holder: Holder) -> None:
    text = (await holder.profile()).one("dl").text

    for fact in ("auditor@acme.example", "acme", "auditor", "github", "no account linked"):
        assert fact in text


async def test_it_is_every_members_own(world: World) -> None:
    page = await Holder(world).with_session_of("member").profile()

    assert "member@acme.example" in page.html
    assert "owner@acme.example" not in page.html
    assert page.values("session") == []


async def test_a_visitor_is_led_to_the_way_in_and_back(world: World) -> None:
    answer = await world.client.get(PROFILE, headers={"accept": "text/html"})

    assert answer.headers["location"] == "/admin/ui/sign-in?next=/admin/ui/profile"


async def test_a_session_is_told_by_its_browser_and_address(holder: Holder) -> None:
    other = await sign_in_elsewhere(holder)

    page = await other.profile()

    assert "Firefox on Linux" in page.html
    assert FIREFOX in page.html
    (this,) = [row for row in page.all("th") if "this session" in row.text]
    assert "Firefox on Linux" in this.text
    assert len(page.values("session")) == 1


async def test_what_a_browser_calls_itself_is_bounded_and_escaped(holder: Holder) -> None:
    """Any text can be in that header."""
    hostile = "</th><script>alert(1)</script>" + "\x85é" + "x" * 5000

    page = await (await sign_in_elsewhere(holder, hostile)).profile()

    assert "<script>alert" not in page.html
    assert "x" * 301 not in page.html
    assert "\x85" not in page.html


async def test_one_session_is_ended_with_one_row(holder: Holder) -> None:
    other = await sign_in_elsewhere(holder)
    (there,) = await sessions(holder)
    before = len(await holder.world.audit())

    answer = await send(holder, "sessions/end", session=there)

    assert answer.status_code == 303
    assert (await other.get(PROFILE)).status_code == 401
    assert answer.headers["location"] == f"{PROFILE}?done=session-ended"
    done = Page(await (await holder.get(PROFILE, done="session-ended")).get_data(as_text=True))
    assert done.one("p", **{"class": "panel done"}).text == "The session was ended."
    rows = await holder.world.audit()
    assert len(rows) == before + 1
    member = holder.world.members["auditor"]
    assert rows[0]["event"] == "session_revoked"
    assert rows[0]["payload"] == {"member_id": member.id, "sessions": 1}
    assert (rows[0]["actor"], rows[0]["subject"]) == (f"github:{member.id}", member.id)


async def test_ending_all_others_keeps_this_one(holder: Holder) -> None:
    others = [await sign_in_elsewhere(holder) for _ in range(3)]
    async with holder.world.services.store.write() as work:
        auditor = holder.world.members["auditor"]
        unused = await issue_sign_in(work, holder.world.acme, auditor, BY_OPERATOR)

    assert (await send(holder, "sessions/end-others")).status_code == 303

    assert [(await one.get(PROFILE)).status_code for one in others] == [401] * 3
    assert (await refused(await Holder(holder.world).post("/sign-in", token=unused)))[0] == 401
    (row,) = await holder.world.audit(event="session_revoked")
    assert row["payload"]["sessions"] == 3
    assert await sessions(holder) == []


async def test_what_ends_nothing_leaves_no_row(holder: Holder) -> None:
    """Pressing twice is no event, and no member ends another's sessions."""
    owner = Holder(holder.world).with_session_of("owner")
    await sign_in_elsewhere(holder)
    (there,) = await sessions(holder)

    assert (await send(owner, "sessions/end", session=there)).status_code == 303
    assert (await send(owner, "sessions/end", session="sess_none")).status_code == 303
    assert (await send(owner, "sessions/end-others")).status_code == 303

    assert await holder.world.audit(event="session_revoked") == []
    assert await sessions(holder) == [there]


async def test_sessions_that_are_over_are_not_listed(holder: Holder) -> None:
    async with holder.world.services.store.write() as work:
        auditor = holder.world.members["auditor"]
        cookie = await issue_cookie(work, holder.world.acme, auditor, BY_OPERATOR)
    holder.world.clock.advance(hours=7)
    assert len(await sessions(holder)) == 1
    holder.world.clock.advance(hours=7)
    assert await sessions(holder) == []

    holder.cookies[SESSION_COOKIE] = cookie
    assert (await holder.get(PROFILE)).status_code == 401


# Passkeys


async def test_a_passkey_is_removed_with_one_row(holder: Holder) -> None:
    await holder.register("Laptop")
    (passkey,) = (await holder.profile()).values("passkey")
    before = len(await holder.world.audit())

    answer = await send(holder, "passkeys/remove", passkey=passkey)

    assert answer.headers["location"] == f"{PROFILE}?done=passkey-removed"
    assert "You have no passkey." in (await holder.profile()).html
    rows = await holder.world.audit()
    assert len(rows) == before + 1
    member = holder.world.members["auditor"]
    assert rows[0]["event"] == "passkey_removed"
    assert rows[0]["payload"] == {"member_id": member.id, "credential_id": passkey}
    assert (await refused(await send(holder, "passkeys/remove", passkey=passkey)))[0] == 404


async def test_a_member_cannot_remove_another_members_passkey(holder: Holder) -> None:
    """Its id is in the audit log, for others to read."""
    await holder.register("Laptop")
    (passkey,) = (await holder.profile()).values("passkey")
    owner = Holder(holder.world).with_session_of("owner")

    assert (await refused(await send(owner, "passkeys/remove", passkey=passkey)))[0] == 404
    assert (await holder.profile()).values("passkey") == [passkey]


async def test_a_name_is_shown_as_it_was_given(holder: Holder) -> None:
    await holder.register("<script>alert(1)</script> مرحبا")

    page = await holder.profile()

    assert "<script>alert(1)</script> مرحبا" in page.one("main").text
    assert "<script>alert" not in page.html


async def test_when_a_passkey_was_last_used_is_shown(holder: Holder) -> None:
    """One that is never used can go."""
    await holder.register()
    assert "never" in (await holder.profile()).one("main").text
    holder.world.clock.advance(hours=1)
    await holder.sign_in()

    page = await holder.profile()

    assert "never" not in page.one("main").text
    assert "2026-03-04 13:00" in page.one("main").text


# The forms


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
            " Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0",
            "Edge on Windows",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like"
            " Gecko) Version/18.6 Safari/605.1.15",
            "Safari on macOS",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML,"
            " like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
        ),
        (
            "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko)"
            " Chrome/141.0.0.0 Mobile Safari/537.36",
            "Chrome on Android",
        ),
        ("curl/8.14.1", "curl"),
        ("something else", None),
        (None, None),
    ],
)
def test_browsers_are_called_what_people_call_them(
    user_agent: str | None, words: str | None
) -> None:
    """Browsers claim to be others, too."""
    assert browser_words(user_agent) == words
