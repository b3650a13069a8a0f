"""Requests sent from the API documentation, with the reader's session."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessible import WIDE, expect_no_violations
from tests.browser.chromium import needs_chromium
from tests.browser.visits import Place, Visits, serve_acme, visit
from tests.budgets import IS_FULL
from tests.conftest import binding_body, bindings_path

__all__ = ["visit"]  # a fixture

pytestmark = needs_chromium

SHORTEN = """() => {
  const seen = new Set()
  for (const one of document.querySelectorAll("details.endpoint:not(:has(#list_bindings))")) {
    const method = one.querySelector(".method").textContent
    if (seen.has(method)) one.remove()
    seen.add(method)
  }
  document.querySelectorAll("#schemas > h3:nth-of-type(20) ~ *").forEach(one => one.remove())
}"""
"""Leaves one endpoint of each method and some schemas: all take half a minute."""

SUB = "repo:acme/payments:ref:refs/heads/<b>main</b>"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serve_acme(tmp_path_factory.mktemp("docs")) as place:
        with place.server.client() as client:
            body = binding_body(sub_pattern=SUB)
            assert client.post(bindings_path(), json=body).status_code == 201
        yield place


def send(page: Page, slug: str, **query: str) -> str:
    section = page.locator("#list_bindings")
    form = section.locator("form")
    if not form.count():
        section.locator("xpath=..").locator("> summary").click()
    if not form.is_visible():
        section.get_by_text("Try it").click()
    for name, value in {"slug": slug, **query}.items():
        form.get_by_label(name, exact=True).fill(value)
    with page.expect_response(lambda response: "/oidc-bindings" in response.url):
        form.get_by_role("button", name="Send").click()
    answer = form.get_by_role("status")
    expect(answer).to_contain_text("GET /api/v1")
    return answer.inner_text()


def test_a_request_is_sent_with_the_session_and_its_answer_is_text(visit: Visits):
    page = visit(f"{visit.place.server.url}/docs", role="owner", viewport=WIDE)
    answer = send(page, "acme", state="active")
    assert answer.startswith("GET /api/v1/admin/orgs/acme/oidc-bindings?state=active\n200")
    assert f'"subPattern": "{SUB}"' in answer
    assert page.locator("#list_bindings form b").count() == 0
    assert "\n404" in send(page, "../acme/%")
    assert "\n400" in send(page, "acme", state="gone")
    visit.complaints = [text for text in visit.complaints if "status of 40" not in text]
    if not IS_FULL:
        page.evaluate(SHORTEN)
    expect_no_violations(page)


def test_what_changes_something_or_needs_no_session_is_not_tried(visit: Visits):
    page = visit(f"{visit.place.server.url}/docs", role="owner")
    tried = page.locator("[data-get]").evaluate_all("all => all.map(one => one.ariaLabel)")

    assert "GET /api/v1/admin/orgs/{slug}/audit" in tried
    assert all(name.startswith("GET /api/v1/") for name in tried)
    assert not [name for name in tried if name.endswith("/export")], "a file is not shown"


def test_without_a_session_the_answer_says_so(visit: Visits):
    page = visit(f"{visit.place.server.url}/docs")
    page.context.clear_cookies()

    assert "\n401" in send(page, "acme")
    visit.complaints = [text for text in visit.complaints if "status of 401" not in text]
