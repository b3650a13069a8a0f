"""An incident is looked into on the audit page: by mouse, keyboard, phone, and without scripts."""

import csv
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from analytics.model.instants import format_us
from service.core.clock import utc_now
from tests.browser.accessible import expect_no_violations, in_every_light
from tests.browser.chromium import needs_chromium
from tests.browser.visits import Place, Visits, serve_acme, visit
from tests.budgets import only_full

__all__ = ["visit"]  # a fixture

pytestmark = needs_chromium

HOSTILE = """</code></td>"'><script>alert(1)</script><img src=x onerror=alert(1)>"""
NAMES = ["left-pad", "lodash", HOSTILE, "https://evil.example/", "مرحبا", "🦊" * 40]


def _items() -> list[dict[str, Any]]:
    """Blocks of one package within one hour of yesterday, and installs all day."""
    began_at = (utc_now() - timedelta(hours=23)).replace(minute=30, second=0, microsecond=0)
    installs = [
        {
            "event": "install_allowed",
            "packageName": NAMES[number % len(NAMES)],
            "version": "1.0.0",
            "created_at": format_us(began_at + timedelta(minutes=15 * number)),
        }
        for number in range(80)
    ]
    blocks = [
        {
            "event": "blocklist_hit",
            "packageName": "evil-pad",
            "version": "6.6.6",
            "created_at": format_us(began_at + timedelta(hours=10, seconds=number)),
            "envelope": {"rule_id": "MAL-1", "source": "osv"},
        }
        for number in range(12)
    ]
    return installs + blocks


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("incident")) as place:
        place.ingest(_items())
        yield place


@pytest.fixture(
    params=[
        pytest.param(True, id="with scripts"),
        pytest.param(False, id="without scripts", marks=only_full),
    ]
)
def open_page(visit: Visits, request: pytest.FixtureRequest) -> Callable[..., Page]:
    """A page with JavaScript, then the same without."""

    def open_(query: str = "", **options: Any) -> Page:
        return visit(query, java_script_enabled=request.param, **options)

    return open_


def expect_rows(page: Page, count: int) -> None:
    """The log shows so many rows, once it is there."""
    expect(page.locator("table.log tr[id]")).to_have_count(count)


def first_id(page: Page) -> str:
    return page.locator("table.log tr[id]").first.get_attribute("id") or ""


def test_what_was_blocked_for_whom_and_since_when_is_three_clicks_away(open_page):
    page = open_page()
    page.get_by_role("navigation", name="Time window").get_by_role("link", name="24 h").click()
    page.get_by_role("link", name="12 blocked", exact=True).click()
    expect(page.get_by_role("link", name="Remove filter: Decision is BLOCKED")).to_be_visible()
    expect_rows(page, 12)
    page.locator("table.log a.open").first.click()

    opened = page.locator("main")
    expect(opened.get_by_text("MAL-1").first).to_be_visible()
    expect(opened.get_by_text("evil-pad").first).to_be_visible()
    expect(opened.get_by_text("system:admin-token").first).to_be_visible()


@only_full
def test_typed_filters_become_chips_that_can_be_removed(open_page):
    page = open_page("?last=7d")
    page.locator("summary", has_text="All fields").click()
    page.get_by_label("Package", exact=True).fill("left*")
    page.get_by_label("Decision", exact=True).select_option("ALLOWED")
    page.get_by_role("button", name="Apply fields").click()

    expect(page.get_by_role("link", name="Remove filter: Package begins with left")).to_be_visible()
    expect_rows(page, 14)
    page.get_by_role("link", name="Remove filter: Package begins with left").click()
    expect(page.get_by_role("link", name="Remove filter: Decision is ALLOWED")).to_be_visible()
    expect_rows(page, 50)


@only_full
def test_pages_are_turned_with_the_filters_kept_and_back(open_page):
    page = open_page("?event=install_allowed&limit=30")
    seen = [first_id(page)]
    for left in (30, 20):
        page.get_by_role("link", name="Older rows").click()
        expect_rows(page, left)
        expect(page.locator(f"id={seen[-1]}")).to_have_count(0)
        seen.append(first_id(page))
    expect(page.get_by_role("link", name="Older rows")).to_have_count(0)
    for row_id in (seen[1], seen[0]):
        page.get_by_role("link", name="Newer rows").click()
        expect(page.locator("table.log tr[id]").first).to_have_attribute("id", row_id)
    expect(page.get_by_role("link", name="Remove filter: Event is Install allowed")).to_be_visible()


