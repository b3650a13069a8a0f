"""A job becomes trusted, acts, and is trusted no more: in a browser, with scripts and without."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from service.core.header_names import CI_TOKEN_HEADER
from tests.browser.accessible import expect_no_violations, in_every_light
from tests.browser.chromium import needs_chromium, with_and_without_scripts
from tests.budgets import only_full
from tests.conftest import binding_body, bindings_path
from tests.issuers.fixtures import IssuerProcess
from tests.processes.homes import Home, Server, add_acme, eventually, owner_cookie

pytestmark = needs_chromium

EVENTS = "/api/v1/admin/orgs/acme/audit/events"
SHORT_PX = 1_000
"""An explanation fits one screen, or little more."""
LONG = "repo:acme/" + "x" * 1014
SUBS = [LONG, "repo:acme/مرحبا:ref:refs/heads/بالعالم", "repo:acme/" + "🦊" * 40]
"""What a subject may be, and what breaks a layout that is not ready for it."""


@dataclass
class Place:
    """A server that accepts one issuer, and the session cookie of acme's owner."""

    server: Server
    issuer: IssuerProcess
    cookie: str

    def page(self, path: str) -> str:
        """The address of one of acme's pages."""
        return f"{self.server.url}/admin/ui/orgs/acme/{path}"

    def send(self, token: str) -> str | None:
        """The binding that the row of a request with this token is attributed by."""
        with self.server.client() as client:
            item = {"event": "install_allowed", "packageName": "left-pad"}
            answer = client.post(EVENTS, json=[item], headers={CI_TOKEN_HEADER: token})
            assert answer.json()["accepted"] == 1
            query = {"event": "install_allowed", "limit": 1}
            rows = client.get("/api/v1/admin/orgs/acme/audit", params=query).json()["entries"]
            return rows[0]["oidc_binding_id"]

    def bind(self, sub: str, **changes: str) -> str:
        """The id of a new binding of this job, made over the API."""
        with self.server.client() as client:
            body = binding_body(issuer=self.issuer.url, sub_pattern=sub, **changes)
            return str(client.post(bindings_path(), json=body).json()["id"])

    def revoke(self, binding_id: str, reason: str) -> None:
        """Revoke it over the API."""
        with self.server.client() as client:
            path = bindings_path(binding_id=binding_id)
            assert client.delete(path, params={"reason": reason}).status_code == 200


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home, issuer = Home(tmp_path_factory.mktemp("trust")), IssuerProcess()
    try:
        home.settings["issuers_file"] = str(issuer.file(home.folder))
        home.change(add_acme)
        cookie = home.change(owner_cookie)
        yield Place(home.serve(), issuer, cookie)
    finally:
        home.end()
        issuer.stop()


