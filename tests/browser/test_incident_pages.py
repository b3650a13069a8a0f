"""Overview, package and map of trust with rows: at three widths, in both lights, and on paper."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from service.app.composition import Services
from service.core.clock import utc_now
from service.packages.policy.document import parse_policy
from service.packages.policy.repository import set_policy
from service.store.journal import append
from service.store.organisations import get_org
from tests.analytics.samples import sample_row
from tests.browser.accessible import PHONE, WIDE, expect_no_violations
from tests.browser.chromium import needs_chromium
from tests.browser.measures import measure
from tests.browser.visits import Place, Visits, serve_acme, visit
from tests.budgets import IS_FULL
from tests.conftest import BY_OPERATOR, binding_body, bindings_path

__all__ = ["visit"]  # a fixture

pytestmark = needs_chromium

NARROW = {"width": 1024, "height": 768}
LOOKS = [
    (WIDE, "light"),
    (WIDE, "dark"),
    (NARROW, "dark"),
    (NARROW, "light"),
    (PHONE, "light"),
    (PHONE, "dark"),
]
"""`make test` has two of them for each page, and each of them for a page."""

PAGES = ("", "/packages?name=event-stream&version=3.3.6", "/affected/SEC-42", "/trust/map")
DENIED = {"ecosystem": "npm", "package": "event-stream", "id": "SEC-42"}


async def _add_rows(services: Services) -> None:
    now = utc_now()
    rows = [
        sample_row(
            now - timedelta(hours=number),
            event="blocklist_hit" if number < 40 else "install_allowed",
            decision="BLOCKED" if number < 40 else "ALLOWED",
            package_name="event-stream",
            version="3.3.6",
            ecosystem="npm",
            run_id=str(number),
        )
        for number in range(80)
    ]
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        await append(work.session, acme.id, rows, now=services.clock())
        await set_policy(work, acme, parse_policy({"deny": [DENIED]}), BY_OPERATOR)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("incident"), _add_rows) as place:
        with place.server.client() as client:
            for number in range(1, 26):
                sub = f"repo:acme/app-{number % 9}:ref:refs/heads/b{number}"
                body = binding_body(sub_pattern=sub, repository_id=str(1 + number % 9))
                assert client.post(bindings_path(), json=body).status_code == 201
        yield place


@pytest.mark.parametrize("path", PAGES)
def test_pages_with_rows_are_accessible_and_never_scroll_sideways(visit: Visits, path: str):
    page = visit(f"{visit.place.overview}{path}", role="owner")
    for size, scheme in LOOKS if IS_FULL else LOOKS[PAGES.index(path) % 3 :: 3]:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.reload()
        expect_no_violations(page)


def test_the_map_prints_on_one_page_in_landscape_format(visit: Visits):
    page = visit(f"{visit.place.overview}/trust/map", role="owner")
    printed = page.pdf(prefer_css_page_size=True)
    (box,) = {*re.findall(rb"/MediaBox\s*\[([^\]]*)\]", printed)}

    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    assert [round(float(edge)) for edge in box.split()] == [0, 0, 842, 595]
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1032, "height": 702})  # A4 without its margins, at 96 dpi
    ends = page.locator("svg.map text").evaluate_all(
        "all => Math.max(...all.map(one => one.getBoundingClientRect().right))"
    )
    assert ends <= 1032


def test_a_phone_has_the_map_as_a_table(visit: Visits):
    page = visit(f"{visit.place.overview}/trust/map", role="owner", viewport=PHONE)

    assert not page.locator("svg.map").is_visible()
    assert page.get_by_role("link", name="acme/app-1 · b1", exact=True).is_visible()


@pytest.mark.parametrize("path", ["/reports/access", "/proxy", "/bindings", "/docs"])
def test_a_phone_breaks_no_word_inside(visit: Visits, path: str):
    address = path if path == "/docs" else f"/admin/ui/orgs/acme{path}"
    page = visit(f"{visit.place.server.url}{address}", role="owner", viewport=PHONE)

    assert measure(page).words_broken == []


def test_a_phone_has_the_choice_of_columns(visit: Visits):
    page = visit("", role="owner", viewport=PHONE)
    page.locator("summary[title=Columns]").click()
    choice = page.get_by_label("CI run column")
    box = choice.locator("xpath=..").bounding_box()
    assert box is not None
    assert box["height"] >= 44
    choice.check()
    page.get_by_role("button", name="Apply columns").click()

    expect(page.get_by_role("link", name="7", exact=True)).to_be_visible()