@only_full
def test_a_bar_of_the_histogram_narrows_to_its_time(open_page):
    page = open_page("?last=24h&decision=BLOCKED")
    expect(page.locator("svg.histogram a")).to_have_count(1)
    page.locator("svg.histogram a .hit").click()

    expect(page.get_by_role("link", name="Remove filter: Time since")).to_be_visible()
    expect(page.get_by_role("link", name="Remove filter: Time until")).to_be_visible()
    expect_rows(page, 12)


@only_full
def test_the_keyboard_narrows_by_the_table_behind_the_histogram(open_page):
    """The drawing needs a mouse; its table does not."""
    page = open_page("?last=24h&decision=BLOCKED")
    page.locator("details.as-table summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.get_by_role("link", name="Remove filter: Time since")).to_be_visible()


@only_full
def test_a_shared_link_shows_the_same_rows_to_someone_else(open_page):
    page = open_page("?last=24h")
    page.get_by_role("link", name="left-pad", exact=True).first.click()
    expect(page.get_by_role("link", name="Remove filter: Package is left-pad")).to_be_visible()
    other = open_page("?" + page.url.partition("?")[2])

    expect_rows(page, 14)
    expect_rows(other, 14)


@only_full
def test_the_file_holds_what_is_seen(open_page):
    page = open_page("?decision=BLOCKED")
    page.locator("summary", has_text="Export 12 rows").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV", exact=True).click()
    with download.value.path().open(newline="") as file:
        taken = list(csv.DictReader(file))

    assert len(taken) == 12
    assert {row["packageName"] for row in taken} == {"evil-pad"}


@only_full
def test_a_faulty_filter_is_corrected_where_it_was_typed(open_page, visit):
    complaints = visit.complaints
    page = open_page("?package=evil-pad")
    page.goto(page.url + "&since=yesterday")
    expect(page.get_by_role("alert")).to_contain_text("since must be")
    complaints.clear()  # the browser reports every status of 400 and more
    page.get_by_label("Since (UTC)").fill("2020-01-01")
    page.get_by_role("button", name="Apply time").click()
    expect_rows(page, 12)


@only_full
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_a_time_is_picked_in_the_shown_zone(visit, zone):
    page = visit("?package=evil-pad", timezone_id=zone)
    first = page.locator("table.log time").last.get_attribute("datetime") or ""
    page.locator("summary", has_text="All time").click()
    offset = timedelta(hours=9 if zone == "Asia/Tokyo" else 0)
    at = datetime.fromisoformat(first).replace(second=0, microsecond=0)
    page.get_by_label(f"Until ({zone})").fill(f"{at + offset:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Apply time").click()

    until = f"{at + offset:%Y-%m-%d %H:%M}:00"
    expect(page.get_by_role("link", name=f"Remove filter: Time until {until}")).to_be_visible()
    expect(page.get_by_text("No row matches these filters.")).to_be_visible()
    page.locator("summary", has_text="Exact time").click()
    shown = page.get_by_label(f"Until ({zone})")
    expect(shown).to_have_value(f"{at + offset:%Y-%m-%dT%H:%M}")


@only_full
def test_who_may_not_see_the_page_gets_403(visit):
    page = visit(role="member")
    visit.complaints.clear()  # the browser itself reports every status of 400 and more
    response = page.goto(visit.place.audit)

    assert response is not None
    assert response.status == 403
    visit.complaints.clear()


@only_full
def test_times_are_the_viewers_own_where_there_is_a_script(visit):
    page = visit("?decision=BLOCKED", timezone_id="Europe/Berlin")
    time = page.locator("table.log time[data-local]").first
    utc = (time.get_attribute("datetime") or "")[:19].replace("T", " ")

    expect(page.locator("table.log thead")).to_contain_text("Europe/Berlin")
    assert time.get_attribute("title") == f"{utc} UTC"
    local = time.inner_text()
    assert local != utc
    page.locator("table.log a.open").first.click()
    created = page.locator(".inside time").first
    expect(created).to_have_text(re.compile(rf"\d {re.escape(local)}\.\d{{6}}"))
    expect(page.locator(".inside dl").first).to_contain_text("Europe/Berlin")
    bar = page.locator("svg.histogram desc").first
    assert " Europe/Berlin: " in (bar.text_content() or "")

    page.get_by_role("button", name="Times are in").click()

    expect(time).to_have_text(utc[11:])
    expect(created).to_have_text(re.compile(rf"{re.escape(utc)}\.\d{{6}}"))
    expect(page.locator(".inside dl").first).to_contain_text("UTC")
    assert " UTC: " in (bar.text_content() or "")


@only_full
@pytest.mark.parametrize(
    "name", [HOSTILE, *(pytest.param(name, marks=only_full) for name in NAMES[3:])]
)
def test_hostile_names_are_shown_and_do_nothing(open_page, name):
    page = open_page("?event=install_allowed&limit=100")

    text, log = _quoted(name), "//table[contains(@class, 'log')]"
    assert page.locator(f"xpath={log}//bdi[.={text} or @title={text}]").count() > 0
    assert page.locator("img").count() == 0
    hosts = page.evaluate(
        "[...document.querySelectorAll('a')].map(one =>"
        " new URL(one.getAttribute('href'), document.baseURI).host)"
    )
    assert set(hosts) == {page.url.split("/")[2]}


def _quoted(text: str) -> str:
    """`text` as an XPath literal, which knows no escapes."""
    parts = text.split('"')
    return "concat(" + ", '\"', ".join(f'"{part}"' for part in parts) + ", '')"


LONG_NAME = "@typescript-eslint/eslint-plugin"


@pytest.mark.parametrize(
    ("size", "rows"),
    [({"width": 1440, "height": 900}, 18), ({"width": 1024, "height": 768}, 12)],
    ids=["1440", "1024"],
)
def test_rows_begin_above_the_fold_below_their_chart(visit, size, rows):
    """Of 32 pixels, with their package in whole, also where two days begin."""
    page = visit("?last=7d", viewport=size)
    expect(page.locator("svg.chart")).to_be_visible()
    found = page.locator("table.log tr[id]")
    assert found.first.bounding_box()["height"] == 32
    whole = "found => found.filter(one => one.getBoundingClientRect().bottom <= innerHeight).length"
    assert found.evaluate_all(whole) >= rows

    cut = page.evaluate(
        """(name) => {
          const cell = document.querySelector("td.c-package .cut");
          cell.querySelector("bdi").textContent = name;
          return cell.scrollWidth > cell.clientWidth;
        }""",
        LONG_NAME,
    )
    assert not cut
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]