@pytest.fixture
def visit(place: Place, browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages as the owner; a complaint of the browser's fails the test."""
    contexts, said = [], []

    def open_(path: str, **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        context.add_cookies(
            [{"name": "admin_session", "value": place.cookie, "url": place.server.url}]
        )
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(place.page(path))
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []


@only_full
@with_and_without_scripts
def test_from_a_pasted_token_to_a_revoked_binding(place, visit, has_scripts):
    name = "scripted" if has_scripts else "plain"
    token = place.issuer.sign(sub=f"repo:acme/{name}:ref:refs/heads/main")
    page = visit("bindings", java_script_enabled=has_scripts)
    page.get_by_role("link", name="New binding").click()
    page.get_by_label("Token of the job").fill(token)
    page.get_by_role("button", name="Explain and fill").click()
    expect(page.get_by_role("status")).to_contain_text("It is not trusted")
    expect(page.locator("main")).to_contain_text("Trusts jobs of acme (repository 123456789)")
    assert token not in page.content()
    assert "eyJ" not in page.url
    expect(page.get_by_label("Subject")).to_have_value(f"repo:acme/{name}:ref:refs/heads/main")

    page.get_by_role("button", name="Create the binding").click()
    expect(page.get_by_role("status")).to_contain_text("The binding is active")
    binding_page, binding_id = page.url.partition("?")[0], page.url.split("/")[-1].split("?")[0]
    page.get_by_role("link", name="All bindings").click()
    expect(page.get_by_role("link", name=f"acme/{name} · main")).to_be_visible()

    assert place.send(token) == binding_id
    page.goto(binding_page)
    eventually(lambda: page.reload() and page.get_by_text("1 time, last").count(), "counted")
    page.get_by_text("Revoke this binding…").click()
    page.get_by_label("Reason").fill("the repository was given away")
    page.get_by_role("button", name="Revoke permanently").click()
    expect(page.get_by_role("status")).to_contain_text("The binding is revoked")
    expect(page.get_by_text("the repository was given away")).to_be_visible()
    expect(page.get_by_role("button", name="Revoke permanently")).to_have_count(0)
    assert place.send(token) is None

    page.get_by_role("link", name="Rows about it").click()
    rows = page.locator("table.log tr[id]")
    expect(rows.get_by_role("rowheader")).to_have_text(["Binding revoked", "Binding created"])
    page.goto(binding_page)
    page.get_by_role("link", name="Rows that name it").click()
    expect(rows.get_by_role("rowheader")).to_have_text(["Install allowed, ALLOWED"])


def test_from_a_rejected_job_to_a_binding(place, visit):
    token = place.issuer.sign(sub="repo:acme/new:ref:refs/heads/main")
    assert place.send(token) is None
    page = visit("rejected", java_script_enabled=False)
    draft = page.get_by_role("link", name="Trust this job… repo:acme/new:")
    eventually(lambda: page.reload() and draft.count(), "noted")
    draft.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Repository id")).to_have_value("123456789")
    page.get_by_role("button", name="Create the binding").focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("status")).to_contain_text("The binding is active")
    assert place.send(token) == page.url.split("/")[-1].split("?")[0]
    page.get_by_role("link", name="Rejected").click()
    expect(page.get_by_text("Now trusted").first).to_be_visible()
    expect(draft).to_have_count(0)


@only_full
def test_a_misspelt_subject_is_replaced_and_its_repository_revoked(place, visit):
    earlier = place.bind("repo:acme/store:ref:refs/heads/main", repository_id="77")
    changes = {"sub": "repo:acme/Store:ref:refs/heads/main", "repository_id": "77"}
    token = place.issuer.sign(**changes)
    assert place.send(token) is None
    page = visit("rejected", viewport={"width": 1440, "height": 900})
    row = page.get_by_role("link", name="Trust this job… repo:acme/Store")
    eventually(lambda: page.reload() and row.count(), "noted")
    row.click()
    status = page.get_by_role("status")
    expect(status).to_contain_text("Character 11 differs (only upper and lower case differ)")
    assert page.evaluate("document.documentElement.scrollHeight") <= SHORT_PX
    expect_no_violations(page)
    page.get_by_role("button", name="Replace the binding").click()
    expect(page.get_by_role("status")).to_contain_text("has replaced the other one")
    replaced = page.url.split("/")[-1].split("?")[0]
    assert place.send(token) == replaced != earlier

    page.get_by_role("link", name="Revoke repository 77…").click()
    expect(page.get_by_role("heading", name="1 active binding of repository 77")).to_be_visible()
    expect_no_violations(page)
    page.get_by_label("Reason").fill("given away")
    page.get_by_role("button", name="Revoke the binding permanently").click()
    expect(page.get_by_role("status")).to_contain_text("The repository is revoked")
    assert place.send(token) is None


@pytest.fixture(scope="module")
def odd(place: Place) -> Place:
    """The place with subjects that are long, right to left, or of pictures."""
    for sub in SUBS:
        place.send(place.issuer.sign(sub=sub))
    place.send("made.up.token")
    for sub in SUBS:
        place.revoke(place.bind(sub), "ه" * 1024)
        place.bind(sub)
    return place


@only_full
@in_every_light
def test_every_page_is_for_everyone(odd, visit, scheme, size):
    page = visit("bindings", color_scheme=scheme, viewport=size)
    paths = ("bindings", "bindings?asOf=2026-01-01", "bindings/new", "bindings/revoke", "rejected")
    for path in paths:
        page.goto(odd.page(path))
        expect_no_violations(page)
    for state in ("active", "revoked"):
        page.goto(odd.page(f"bindings?state={state}&text=xxx"))
        page.locator("table.rows th a").first.click()
        expect(page.locator("main")).to_contain_text(LONG)
        expect_no_violations(page)
    page.goto(odd.page("bindings?state=active&text=xxx"))
    page.locator("table.rows th a").first.click()
    page.get_by_role("link", name="Replace this binding…").click()
    expect(page.get_by_label("Subject")).to_have_value(LONG)
    expect_no_violations(page)
    page.goto(odd.page("bindings/explain"))
    page.get_by_label("Token of the job").fill(odd.issuer.sign(sub=LONG[:-1] + "y"))
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="What would make it trusted")).to_be_visible()
    expect_no_violations(page)
