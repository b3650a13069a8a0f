"""One zone for all times: those that are shown, and those that are typed."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import needs_chromium
from tests.browser.visits import Place, Visits, search, serve_acme, visit
from tests.conftest import binding_body, bindings_path

__all__ = ["visit"]  # a fixture

pytestmark = needs_chromium

TOKYO = {"timezone_id": "Asia/Tokyo"}  # nine hours ahead


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("zone")) as place:
        with place.server.client() as client:
            created = client.post(bindings_path(), json=binding_body())
            client.delete(bindings_path("acme", created.json()["id"]))
        yield place


def toggle(page: Page) -> None:
    page.get_by_role("button", name="Times are in").click()


@pytest.mark.parametrize(
    ("path", "button"), [("bindings", "Show"), ("reports", "Report"), ("reports/access", "Report")]
)
def test_an_instant_is_picked_in_the_shown_zone(visit: Visits, path: str, button: str):
    page = visit(f"{visit.place.overview}/{path}", role="owner", **TOKYO)
    menu = page.locator("summary", has_text="Now")
    if menu.count():
        menu.click()
    field = page.get_by_label("(Asia/Tokyo)")
    field.fill("2026-01-31T02:15")
    page.get_by_role("button", name=button, exact=True).click()

    expect(page).to_have_url(re.compile(re.escape("asOf=2026-01-30T17%3A15")))
    expect(page.locator("input[name=asOf]")).to_have_value("2026-01-31T02:15")
    if path == "bindings":
        expect(page.get_by_role("status")).to_contain_text("2026-01-31 02:15")
    toggle(page)
    expect(page.locator("input[name=asOf]")).to_have_value("2026-01-30T17:15")
    if path == "bindings":
        expect(page.get_by_role("status")).to_contain_text("2026-01-30 17:15")
    # The organisation was not there yet: the report is refused.
    visit.complaints = [text for text in visit.complaints if "status of 400" not in text]


@pytest.mark.parametrize(
    ("typed", "address", "chip"),
    [
        ("since:2020-01-31", "since=2020-01-30T15%3A00%3A00Z", "since 2020-01-31 00:00:00"),
        ("until:2099-01-31", "until=2099-01-31T15%3A00%3A00Z", "until 2099-02-01 00:00:00"),
        (
            "since:2020-01-31T08:00:05",
            "since=2020-01-30T23%3A00%3A05Z",
            "since 2020-01-31 08:00:05",
        ),
        (
            "since:2020-01-31T08:00:00Z",
            "since=2020-01-31T08%3A00%3A00Z",
            "since 2020-01-31 17:00:00",
        ),
    ],
)
def test_a_time_in_a_search_is_of_the_shown_zone(
    visit: Visits, typed: str, address: str, chip: str
):
    page = visit("", **TOKYO)
    page.wait_for_load_state()
    search(page, typed)

    expect(page).to_have_url(re.compile(re.escape(address)))
    expect(page.get_by_role("link", name=f"Remove filter: Time {chip}")).to_be_visible()


def test_the_choice_holds_on_every_page_and_for_tooltips(visit: Visits):
    page = visit(f"{visit.place.overview}/bindings", role="owner", **TOKYO)
    badge = page.locator("[data-at]")
    at = badge.get_attribute("title") or ""
    assert "Asia/Tokyo by " in at
    toggle(page)
    in_utc = badge.get_attribute("title") or ""
    assert "UTC by " in in_utc
    to_the_minute = len("revoked 2026-01-31 09:00")
    assert in_utc[:to_the_minute] != at[:to_the_minute]

    page.goto(f"{visit.place.overview}/reports")
    expect(page.get_by_label("As of (UTC)")).to_be_visible()
    page.goto(visit.place.audit)
    search(page, "since:2020-01-31")
    expect(page).to_have_url(re.compile(re.escape("since=2020-01-31")))