@only_full
def test_whatever_is_to_be_hit_is_24_pixels_high(visit):
    page = visit("?last=7d&package=!none")
    targets = page.locator("main").locator("a:visible, button:visible, summary:visible")
    small = targets.evaluate_all(
        """found => found.filter(one => !one.closest("svg") && !one.closest("p, .title, .chips")
          && !one.matches(".what, .visually-hidden") && one.getBoundingClientRect().height < 24)
          .map(one => one.outerHTML.slice(0, 90))"""
    )

    assert small == []


@only_full
def test_a_bar_is_read_in_one_place_by_mouse_touch_and_keyboard(visit):
    page = visit("?last=24h&decision=BLOCKED", has_touch=True)
    reading, bar = page.locator("[data-reading]"), page.locator("svg.histogram a")
    said = re.compile(r"\d\d:00 to \d\d:00 UTC: 12 blocked, 0 allowed, 0 other")
    bar.hover()
    expect(reading).to_have_text(said)
    page.mouse.move(0, 0)
    expect(reading).to_be_hidden()
    bar.focus()
    expect(reading).to_have_text(said)
    expect(bar).to_have_attribute("aria-label", said)
    page.reload()
    bar.locator(".hit").tap()
    expect(reading).to_have_text(said)
    assert "since=" not in page.url
    bar.locator(".hit").tap()
    expect(page.get_by_role("link", name="Remove filter: Time since")).to_be_visible()


@only_full
def test_days_and_the_axis_are_those_of_the_shown_zone(visit):
    page = visit("?last=24h&limit=100", timezone_id="Pacific/Kiritimati")  # 14 hours ahead
    days = page.locator("table.log tr.group th")
    shown = [
        datetime.fromisoformat(text) + timedelta(hours=14)
        for text in page.locator("table.log tr[id] time").evaluate_all(
            "found => found.map(one => one.dateTime)"
        )
    ]
    expected = list(dict.fromkeys(f"{at:%A} {at.day} {at:%B} {at.year}" for at in shown))

    assert days.all_inner_texts() == expected
    midnight = page.locator("svg.chart .day")
    last = shown[0]
    expect(midnight).to_have_text(f"{last:%a} {last.day} {last:%b}")
    assert 4 <= page.locator("svg.chart .c").count() <= 6


@only_full
@in_every_light
@pytest.mark.parametrize(
    "query",
    [
        "?last=7d&limit=10",
        pytest.param("?package=nowhere", marks=only_full),
        pytest.param("?since=yesterday", marks=only_full),
    ],
)
def test_axe_finds_no_violations(visit, scheme, size, query):
    page = visit(query, color_scheme=scheme, viewport=size)
    visit.complaints.clear()
    expect_no_violations(page)
