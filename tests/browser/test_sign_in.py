"""A person signs in with an identity provider, in a real browser, with scripts and without."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from analytics.model.labels import EVENT_LABELS
from analytics.model.org_envelopes import OauthLoginSucceeded
from service.app.composition import Services
from service.orgs.members import add_member
from service.orgs.organisations import create_org
from service.store.organisations import get_org
from tests.browser.chromium import needs_chromium
from tests.budgets import only_full
from tests.conftest import BY_OPERATOR
from tests.processes.homes import Home, Server
from tests.sign_in.fixtures import ProviderProcess

pytestmark = needs_chromium

ADA = "ada@acme.example"
LABELS = {"google": "Google", "github": "GitHub", "microsoft": "Microsoft"}


@pytest.fixture
def idp() -> Iterator[ProviderProcess]:
    process = ProviderProcess()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def server(home: Home, idp: ProviderProcess) -> Server:
    """A server that knows the provider; acme has invited Ada at each of its faces."""

    async def invite(services: Services) -> None:
        async with services.store.write() as work:
            acme = await get_org(work.session, "acme")
            other = await create_org(work, "elsewhere", "org", BY_OPERATOR)
            await add_member(work, acme, ADA, "auditor", "google", BY_OPERATOR)
            await add_member(work, acme, "bo@acme.example", "auditor", "github", BY_OPERATOR)
            await add_member(work, acme, "cy@acme.example", "auditor", "microsoft", BY_OPERATOR)
            await add_member(work, acme, "di@acme.example", "auditor", "google", BY_OPERATOR)
            await add_member(work, other, "di@acme.example", "auditor", "google", BY_OPERATOR)

    home.change(invite)
    return home.serve(**idp.settings())


@pytest.fixture
def page(server: Server, browser: Browser, request: pytest.FixtureRequest) -> Page:
    """The sign-in page, come to from the front page."""
    has_scripts = getattr(request, "param", True)
    page = browser.new_context(java_script_enabled=has_scripts).new_page()
    page.goto(server.url)
    page.get_by_role("link", name="Sign in with an account").click()
    return page


@only_full
@pytest.mark.parametrize(
    ("name", "email"),
    [
        ("google", ADA),
        pytest.param("github", "bo@acme.example", marks=only_full),
        pytest.param("microsoft", "cy@acme.example", marks=only_full),
    ],
)
def test_an_invited_person_signs_in(
    page: Page, server: Server, idp: ProviderProcess, name: str, email: str
) -> None:
    idp.be(email=email)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))

    page.get_by_role("link", name=f"Sign in with {LABELS[name]}").click()

    expect(page).to_have_url(f"{server.url}/admin/ui/orgs/acme")
    page.get_by_role("link", name="Audit log", exact=True).click()
    expect(
        page.get_by_role("table").get_by_text(EVENT_LABELS[OauthLoginSucceeded.event]).first
    ).to_be_visible()
    assert said == []
    own = {cookie["name"]: cookie for cookie in page.context.cookies()}
    assert own.keys() - {"provider"} == {"admin_session"}
    assert own["admin_session"]["httpOnly"]


@only_full
@pytest.mark.parametrize(
    "page", [True, False], ids=["with scripts", "without scripts"], indirect=True
)
def test_a_person_of_two_organisations_chooses(
    page: Page, server: Server, idp: ProviderProcess
) -> None:
    idp.be(email="di@acme.example")
    page.get_by_role("link", name="Sign in with Google").click()
    expect(page.get_by_role("button")).to_have_text(["acme", "elsewhere"])

    page.get_by_role("button", name="elsewhere").click()

    expect(page).to_have_url(f"{server.url}/admin/ui/orgs/elsewhere")


@only_full
def test_who_is_refused_reads_why_and_can_go_back(page: Page, idp: ProviderProcess) -> None:
    idp.be(says_no="access_denied")

    page.get_by_role("link", name="Sign in with Google").click()

    expect(page.get_by_role("alert")).to_contain_text("did not sign you in")
    page.get_by_role("link", name="Back to sign-in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
