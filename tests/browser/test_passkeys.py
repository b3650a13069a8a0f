"""Passkeys in a real browser, with Chromium's virtual authenticator: added, used, and refused."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect
from sqlalchemy import select

from service.app.composition import Services
from service.orgs.members import add_member, issue_cookie
from service.store.organisations import get_org
from service.store.tables import Member
from tests.browser.accessible import PHONE, WIDE, expect_no_violations
from tests.browser.chromium import needs_chromium
from tests.budgets import only_full
from tests.conftest import BY_OPERATOR
from tests.processes.homes import Home, Server, age_sign_ins, all_entries, free_port

pytestmark = needs_chromium

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@dataclass
class PasskeyPage:
    """A member at a browser that has an authenticator."""

    url: str
    page: Page
    cdp: CDPSession
    authenticator: str
    complaints: list[str] = field(default_factory=list)

    def be_verified(self, verified: bool) -> None:
        """From now on the authenticator's owner is there, or another person."""
        self.cdp.send(
            "WebAuthn.setUserVerified",
            {"authenticatorId": self.authenticator, "isUserVerified": verified},
        )

    def credential(self) -> dict[str, Any]:
        """What the authenticator holds, which no real one would give away."""
        held = self.cdp.send("WebAuthn.getCredentials", {"authenticatorId": self.authenticator})
        (credential,) = held["credentials"]
        return dict(credential)

    def replace(self, credential: dict[str, Any]) -> None:
        """Hold `credential` instead."""
        named = {"authenticatorId": self.authenticator}
        self.cdp.send("WebAuthn.clearCredentials", named)
        self.cdp.send("WebAuthn.addCredential", named | {"credential": credential})

    def sign_in(self) -> None:
        """Press the button on the sign-in page, signed out."""
        self.page.context.clear_cookies()
        self.page.goto(f"{self.url}/admin/ui/sign-in?next=/admin/ui/profile")
        self.page.get_by_role("button", name="Sign in with a passkey").click()

    def expect_refusal(self, text: str, button: str = "Sign in with a passkey") -> None:
        """The page says why, and the button can be pressed again."""
        expect(self.page.get_by_role("status")).to_contain_text([text])
        expect(self.page.get_by_role("button", name=button)).to_be_focused()
        self.complaints.clear()  # the browser reports every status of 400 and more


async def _cookies(services: Services) -> list[str]:
    """The cookies of two sessions of a new member."""
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        ada = await add_member(work, acme, "ada@acme.example", "auditor", "github", BY_OPERATOR)
        return [await issue_cookie(work, acme, ada, BY_OPERATOR) for _ in range(2)]


@dataclass
class Place:
    """A server under a name that passkeys can be for, and the cookies of a member's sessions."""

    server: Server
    url: str
    cookies: list[str]

    def rows(self, event: str) -> list[dict[str, Any]]:
        with self.server.client() as client:
            return all_entries(client, event=event)


@pytest.fixture
def place(home: Home) -> Place:
    cookies = home.change(_cookies)
    port = str(free_port())
    url = f"http://localhost:{port}"
    return Place(home.serve(port=port, base_url=url), url, cookies)


@pytest.fixture
def desk(place: Place, browser: Browser) -> Iterator[PasskeyPage]:
    """A desk at the profile page, signed in."""
    context = browser.new_context(viewport=WIDE)
    context.add_cookies([{"name": "admin_session", "value": place.cookies[0], "url": place.url}])
    page = context.new_page()
    cdp = context.new_cdp_session(page)
    cdp.send("WebAuthn.enable")
    added = cdp.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    desk = PasskeyPage(place.url, page, cdp, added["authenticatorId"])
    page.on("console", lambda message: desk.complaints.append(message.text))
    page.on("pageerror", lambda error: desk.complaints.append(str(error)))
    page.goto(f"{place.url}/admin/ui/profile")
    yield desk
    context.close()
    assert desk.complaints == [], "a policy was tripped over, or a script"


