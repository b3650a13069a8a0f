"""An owner runs an organisation on its pages, in a real browser, with scripts and without."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from service.app.composition import Services
from service.orgs.members import add_member, issue_cookie
from service.orgs.teams import create_team, set_team_admin
from service.store.organisations import get_org
from tests.browser.accessible import expect_no_violations, in_every_light
from tests.browser.chromium import needs_chromium, with_and_without_scripts
from tests.budgets import only_full
from tests.conftest import BY_OPERATOR
from tests.processes.homes import Home, Server, add_acme

pytestmark = needs_chromium

PAGES = {
    "members": "Members",
    "teams": "Teams",
    "projects": "Projects",
    "keys": "API keys",
    "roles": "Roles",
}
LONG = "ä" * 60 + "🦊" * 20 + "مرحبا"


@dataclass
class Place:
    """A server, and the session cookies of some members of acme."""

    server: Server
    cookies: dict[str, str]

    def address(self, page: str) -> str:
        """Where this page of acme is."""
        return f"{self.server.url}/admin/ui/orgs/acme/{page}"

    def sign_in(self, browser: Browser, who: str, **options: Any) -> BrowserContext:
        context = browser.new_context(**options)
        context.add_cookies(
            [{"name": "admin_session", "value": self.cookies[who], "url": self.server.url}]
        )
        return context


async def _people(services: Services) -> dict[str, str]:
    """An owner, an auditor, a member, and one who administers a team, each with a cookie."""
    cookies = {}
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        team = await create_team(work, acme, LONG, BY_OPERATOR)
        for name in ("owner", "auditor", "member", "team-admin"):
            role = "member" if name == "team-admin" else name
            email = f"{name}@a.example"
            who = await add_member(work, acme, email, role, "github", BY_OPERATOR)
            cookies[name] = await issue_cookie(work, acme, who, BY_OPERATOR)
        await set_team_admin(work, team, who, BY_OPERATOR, is_admin=True)
    return cookies


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = Home(tmp_path_factory.mktemp("people"))
    try:
        home.change(add_acme)
        cookies = home.change(_people)
        yield Place(home.serve(), cookies)
    finally:
        home.end()


def go(page: Page, name: str) -> None:
    """By the navigation, as people do."""
    shelf = "Pages of acme" if name == "Audit log" else "Pages of this section"
    page.get_by_role("navigation", name=shelf).get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def expect_done(page: Page, words: str) -> None:
    """The page says what was done."""
    expect(page.get_by_role("status")).to_contain_text(words)


def confirm(page: Page, of: str, opens: str, button: str) -> None:
    """Open the step that cannot be taken back in the row of `of`, and take it."""
    row = page.get_by_role("row").filter(has_text=of)
    row.locator("summary.row-menu").click()
    row.locator(".menu-body summary").filter(has_text=opens).first.click()
    row.get_by_role("button", name=button).click()


def invite(page: Page, address: str) -> None:
    """A member who signs in with Google."""
    form = page.get_by_role("region", name="Invite a member")
    form.get_by_label("Address").fill(address)
    form.get_by_label("Signs in with").select_option("google")
    form.get_by_role("button", name="Invite").click()


def use_key(page: Page, server: Server) -> int:
    """The status that the line for a shell gets, as it stands on the page."""
    words = shlex.split(page.get_by_label("Test it").input_value())
    headers = dict(words[at + 1].split(": ") for at, word in enumerate(words) if word == "-H")
    with server.client(headers=headers) as client:
        return client.post(words[3], content=words[words.index("-d") + 1]).status_code


@only_full
@with_and_without_scripts
def test_an_owner_runs_the_organisation(place: Place, browser: Browser, has_scripts: bool) -> None:
    ending = "scripts" if has_scripts else "plain"
    context = place.sign_in(browser, "owner", java_script_enabled=has_scripts)
    page = context.new_page()
    page.goto(place.address("members"))
    grace = f"grace-{ending}@a.example"

    invite(page, "no address")
    expect(page.get_by_label("Address", exact=True)).to_have_value("no address")
    expect(page.get_by_label("Signs in with")).to_have_value("google")
    expect(page.get_by_role("alert")).to_contain_text("Email must look like ada@example.com")
    invite(page, grace)
    expect_done(page, "Invited")
    row = page.get_by_role("row").filter(has_text=grace)
    expect(row).to_contain_text("invited")
    row.locator("summary.row-menu").click()
    row.locator(".menu-body summary").filter(has_text="Change the role").click()
    row.get_by_label("Role of").select_option("auditor")
    row.get_by_role("button", name="Change").click()
    expect_done(page, "The role was changed")

    go(page, "Teams")
    page.get_by_label("Name", exact=True).fill(f"payments-{ending}")
    page.get_by_role("button", name="Create").click()
    expect_done(page, "The team was created")
    team = page.get_by_role("row").filter(has_text=f"payments-{ending}")
    team.locator("summary.row-menu").click()
    team.locator(".menu-body summary").filter(has_text="Add an admin").click()
    team.get_by_label("Member’s address").fill(grace)
    team.get_by_role("button", name="Make admin").click()
    expect(team.get_by_role("cell").filter(has_text=grace).first).to_be_visible()

    go(page, "Projects")
    page.get_by_label("Name", exact=True).fill(f"checkout-{ending}")
    page.get_by_role("button", name="Create").click()
    expect_done(page, "The project was created")

    go(page, "API keys")
    page.get_by_label("Name", exact=True).fill(f"proxy-{ending}")
    page.get_by_label("Use").select_option(label="send rows (for a proxy of your own)")
    page.get_by_label("Project").select_option(f"checkout-{ending}")
    page.get_by_role("button", name="Issue").click()
    secret = page.get_by_label("The key", exact=True).input_value()
    assert secret.startswith("cs_")
    assert secret not in page.url
    assert use_key(page, place.server) == 200
    if has_scripts:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy").first.click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == secret
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("was already submitted")
    expect(page.get_by_label("The key", exact=True)).to_have_count(0)
    expect(page.get_by_role("row").filter(has_text=f"proxy-{ending}")).to_have_count(1)

    go(page, "Roles")
    row = page.get_by_role("row").filter(has_text="auditor")
    row.get_by_label("see bindings").set_checked(has_scripts)
    row.get_by_role("button", name="Save").click()
    expect_done(page, "Saved")
    expect(row.get_by_label("see bindings")).to_be_checked(checked=has_scripts)

    go(page, "Members")
    row = page.get_by_role("row").filter(has_text=grace)
    expect(row).to_contain_text(f"payments-{ending}")
    confirm(page, grace, "Sign-in link", "Show a link")
    link = page.get_by_label("The link").input_value()
    theirs = browser.new_context(java_script_enabled=has_scripts).new_page()
    theirs.goto(link)
    theirs.get_by_role("button", name="Sign in").click()
    expect(theirs).to_have_url(re.compile("/admin/ui/orgs/acme"))

    go(page, "API keys")
    confirm(page, f"proxy-{ending}", "Revoke", "Revoke permanently")
    expect_done(page, "revoked")
    go(page, "Members")
    confirm(page, grace, "Remove", "Remove permanently")
    expect_done(page, "Removed")
    theirs.goto(place.address("audit"))
    expect(theirs).to_have_url(re.compile("/admin/ui/sign-in"))

    go(page, "Audit log")
    for words in (
        "Member removed",
        "API key revoked",
        "Signed in by link",
        "Role override changed",
    ):
        expect(page.get_by_role("rowheader", name=words).first).to_be_visible()
    theirs.context.close()
    context.close()


@only_full
def test_no_one_else_gets_to_the_pages(place: Place, browser: Browser) -> None:
    for who in ("auditor", "team-admin", "member"):
        context = place.sign_in(browser, who)
        page = context.new_page()
        page.goto(place.address("audit"))
        for name in PAGES.values():
            expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
        for name in PAGES:
            answer = page.goto(place.address(name))
            assert answer is not None
            assert answer.status == 403
            expect(page.get_by_role("alert")).to_contain_text("org:admin")
        context.close()


@only_full
@in_every_light
def test_the_pages_are_for_everyone(place: Place, browser: Browser, scheme: Any, size: Any) -> None:
    context = place.sign_in(browser, "owner", color_scheme=scheme, viewport=size)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for name in PAGES:
        page.goto(place.address(name))
        expect_no_violations(page)
    page.goto(place.address("projects"))
    page.get_by_label("Name", exact=True).fill(LONG)
    page.get_by_role("button", name="Create").click()
    expect_no_violations(page)
    page.get_by_label("Name", exact=True).fill(LONG)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("already exists")
    expect_no_violations(page)
    page.goto(place.address("keys"))
    page.get_by_label("Name", exact=True).fill(LONG)
    page.get_by_label("Use").select_option(label="read bindings")
    page.get_by_role("button", name="Issue").click()
    expect(page.get_by_label("The key", exact=True)).to_be_visible()
    expect_no_violations(page)
    page.goto(place.address("members"))
    confirm(page, "auditor@", "Sign-in link", "Show a link")
    expect(page.get_by_label("The link")).to_be_visible()
    expect_no_violations(page)
    context.close()

    assert complaints == []
