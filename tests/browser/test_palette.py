"""The page that jumps to any other, as a dialog over the page: all of it by keyboard."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.accessible import PHONE, WIDE, expect_no_violations
from tests.browser.chromium import needs_chromium
from tests.browser.visits import Place, Visits, serve_acme, visit
from tests.budgets import sample
from tests.conftest import binding_body, bindings_path

__all__ = ["visit"]  # a fixture

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("palette")) as place:
        with place.server.client() as client:
            assert client.post(bindings_path(), json=binding_body()).status_code == 201
        yield place


def opened(visit: Visits, key: str = "Control+k", path: str = "/bindings", **options: object):
    page = visit(f"{visit.place.overview}{path}", role="owner", **options)
    page.wait_for_load_state()
    page.keyboard.press(key)
    expect(results(page).first).to_be_visible()
    return page


def results(page: Page):
    return page.get_by_role("dialog", name="Jump to anything").get_by_role("link")


def expect_focus_in_dialog(page: Page) -> None:
    assert page.evaluate("document.activeElement.closest('dialog') !== null")


@pytest.mark.parametrize("key", ["Control+k", "Meta+k", "/"])
def test_a_key_opens_it_and_enter_goes_to_the_first_result(visit: Visits, key: str):
    page = opened(visit, key)
    page.keyboard.type("api keys")
    page.keyboard.press("Enter")

    expect(page).to_have_url(f"{visit.place.overview}/keys")


def test_arrows_move_through_results_and_a_letter_goes_on_typing(visit: Visits):
    page = opened(visit)
    page.keyboard.type("settings")
    expect(results(page).first).to_have_text("Settings: Members")
    field = page.get_by_role("dialog").get_by_role("searchbox")
    page.keyboard.press("ArrowDown")
    expect(results(page).first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(field).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(results(page).last).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(field).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.type(" teams")
    expect(field).to_have_value("settings teams")
    expect(results(page).first).to_have_text("Settings: Teams")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    expect(page).to_have_url(f"{visit.place.overview}/teams")


def test_focus_stays_inside_until_escape_and_goes_back_then(visit: Visits):
    page = opened(visit, path="/keys")
    for key in ("Tab", "Shift+Tab"):
        for _ in range(results(page).count() + 4):
            page.keyboard.press(key)
            expect_focus_in_dialog(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)

    page.get_by_role("link", name="Jump to anything").focus()
    page.keyboard.press("Enter")
    expect(results(page).first).to_be_visible()
    expect_focus_in_dialog(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Jump to anything")).to_be_focused()


def test_a_slash_is_a_letter_in_a_field_and_the_search_s_in_the_log(visit: Visits):
    page = visit("", role="owner")
    page.wait_for_load_state()
    page.keyboard.press("/")
    page.keyboard.type("acme/")
    expect(page.get_by_label("Search", exact=True)).to_have_value("acme/")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(results(page).first).to_be_visible()


def test_a_session_that_has_ended_leads_to_the_sign_in(visit: Visits):
    page = opened(visit)
    page.context.clear_cookies()
    page.keyboard.type("keys")

    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    visit.complaints = [text for text in visit.complaints if "status of 401" not in text]


@sample(2)
@pytest.mark.parametrize("status", [429, 503, None])
def test_a_failure_while_typing_is_told_and_the_page_stays_until_enter(
    visit: Visits, status: int | None
):
    """The page below may have a form that is not sent yet; None is no network."""
    page = opened(visit)
    here = page.url
    page.evaluate("document.body.dataset.kept = 'yes'")
    dialog = page.get_by_role("dialog")

    is_down = True

    def answer(route: Route) -> None:
        if not is_down or route.request.is_navigation_request():
            route.continue_()
        elif status is None:
            route.abort()
        else:
            route.fulfill(status=status)

    page.route("**/find?*", answer)
    page.keyboard.type("keys")
    expect(dialog.get_by_text("The search did not answer")).to_be_in_viewport()
    expect(results(page)).to_have_count(0)
    expect_no_violations(page)
    assert (page.url, page.evaluate("document.body.dataset.kept")) == (here, "yes")

    is_down = False
    page.keyboard.type(" api")
    expect(results(page).first).to_be_visible()
    expect(dialog.get_by_text("The search did not answer")).to_have_count(0)

    is_down = True
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{visit.place.overview}/find?q=keys+api")
    visit.complaints = [text for text in visit.complaints if "Failed to load" not in text]


@sample(2)
@pytest.mark.parametrize("size", [WIDE, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(visit: Visits, size: dict[str, int], scheme: str):
    page = opened(visit, viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page.keyboard.type("acme")
    expect(page.get_by_role("heading", name="Bindings", level=2)).to_be_visible()

    expect_no_violations(page)


def test_without_scripts_the_link_leads_to_the_page(visit: Visits):
    page = visit(visit.place.overview, role="owner", java_script_enabled=False)
    page.get_by_role("link", name="Jump to anything").click()
    page.get_by_role("searchbox").fill("acme")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="Bindings", level=2)).to_be_visible()
