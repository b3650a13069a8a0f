"""The questions that people come with, walked through in a browser. Each name counts the actions.

An action is a click, a choice, or a text typed and sent. Every story also works without scripts and
from the keyboard alone.
"""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from analytics.model.rows import AuditRow
from service.app.composition import Services
from service.core.clock import utc_now
from service.store.journal import append
from service.store.organisations import get_org
from tests.analytics.samples import sample_row
from tests.browser.chromium import needs_chromium
from tests.browser.visits import Place, Visits, serve_acme, visit
from tests.budgets import only_full

__all__ = ["visit"]  # a fixture

pytestmark = needs_chromium

JOB = "repo:acme/storefront:ref:refs/heads/main"


def _install(minutes_ago: int, package: str, version: str, **more: Any) -> AuditRow:
    at = utc_now() - timedelta(minutes=minutes_ago)
    row = {
        "event": "install_allowed",
        "decision": "ALLOWED",
        "decision_reason": "{}",
        "payload": "{}",
        "actor_source": "oidc_github",
        "subject": JOB,
        "run_id": "14077220290",
    }
    return sample_row(at, package_name=package, version=version, **{**row, **more})


async def _add_incident(services: Services) -> None:
    """A malicious version that one run installed beside others, and a laptop's harmless rows."""
    rows = [
        _install(300, "event-stream", "3.3.6"),
        *(_install(300, f"package-{number}", "1.0.0") for number in range(6)),
        *(_install(number, "lodash", "4.17.21", run_id=None, subject=None) for number in range(9)),
        _install(60 * 24 * 300, "left-pad", "1.3.0", run_id="1"),
    ]
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        await append(work.session, acme.id, rows, now=services.clock())
    await services.sealer.seal_due(everything=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("stories"), _add_incident) as place:
        yield place


@dataclass
class Walk:
    """One person at one page: each method is one action, done by mouse or by keyboard."""

    page: Page
    by_keyboard: bool
    actions: int = 0
    pages: set[str] = field(default_factory=set)

    def press(self, target: Locator) -> None:
        """Follow a link, press a button or open a menu."""
        self.actions += 1
        self._note()
        if self.by_keyboard:
            target.focus()
            self.page.keyboard.press("Enter")
        else:
            target.click()

    def search(self, text: str) -> None:
        """Type a search and send it."""
        self.actions += 1
        self._note()
        self.page.get_by_label("Search", exact=True).focus()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def download(self, target: Locator, folder: Path) -> Path:
        with self.page.expect_download() as started:
            self.press(target)
        path = folder / started.value.suggested_filename
        started.value.save_as(path)
        return path

    def choose(self, target: Locator, *paths: Path) -> None:
        """Choose files of this computer."""
        self.actions += 1
        self._note()
        target.set_input_files(paths)

    def _note(self) -> None:
        self.pages.add(self.page.url.partition("?")[0])


@pytest.fixture(
    params=[
        pytest.param({}, id="by mouse"),
        pytest.param({"by_keyboard": True}, id="by keyboard", marks=only_full),
        pytest.param({"java_script_enabled": False}, id="without scripts", marks=only_full),
    ]
)
def walk(visit: Visits, request: pytest.FixtureRequest) -> Callable[[], Walk]:
    """An auditor who has just opened the audit log."""
    options = dict(request.param)
    by_keyboard = options.pop("by_keyboard", False)
    return lambda: Walk(visit(accept_downloads=True, **options), by_keyboard)


def test_who_installed_a_malicious_version_and_what_else_in_5_actions_on_2_pages(walk, tmp_path):
    walker = walk()
    page = walker.page
    walker.search("event-stream@3.3.6")
    rows = page.locator("table.log tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("acme/storefront · main")
    expect(rows.first).to_contain_text("key_1")

    walker.press(rows.first.locator("a.open"))
    walker.press(page.get_by_role("link", name="14077220290").first)
    expect(page.get_by_role("heading", level=1)).to_have_text("Run 14077220290")
    installed = page.locator("table.rows tbody tr")
    expect(installed).to_have_count(7)
    expect(installed.filter(has_text="package-3")).to_have_count(1)

    walker.press(page.get_by_role("link", name="Open its rows in the audit log"))
    expect(rows).to_have_count(7)
    page.locator("details.menu summary", has_text="Export 7 rows").focus()
    page.keyboard.press("Enter")
    saved = walker.download(page.get_by_role("link", name="CSV", exact=True), tmp_path)
    with saved.open(newline="") as file:
        packages = {row["packageName"] for row in csv.DictReader(file)}

    assert packages == {"event-stream", *(f"package-{number}" for number in range(6))}
    assert walker.actions + 1 <= 6  # opening the menu is one as well
    assert len(walker.pages) <= 3


@only_full
def test_a_year_of_rows_with_its_receipt_and_a_changed_byte_in_5_actions(walk, tmp_path):
    walker = walk()
    page = walker.page
    walker.press(page.locator("details.menu summary", has_text="Export"))
    saved = walker.download(page.get_by_role("link", name="CSV", exact=True), tmp_path)
    content = saved.read_bytes()
    assert b"left-pad" in content  # 300 days old
    changed = tmp_path / "changed.csv"
    changed.write_bytes(content.replace(b"left-pad", b"left-pat"))

    walker.press(page.get_by_role("link", name="Exports", exact=True))
    latest = page.locator("tbody tr").first
    expect(latest).to_contain_text("finished")
    walker.press(latest.get_by_role("link"))
    expect(page.get_by_role("link", name="Download the receipt")).to_be_visible()
    field = page.get_by_label("The file, or several")
    if not field.is_visible():  # without scripts the page says what a command must print
        expect(page.locator("main")).to_contain_text(f"sha256sum {saved.name}")
        return
    walker.choose(field, saved, changed)
    result = page.locator("[data-verify-result]")
    expect(result).to_contain_text(f"{saved.name} is the exported file")
    expect(result).to_contain_text("changed.csv is NOT the exported file")
    assert walker.actions <= 5


@only_full
def test_a_row_is_copied_as_a_link_and_as_json(visit):
    page = visit("?q=event-stream@3.3.6")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("table.log a.open").click()
    page.get_by_role("link", name="Open this row").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Install allowed")

    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    page.get_by_role("button", name="Copy as JSON").click()
    expect(page.get_by_role("button", name="Copied")).to_have_count(2)
    entry = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert entry["packageName"] == "event-stream"


@only_full
def test_the_keyboard_moves_through_rows_and_lists_its_keys(visit):
    page = visit("")
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.locator("table.log tbody tr").nth(1)
    expect(second.locator("a.open")).to_be_focused()
    page.keyboard.press("o")
    expect(second.locator("a.open")).to_have_attribute("aria-expanded", "true")
    expect(second.get_by_role("link", name="This event")).to_contain_text("This event ")
    page.keyboard.press("k")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("open or close the details")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_label("Search", exact=True)).to_be_focused()
