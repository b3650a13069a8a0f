"""What the audit page shows when its rows or its numbers cannot be had."""

from analytics.model.errors import StoreFault
from service.audit.refusals import QueryTooSlow
from tests.conftest import World
from tests.service.pages.page import AUDIT, Page, fails, open_page


async def test_rows_without_numbers_are_shown_and_the_page_says_why(world: World, monkeypatch):
    """The rows are worth more than their number; a shorter window has both."""
    fails(monkeypatch, "summary", QueryTooSlow())
    page = await open_page(world)

    assert "too many rows to summarize" in page.one("main").text
    assert page.log.text
    assert page.exports == "Export all matching rows"
    assert not page.all("svg", **{"class": "histogram"})


async def test_damage_that_only_the_numbers_meet_is_said_on_the_page(world: World, monkeypatch):
    """The head of the page has left with its status: silence would make it look whole."""
    fails(monkeypatch, "summary", StoreFault("a segment is damaged"))
    page = await open_page(world)

    assert "missing or damaged" in page.one("div", role="alert").text


async def test_rows_that_take_too_long_are_a_503_that_offers_shorter_windows(world, monkeypatch):
    """The filters stay in the links."""
    fails(monkeypatch, "page", QueryTooSlow())
    response = await world.client.get(f"{AUDIT}?actor=key_1", headers=world.session("auditor"))
    page = Page(await response.get_data(as_text=True))

    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert page.link("the last 24 h") == "?actor=key_1&last=24h"
    assert page.chips == ["Actor is key_1"]


async def test_damaged_rows_are_a_503_and_never_an_empty_page(world, monkeypatch):
    """An auditor must not take missing rows for no rows."""
    fails(monkeypatch, "page", StoreFault("a segment is damaged"))
    response = await world.client.get(AUDIT, headers=world.session("auditor"))

    assert response.status_code == 503


async def test_a_window_of_centuries_has_rows_and_no_histogram(world):
    """Ten thousand days are the most that are counted."""
    page = await open_page(world, "?since=1900-01-01&until=2030-01-01", **world.admin)

    assert page.log.text
