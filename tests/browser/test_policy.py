"""A policy is tried, previewed and saved in a browser: by keyboard, with scripts and without."""

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest
from playwright.sync_api import Page, expect

from service.app.composition import Services
from service.packages.policy.blocklist import BlocklistImporter
from service.packages.policy.document import DOCUMENT_EXAMPLE, parse_policy
from service.packages.policy.repository import contents_of, find_current_import, set_policy
from service.store.organisations import get_org
from tests.browser.accessible import expect_no_violations, in_every_light
from tests.browser.chromium import needs_chromium, with_and_without_scripts
from tests.browser.visits import Place, Visits, serve_acme, visit  # noqa: F401 - a fixture
from tests.budgets import only_full
from tests.conftest import BY_OPERATOR
from tests.service.packages.policy.osv_files import osv_record, osv_zip

pytestmark = needs_chromium


async def _fill(services: Services) -> None:
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        await set_policy(work, acme, parse_policy(DOCUMENT_EXAMPLE), BY_OPERATOR)
    await _import(services, "osv", "MAL-*")
    async with services.store.write() as work:
        current = await find_current_import(work.session)
        assert current is not None
        contents = await contents_of(work.session, current)
        at = work.now - timedelta(days=30)
        stale = [msgspec.structs.replace(part, imported_at=at) for part in contents.parts]
        current.contents = msgspec.json.encode(msgspec.structs.replace(contents, parts=stale))
    await _import(services, "a-feed-with-a-long-name" * 2, "M?L-*")


async def _import(services: Services, feed: str, ids: str) -> None:
    importer = BlocklistImporter(services.store)
    file = osv_zip([osv_record("MAL-1"), osv_record("MAL-2", "evil", "PyPI")])
    await importer.import_file(file, "osv.zip", [ids], BY_OPERATOR, feed=feed)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("policy"), _fill) as place:
        installs = [
            {
                "event": "install_allowed",
                "packageName": "colors",
                "version": version,
                "ecosystem": "npm",
            }
            for version in ("1.4.1", "1.4.2", "1.3.0")
        ]
        place.ingest(installs)
        yield place


def press(page: Page, role: str, name: str) -> None:
    """Reach an element and press Enter, as without a mouse."""
    target = page.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]
    target.focus()
    page.keyboard.press("Enter")


@with_and_without_scripts
def test_a_rule_is_checked_previewed_and_saved_by_keyboard(
    visit: Visits,  # noqa: F811 - a fixture
    has_scripts: bool,
) -> None:
    name = "colors" if has_scripts else "color*"
    policy = f"{visit.place.overview}/policy"
    page = visit(policy, role="owner", java_script_enabled=has_scripts)
    page.get_by_label("Ecosystem").first.select_option("npm")
    page.locator("#check-package").fill("colors@1.4.1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("It depends on its age")
    page.goto(policy)

    page.locator("summary", has_text="Add a deny rule").focus()
    page.keyboard.press("Enter")
    form = page.locator("form:has(#add_deny-package)")
    form.get_by_label("Ecosystem").select_option("npm")
    form.get_by_label("Package").fill(name)
    form.get_by_label("Versions").fill("not a range")
    form.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Nothing was changed.")
    expect(form.get_by_label("Package")).to_have_value(name)
    visit.complaints = [text for text in visit.complaints if "status of 400" not in text]

    form.get_by_label("Versions").fill(">=1.4.1")
    form.get_by_label("Reason").fill("prints nonsense forever")
    form.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Preview: nothing is saved yet")).to_be_visible()
    expect(page.locator("main")).to_contain_text("this would have blocked 2 installs.")
    press(page, "button", "Save the policy")
    expect(page.get_by_role("status")).to_contain_text("Saved.")

    page.locator("#check-package").fill("colors@1.4.2")
    page.get_by_label("Ecosystem").first.select_option("npm")
    press(page, "button", "Check")
    expect(page.get_by_role("status")).to_contain_text("Blocked: colors 1.4.2 (npm)")
    page.get_by_role("link", name="Open the rule").focus()
    page.keyboard.press("Enter")
    expect(page.locator("tr:target")).to_contain_text("prints nonsense forever")
    page.locator("tr:target").get_by_role("button").click()
    expect(page.locator("dd.gone")).to_contain_text("prints nonsense forever")
    press(page, "button", "Save the policy")
    expect(page.locator("main")).not_to_contain_text("prints nonsense forever")


@only_full
def test_lines_are_copied(visit: Visits) -> None:  # noqa: F811 - a fixture
    page = visit(
        f"{visit.place.overview}/proxy?client=npm&provider=gitlab",
        role="owner",
        permissions=["clipboard-read", "clipboard-write"],
    )
    button = page.get_by_role("button", name="Copy", exact=True).first
    button.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()

    assert "countersign ci exec" in page.evaluate("navigator.clipboard.readText()")


@only_full
@in_every_light
def test_every_page_about_installs_is_for_everyone(
    visit: Visits,  # noqa: F811 - a fixture
    scheme: str,
    size: dict[str, int],
) -> None:
    page = visit(f"{visit.place.overview}/policy", role="owner", color_scheme=scheme, viewport=size)
    expect(page.locator("#blocklist")).to_contain_text("stale")
    expect_no_violations(page)
    paths = (
        "policy/check?ecosystem=npm&package=left-pad%401.2.0&version=",
        "policy/exceptions",
        "policy/exceptions/new?package=vite&version=1.0.0",
        "proxy?client=yarn-1&provider=github",
        "proxy?client=poetry&provider=other",
    )
    for path in paths:
        page.goto(f"{visit.place.overview}/{path}")
        expect_no_violations(page)
    page.goto(f"{visit.place.overview}/policy")
    page.get_by_role("button", name="Remove… left-pad-old").click()
    expect(page.get_by_role("button", name="Save the policy")).to_be_visible()
    expect_no_violations(page)
    page.goto(
        f"{visit.place.server.url}/proxy/acme/blocked/aud_0000000000000000001/left-pad/1.2.0/too+new:+published+yesterday"
    )
    expect_no_violations(page)
    visit.complaints = [text for text in visit.complaints if "status of 403" not in text]
