"""The questions that people come with, walked through in a browser. Each name counts the actions.

An action is a click, a choice, or a text typed and sent. Every story also works without scripts and
from the keyboard alone: by at most TABS_MAX presses of Tab, and the link that skips the frame.
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
from tests.conftest import binding_body, bindings_path
from tests.service.trust.rejected.notes import rejection

__all__ = ["visit"]  # a fixture

pytestmark = needs_chromium

JOB = "repo:acme/storefront:ref:refs/heads/main"
REJECTED_JOB = "repo:acme/infra:ref:refs/heads/main"
TABS_MAX = 40


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
        _install(200, "event-stream", "3.3.6", event="blocklist_hit", decision="BLOCKED"),
    ]
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        await append(work.session, acme.id, rows, now=services.clock())
    await services.sealer.seal_due(everything=True)
    services.rejected.record(rejection(acme.id, sub=REJECTED_JOB, at=utc_now()))
    await services.rejected.flush()


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
    tabs: int = 0
    pages: set[str] = field(default_factory=set)

    def press(self, target: Locator) -> None:
        """Follow a link, press a button or open a menu."""
        self.actions += 1
        self._note()
        if self.by_keyboard:
            self._tab_to(target)
            self.page.keyboard.press("Enter")
        else:
            target.click()

    def type(self, target: Locator, text: str) -> None:
        """Type a text into a field and send it."""
        self.actions += 1
        self._note()
        if self.by_keyboard:
            self._tab_to(target)
        else:
            target.click()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def _tab_to(self, target: Locator) -> None:
        """Press Tab until the target has the focus, from the content on if it is there."""
        expect(target).to_be_visible()
        skip = self.page.locator("a.skip")
        is_new = self.page.evaluate("document.activeElement === document.body")
        if is_new and self.page.locator("main").locator(target).count():
            self._tab()
            expect(skip).to_be_focused()
            self.page.keyboard.press("Enter")
        while not target.evaluate("one => one === document.activeElement"):
            self._tab()

    def _tab(self) -> None:
        self.page.keyboard.press("Tab")
        self.tabs += 1
        assert self.tabs <= 300, "the target cannot be reached"

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
def walk(visit: Visits, request: pytest.FixtureRequest) -> Callable[..., Walk]:
    """An auditor, or another member, who has just opened the audit log."""
    options = dict(request.param)
    by_keyboard = options.pop("by_keyboard", False)
    return lambda role="auditor": Walk(
        visit(role=role, accept_downloads=True, **options), by_keyboard
    )


def test_a_malicious_version_that_got_through_in_3_actions_from_the_overview(walk, tmp_path):
    """Who, from which job, what else its run installed, and the list of that."""
    walker = walk()
    page = walker.page
    page.goto(page.url.removesuffix("/audit"))
    attention = page.locator("table.attention tr", has_text="event-stream 3.3.6 was installed")
    walker.press(attention.get_by_role("link", name="Who got it"))
    through = page.locator("section", has=page.get_by_role("heading", name="Let through: 3.3.6"))
    expect(through.locator("tbody tr")).to_have_count(1)
    expect(through).to_contain_text("acme/storefront · main")
    expect(through).to_contain_text("key_1")

    walker.press(through.get_by_role("link", name="14077220290"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Run 14077220290")
    saved = walker.download(page.get_by_role("link", name="Its rows as CSV"), tmp_path)
    with saved.open(newline="") as file:
        packages = {row["packageName"] for row in csv.DictReader(file)}

    assert packages == {"event-stream", *(f"package-{number}" for number in range(6))}
    assert walker.actions == 3
    assert walker.tabs <= TABS_MAX


def test_a_malicious_version_by_its_name_in_5_actions_from_the_overview(walk, tmp_path):
    """One of which no rule knows yet: searched for, as an advisory spells it."""
    walker = walk()
    page = walker.page
    page.goto(page.url.removesuffix("/audit"))
    walker.press(page.get_by_role("link", name="Audit log", exact=True))
    walker.search("event-stream@3.3.6")
    walker.press(page.get_by_role("link", name="Who got event-stream 3.3.6"))
    walker.press(page.get_by_role("link", name="14077220290"))
    installed = page.locator("table tbody tr")
    expect(installed).to_have_count(7)
    expect(installed.filter(has_text="package-3")).to_have_count(1)
    saved = walker.download(page.get_by_role("link", name="Its rows as CSV"), tmp_path)

    assert b"package-5" in saved.read_bytes()
    assert walker.actions == 5
    assert walker.tabs <= TABS_MAX


def test_a_rejected_job_is_trusted_in_2_actions_from_the_overview(walk, place):
    walker = walk("owner")
    page = walker.page
    page.goto(page.url.removesuffix("/audit"))
    line = page.locator("table.attention tr", has_text="acme/infra · main is rejected")
    walker.press(line.get_by_role("link", name="Trust it…"))
    walker.press(page.get_by_role("button", name="Create the binding"))

    expect(page.get_by_role("status")).to_contain_text("The binding is active")
    assert walker.actions == 2
    assert walker.tabs <= TABS_MAX
    page.goto(page.url.partition("/bindings")[0])
    expect(line).to_have_count(0)
    with place.server.client() as client:
        (binding,) = client.get(bindings_path(), params={"state": "active"}).json()["bindings"]
        client.delete(bindings_path(binding_id=binding["id"]))


def test_a_repository_is_revoked_by_its_name_in_3_actions_from_the_overview(walk, place):
    body = binding_body(sub_pattern="repo:acme/storefront:pull_request", repository_id="412803377")
    with place.server.client() as client:
        assert client.post(bindings_path(), json=body).status_code == 201
    walker = walk("owner")
    page = walker.page
    page.goto(page.url.removesuffix("/audit"))
    walker.press(page.get_by_role("link", name="Revoke a repository"))
    walker.type(page.get_by_label("Repository", exact=True), "acme/storefront")
    expect(page.get_by_role("heading", level=2)).to_contain_text("1 active binding")
    walker.press(page.get_by_role("button", name="Revoke the binding permanently"))

    expect(page.get_by_role("status")).to_contain_text("The repository is revoked")
    assert walker.actions == 3
    assert walker.tabs <= TABS_MAX


@only_full
def test_a_year_of_rows_with_its_receipt_and_a_changed_byte_in_5_actions(walk, tmp_path):
    """From the overview: the receipt is a link beside the file's."""
    walker = walk()
    page = walker.page
    page.goto(page.url.removesuffix("/audit"))
    walker.press(page.get_by_role("link", name="Audit log", exact=True))
    walker.press(page.locator("details.menu summary", has_text="Export"))
    saved = walker.download(page.get_by_role("link", name="CSV", exact=True), tmp_path)
    content = saved.read_bytes()
    assert b"left-pad" in content  # 300 days old
    changed = tmp_path / "changed.csv"
    changed.write_bytes(content.replace(b"left-pad", b"left-pat"))

    walker.press(page.get_by_role("link", name="Receipt of your latest export"))
    expect(page.locator("main")).to_contain_text(saved.name)
    expect(page.get_by_role("link", name="Download the receipt")).to_be_visible()
    field = page.get_by_label("The file, or several")
    assert walker.tabs <= TABS_MAX
    if not field.is_visible():  # without scripts the page says what a command must print
        expect(page.locator("main")).to_contain_text(f"sha256sum {saved.name}")
        return
    walker.choose(field, saved, changed)
    result = page.locator("[data-verify-result]")
    expect(result).to_contain_text(f"{saved.name} is the exported file")
    expect(result).to_contain_text("changed.csv is NOT the exported file")
    assert walker.actions == 5


@only_full
def test_a_row_is_copied_as_a_link_and_as_json(visit):
    page = visit("?q=event-stream@3.3.6")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("table.log a.open").last.click()
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
    second = page.locator("table.log tr[id]").nth(1)
    expect(second.locator("a.open")).to_be_focused()
    page.keyboard.press("o")
    expect(second.locator("a.open")).to_have_attribute("aria-expanded", "true")
    expect(page.locator("tr.inner").get_by_role("link", name="This event")).to_contain_text(
        "This event "
    )
    page.keyboard.press("k")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("open or close the details")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_label("Search", exact=True)).to_be_focused()
