"""The overview, live rows, dragging and completion, in a real browser."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from analytics.model.instants import format_us
from service.core.clock import utc_now
from tests.browser.accessible import PHONE, WIDE, expect_no_violations
from tests.browser.chromium import needs_chromium
from tests.browser.visits import Place, Visits, serve_acme, visit
from tests.budgets import only_full

__all__ = ["visit"]  # a fixture

pytestmark = needs_chromium

_UTC = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
BLOCK = {
    "event": "blocklist_hit",
    "packageName": "evil-pad",
    "envelope": {"rule_id": "MAL-1", "source": "osv"},
}


def install(name: str, **columns: Any) -> dict[str, Any]:
    return {"event": "install_allowed", "packageName": name, **columns}


def hours_ago(hours: int) -> str:
    return format_us(utc_now() - timedelta(hours=hours))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A day with an install in each of its hours, and a block."""
    with serve_acme(tmp_path_factory.mktemp("live")) as place:
        rows = [install(f"left-{n}", created_at=hours_ago(n)) for n in range(1, 20)]
        place.ingest([*rows, BLOCK])
        yield place


def top_row(page: Page) -> Any:
    return page.locator("table.log tr[id]").first


@only_full
def test_the_overview_leads_into_the_log_and_tells_a_plain_member_whom_to_ask(
    visit: Visits, place: Place
) -> None:
    for scheme, size in (("light", WIDE), ("dark", PHONE)):
        page = visit(place.overview, "owner", color_scheme=scheme, viewport=size)
        expect(page.get_by_text("MAL-1")).to_have_count(0)
        expect(page.get_by_role("link", name="Blocked")).to_contain_text("1 today")
        expect_no_violations(page)
        page.get_by_role("link", name="Blocked").click()
        expect(page.get_by_role("link", name="Remove filter: Decision is BLOCKED")).to_be_visible()
        page.goto(f"{place.audit}?decision=BLOCKED")  # the trend is of whole days before today
        expect(page.get_by_role("row").filter(has_text="evil-pad").first).to_be_visible()

        page = visit(place.overview, "member", color_scheme=scheme, viewport=size)
        expect(page.get_by_text("owner@a.example")).to_be_visible()
        expect(page.get_by_role("link", name="Audit log")).to_have_count(0)
        expect_no_violations(page)


@only_full
def test_rows_come_in_while_the_page_is_open(visit: Visits, place: Place) -> None:
    page = visit("?last=24h&package=!noise", timezone_id="Asia/Tokyo")
    button = page.get_by_role("button", name="Live")
    before = top_row(page).get_attribute("id")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    place.ingest([install("noise"), BLOCK, install("left-new")])

    expect(top_row(page)).to_contain_text("left-new")
    expect(page.locator("table.log tr[id]").nth(1)).to_contain_text("Blocked: denied")
    expect(page.locator("table.log tr[id]").nth(2)).to_have_attribute("id", before or "")
    expect(page.get_by_role("status")).to_contain_text("2 new rows")
    expect(top_row(page).locator("time[data-local]")).to_have_attribute("title", _UTC)
    top_row(page).locator("a.open").click()
    expect(page.locator("tr.inner").get_by_text("install_allowed").first).to_be_visible()

    page.reload()
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    place.ingest([install("left-unseen")])
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_text("left-unseen")).to_have_count(0)


@only_full
def test_a_page_without_rows_shows_the_first_that_comes(visit: Visits, place: Place) -> None:
    page = visit("?package=awaited")
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("status")).to_contain_text("Waiting")
    place.ingest([install("awaited")])

    expect(top_row(page)).to_contain_text("awaited")
    expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "true")
    assert visit("?package=awaited", java_script_enabled=False).locator("[data-live]").is_hidden()


@only_full
def test_dragging_over_the_histogram_narrows_and_a_click_is_a_click(visit: Visits) -> None:
    """A slip of the hand leaves the page as it was."""
    page = visit("?last=24h&package=left-*")
    drawing = page.locator("svg.histogram")
    box = drawing.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2

    def drag(begin: float, end: float) -> None:
        page.mouse.move(box["x"] + box["width"] * begin, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * end, middle, steps=5)

    address = page.url
    drag(0.3, 0.6)
    expect(drawing.locator(".selection")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(drawing.locator(".selection")).to_have_count(0)
    page.mouse.up()
    assert page.url == address

    drag(0.6, 0.3)
    page.mouse.up()
    expect(page.get_by_role("link", name="Remove filter: Time since")).to_be_visible()
    expect(page.get_by_role("link", name="Remove filter: Time until")).to_be_visible()
    expect(
        page.get_by_role("link", name="Remove filter: Package begins with left-")
    ).to_be_visible()
    page.wait_for_load_state()  # the rows come after the head of the page
    rows = page.locator("table.log tr[id]").count()
    assert 5 <= rows <= 10

    page.locator("svg.histogram a .hit").first.click()
    expect(page.locator("table.log tr[id]")).to_have_count(1)


@only_full
def test_a_field_completes_to_what_is_typed(visit: Visits) -> None:
    page = visit("?limit=1")
    page.locator("summary", has_text="All fields").click()
    field = page.get_by_label("Package", exact=True)
    offered = page.locator("#values-package option")
    field.press_sequentially("left-1")
    expect(page.locator("#values-package option[value='left-19']")).to_have_count(1)
    values = offered.evaluate_all("found => found.map(one => one.value)")
    assert set(values) == {"left-1", *(f"left-1{n}" for n in range(10))}

    field.fill("left-19")
    page.get_by_role("button", name="Apply fields").click()
    expect(page.get_by_role("link", name="Remove filter: Package is left-19")).to_be_visible()
    expect(page.locator("table.log tr[id]")).to_have_count(1)
