"""Every page of an organisation whose names are all hostile: axe finds no violations."""

from collections.abc import Iterator

import pytest

from tests.browser.accessible import PHONE, WIDE, expect_no_violations
from tests.browser.chromium import needs_chromium
from tests.browser.hostile import TEXTS, fill
from tests.browser.visits import Place, Visits, serve_acme, visit  # noqa: F401 - a fixture
from tests.budgets import only_full
from tests.conftest import bindings_path

pytestmark = needs_chromium

ORG = "/admin/ui/orgs/acme"
PUBLIC = (
    "/",
    "/sign-in?token=abc",
    "/admin/ui/sign-in",
    "/docs",
    "/docs#query_audit_log",
    "/docs?q=revoke",
    f"{ORG}/nothing",
)
"""Pages that show nothing of the organisation's."""

PAGES = (
    ORG,
    f"{ORG}/audit?limit=25",
    f"{ORG}/bindings",
    f"{ORG}/bindings/new",
    f"{ORG}/rejected",
    f"{ORG}/members",
    f"{ORG}/teams",
    f"{ORG}/projects",
    f"{ORG}/keys",
    f"{ORG}/exports",
    f"{ORG}/reports/access",
    f"{ORG}/policy",
    f"{ORG}/policy/exceptions",
    f"{ORG}/affected",
    "/admin/ui/profile",
)

NAMELESS = (
    *PUBLIC,
    f"{ORG}/roles",
    f"{ORG}/audit?ecosystem=pypi&package=pad&version=1.0&searched=pad%3D%3D1.0",
    f"{ORG}/reports",
    f"{ORG}/reports/evidence",
    f"{ORG}/exports/new",
    f"{ORG}/bindings/explain",
    f"{ORG}/bindings/revoke",
    f"{ORG}/packages?name=nothing",
    f"{ORG}/affected/nothing",
    f"{ORG}/trust/map",
    f"{ORG}/find?q=export",
    f"{ORG}/trust/advice",
    f"{ORG}/runs?run_id=nothing",
    f"{ORG}/policy/check",
    f"{ORG}/policy/exceptions/new",
    f"{ORG}/proxy",
    "/proxy/acme/blocked/aud_0000000000000000001/left-pad/1.2.0/too+new:+published+yesterday",
    "/device",
)
"""Those, and pages of the organisation without names."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("hostile"), fill) as place:
        yield place


def expect_it_to_hold(visits: Visits, path: str) -> str:
    """Look at the page as the owner, in both lights at both widths; the text of it.

    Nothing of it comes from elsewhere, or leads there.
    """
    page = visits(f"{visits.place.server.url}{path}", role="owner")
    for size in (WIDE, PHONE):
        page.set_viewport_size(size)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            expect_no_violations(page)
    assert page.locator("img, iframe, object, embed, main script").count() == 0
    hosts = page.evaluate(
        "[...document.querySelectorAll('a[href], form[action], link[href], script[src]')]"
        ".map(one => new URL(one.href || one.action || one.src, document.baseURI).host)"
    )
    assert set(hosts) == {page.url.split("/")[2]}
    return page.locator("main").inner_text()


def test_every_page_opens_and_shows_names_as_text(visit: Visits) -> None:  # noqa: F811 - a fixture
    page = visit(role="owner")
    for path in PAGES:
        page.goto(f"{visit.place.server.url}{path}")
        shown = page.locator("main").inner_text()
        assert [text for text in TEXTS if text[:20] not in shown] == [], path
        assert page.locator("h1").count() == 1, path
        assert page.locator("img, iframe, object, embed, main script").count() == 0, path
    for path in NAMELESS:
        page.goto(f"{visit.place.server.url}{path}")
        assert page.locator("h1").inner_text(), path
    visit.complaints = [text for text in visit.complaints if "status of 40" not in text]


@only_full
@pytest.mark.parametrize("path", PAGES)
def test_hostile_names_are_text(visit: Visits, path: str) -> None:  # noqa: F811 - a fixture
    shown = expect_it_to_hold(visit, path)

    for text in TEXTS:
        assert text[:20] in shown
    assert str(7**9) not in shown, "a template was made of typed text"


@only_full
def test_a_hostile_binding_is_text(visit: Visits) -> None:  # noqa: F811 - a fixture
    """The longest name has no place to break."""
    with visit.place.server.client() as client:
        bindings = client.get(bindings_path()).json()["bindings"]
    for binding in bindings[:3]:
        assert binding["subPattern"] in expect_it_to_hold(visit, f"{ORG}/bindings/{binding['id']}")


@only_full
@pytest.mark.parametrize("path", NAMELESS)
def test_a_page_without_names_can_be_used_by_everyone(visit: Visits, path: str) -> None:  # noqa: F811
    expect_it_to_hold(visit, path)
    visit.complaints = [text for text in visit.complaints if "status of 40" not in text]