def test_a_passkey_from_its_making_to_its_end(desk: PasskeyPage, place: Place) -> None:
    page = desk.page
    profile = page.get_by_role("heading", level=1, name="Your profile")
    page.get_by_label("Name of a new passkey").fill("Ada’s laptop")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The passkey was added.")).to_be_visible()
    expect(page.get_by_role("rowheader", name="Ada’s laptop")).to_be_visible()
    page.get_by_role("button", name="Add a passkey").click()
    desk.expect_refusal("already has a passkey of yours", "Add a passkey")

    desk.sign_in()
    expect(profile).to_be_visible()
    (row,) = place.rows("passkey_authentication_succeeded")
    assert row["payload"]["counter_after"] == 1

    desk.be_verified(False)
    desk.sign_in()
    desk.expect_refusal("No passkey was used")
    desk.be_verified(True)

    copy = desk.credential()
    desk.sign_in()
    expect(profile).to_be_visible()
    desk.replace(copy)
    desk.sign_in()
    desk.expect_refusal("This passkey is not accepted")
    (row,) = place.rows("sign_in_failed")
    assert "counter did not grow" in row["payload"]["reason"]

    desk.replace(copy | {"rpId": "evil.example"})
    desk.sign_in()
    desk.expect_refusal("No passkey was used")

    desk.replace(copy | {"signCount": 100})
    desk.sign_in()
    expect(profile).to_be_visible()
    page.get_by_label("Actions for Ada’s laptop").click()
    page.get_by_text("Remove Ada’s laptop").click()
    page.get_by_role("button", name="Remove passkey").click()
    expect(page.get_by_text("You have no passkey.")).to_be_visible()
    desk.sign_in()
    desk.expect_refusal("This passkey is not accepted")


@only_full
def test_the_pages_can_be_used_by_everyone(desk: PasskeyPage, place: Place) -> None:
    page = desk.page
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_text("The passkey was added.")).to_be_visible()
    for path in ("/admin/ui/profile?done=passkey-added", "/admin/ui/sign-in"):
        page.goto(f"{place.url}{path}")
        for size in (WIDE, PHONE):
            page.set_viewport_size(size)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                expect_no_violations(page)

    page.goto(f"{place.url}/admin/ui/profile")
    page.get_by_label("Actions for the session of").first.click()
    page.get_by_text("End the session", exact=False).first.click()
    page.get_by_role("button", name="End the session").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The session was ended.")).to_be_visible()
    (row,) = place.rows("session_revoked")
    assert row["payload"]["sessions"] == 1
    expect(page.get_by_role("button", name="End")).to_have_count(0)


def test_a_passkey_confirms_in_place_and_the_form_is_sent(
    desk: PasskeyPage, place: Place, home: Home
) -> None:
    page = desk.page
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_text("The passkey was added.")).to_be_visible()
    home.change(_make_owner)
    home.change(age_sign_ins)
    page.goto(f"{place.url}/admin/ui/orgs/acme/keys")
    page.get_by_label("Name", exact=True).fill("npm proxy")
    page.get_by_label("Use", exact=True).select_option("audit:r")
    page.get_by_role("button", name="Issue", exact=True).click()
    expect(page.get_by_role("heading", name="Sign in again to do this")).to_be_visible()
    expect_no_violations(page)
    assert place.rows("api_key_created") == []

    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("Now send the form again.")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("npm proxy")
    page.get_by_role("button", name="Issue", exact=True).click()
    expect(page.get_by_label("The key", exact=True)).to_be_visible()
    (row,) = place.rows("api_key_created")
    assert row["payload"]["scopes"] == ["audit:r"]
    desk.complaints.clear()  # the browser reports the 403


def test_removing_a_passkey_leads_through_signing_in_again_and_back(
    desk: PasskeyPage, place: Place, home: Home
) -> None:
    page = desk.page
    page.get_by_label("Name of a new passkey").fill("Laptop")
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_text("The passkey was added.")).to_be_visible()
    home.change(age_sign_ins)
    page.goto(f"{place.url}/admin/ui/profile")
    page.get_by_label("Actions for Laptop").click()
    page.get_by_text("Remove Laptop").click()
    page.get_by_role("button", name="Remove passkey").click()
    expect(page.get_by_role("heading", level=1, name="Sign in again")).to_be_visible()
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", level=1, name="Your profile")).to_be_visible()
    page.get_by_label("Actions for Laptop").click()
    page.get_by_text("Remove Laptop").click()
    page.get_by_role("button", name="Remove passkey").click()
    expect(page.get_by_text("You have no passkey.")).to_be_visible()


async def _make_owner(services: Services) -> None:
    """Give the desk's member the role that issues keys, in their sessions that go on."""
    async with services.store.write() as work:
        ada = await work.session.scalar(select(Member).where(Member.email == "ada@acme.example"))
        assert ada is not None
        ada.role = "owner"
