"""A person signs in, looks for something, and signs out, in a real browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from service.app.composition import Services
from service.orgs.members import add_member, issue_sign_in
from service.store.organisations import get_member, get_org
from tests.browser.chromium import needs_chromium
from tests.browser.visits import search
from tests.budgets import only_full
from tests.conftest import BY_OPERATOR, binding_body, bindings_path
from tests.processes.homes import Home, Server, add_acme

pytestmark = needs_chromium

ADA = "ada@acme.example"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    async def add_ada(services: Services) -> None:
        async with services.store.write() as work:
            acme = await get_org(work.session, "acme")
            await add_member(work, acme, ADA, "owner", "github", BY_OPERATOR)

    home = Home(tmp_path_factory.mktemp("acme"))
    try:
        home.change(add_acme)
        home.change(add_ada)
        yield home
    finally:
        home.end()


@pytest.fixture(scope="module")
def server(home: Home) -> Server:
    server = home.serve()
    with server.client() as client:
        assert client.post(bindings_path(), json=binding_body()).status_code == 201
    return server


@pytest.fixture
def link(home: Home, server: Server) -> str:
    async def issue(services: Services) -> str:
        async with services.store.write() as work:
            acme = await get_org(work.session, "acme")
            return await issue_sign_in(
                work, acme, await get_member(work.session, acme, ADA), BY_OPERATOR
            )

    return f"{server.url}/sign-in?token={home.change(issue)}"


@pytest.fixture
def page(link: str, browser: Browser, server: Server) -> Iterator[Page]:
    """The audit page of acme, signed in by link and button."""
    page = browser.new_page()
    page.goto(link)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{server.url}/admin/ui/orgs/acme")
    page.get_by_role("link", name="Audit log", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Audit log")
    yield page
    page.close()


@only_full
def test_a_signed_in_owner_finds_a_row_by_its_filters(page: Page) -> None:
    search(page, "Binding created")

    table = page.get_by_role("table")
    expect(table.get_by_text("Binding created").first).to_be_visible()
    expect(table.get_by_text("system:admin-token").first).to_be_visible()
    expect(table.get_by_text("Member added")).to_have_count(0)


@only_full
def test_a_search_without_result_says_so(page: Page) -> None:
    """An empty table must not look like a broken page."""
    search(page, "no-such-package")

    expect(page.get_by_text("No row of acme has this value.")).to_be_visible()


@only_full
def test_the_page_works_from_the_keyboard(page: Page) -> None:
    page.wait_for_load_state()  # the script for keys
    page.keyboard.press("/")
    page.keyboard.type("system:admin-*")
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile("actor=system%3Aadmin-"))
    expect(page.get_by_role("table").get_by_text("system:admin-token").first).to_be_visible()


@only_full
def test_the_csv_link_downloads_the_filtered_rows(page: Page) -> None:
    search(page, "Binding created")
    expect(page.locator("summary", has_text="Export 1 row")).to_be_visible()
    page.wait_for_load_state()  # the script for keys
    with page.expect_download() as download:
        page.keyboard.press("e")
        page.keyboard.press("Enter")

    lines = download.value.path().read_text().splitlines()
    assert download.value.suggested_filename.startswith("acme-audit-")
    assert len(lines) == 2
    assert ",oidc_binding_created," in lines[1]


@only_full
def test_signing_out_ends_the_session(page: Page, server: Server) -> None:
    (cookie,) = page.context.cookies()
    page.locator("summary[aria-label^=Account]").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{server.url}/")
    assert page.context.cookies() == []

    page.context.add_cookies([cookie])
    page.goto(f"{server.url}/admin/ui/orgs/acme/audit?package=left-pad")

    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert "next=/admin/ui/orgs/acme/audit?package%3Dleft-pad" in page.url


@only_full
def test_the_browser_reports_no_fault(server: Server, browser: Browser) -> None:
    said: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("requestfailed", lambda request: said.append(request.url))

    for path in ("/", "/docs", "/sign-in"):
        response = page.goto(f"{server.url}{path}", wait_until="networkidle")
        assert response is not None
        assert response.status == 200

    assert said == []
