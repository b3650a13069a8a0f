"""What a person's browser is answered where a script is told `{"error": text}`."""

from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from sqlalchemy import text

from service.core.settings import Settings
from tests.conftest import SettableClock, World, refused, running_world
from tests.service.pages.page import AUDIT, OWN_PAGE, SCRIPTS, Page, open_page

HTML = {"accept": OWN_PAGE["accept"]}


async def see(world: World, path: str, who: str | None = None, **options):
    headers = HTML | (world.session(who) if who else {}) | options.pop("headers", {})
    return await world.client.get(path, headers=headers, **options)


@pytest.mark.parametrize("path", [AUDIT, f"{AUDIT}?last=7d&package=left-pad"])
async def test_a_visitor_is_led_there_and_back(world, path):
    """The address is the page: it survives the sign-in."""
    response = await see(world, path)
    there = urlsplit(response.headers["location"])

    assert response.status_code == 303
    assert there.path == "/admin/ui/sign-in"
    assert parse_qs(there.query)["next"] == [path]


async def test_an_address_too_long_to_keep_is_not_kept(world):
    """Cookies have an end; the way in is the same."""
    response = await see(world, f"{AUDIT}?package={'x' * 2000}")

    assert (response.status_code, response.headers["location"]) == (303, "/admin/ui/sign-in")


async def test_a_form_sent_without_a_session_is_not_done_and_says_so(world):
    """A redirect would drop what was typed; the way back does not."""
    response = await world.client.post("/sign-out", form={}, headers=OWN_PAGE)
    page = Page(await response.get_data(as_text=True))

    assert response.status_code == 401
    assert page.one("h1").text == "You are not signed in"
    assert page.link("Sign in") == "/admin/ui/sign-in"


@pytest.mark.parametrize(
    ("path", "who", "status", "said"),
    [
        (AUDIT, "member", 403, "Missing capability: audit:r."),
        (AUDIT, "stranger", 403, "Missing capability: audit:r."),
        ("/admin/ui/orgs/missing/audit", "owner", 404, "Org not found."),
        ("/nowhere", None, 404, "Not found."),
        ("/sign-out", "owner", 405, "Method not allowed."),
        (f"{AUDIT}/export?format=xml", "owner", 400, "Format must be one of"),
    ],
)
async def test_a_refusal_is_a_page_with_its_text_and_request_id(world, path, who, status, said):
    """The operator finds the log line by the id."""
    response = await see(world, path, who)
    page = Page(await response.get_data(as_text=True))

    assert response.status_code == status
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert said in page.one("div", role="alert").text
    assert response.headers["x-request-id"] in page.one("main").text


async def test_what_a_refusal_repeats_is_escaped(world):
    """An error may name what a stranger sent."""
    response = await see(world, f"{AUDIT}/export?format=csv&%3Cscript%3E=1", "owner")
    page = Page(await response.get_data(as_text=True))

    assert response.status_code == 400
    assert "<script>" in page.one("div", role="alert").text
    assert page.scripts == SCRIPTS


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
async def test_a_script_gets_json(world, accept):
    """Scripts accept anything, and read no pages."""
    response = await see(world, AUDIT, headers={"accept": accept})

    assert await refused(response) == (401, "missing or invalid credentials")


async def test_the_api_answers_json_to_everyone(world):
    """Its errors are part of its contract."""
    response = await see(world, "/api/v1/admin/orgs/acme/audit")

    assert await refused(response) == (401, "missing or invalid credentials")


async def test_a_fault_of_ours_is_a_page_without_its_reason(world):
    async with world.services.store.write() as work:
        await work.session.execute(text("ALTER TABLE organisations RENAME TO hidden"))
    response = await see(world, AUDIT, "auditor")
    page = Page(await response.get_data(as_text=True))

    assert response.status_code == 503
    assert page.one("h1").text == "Something went wrong"
    assert "no such table" not in page.html
    assert "Storage is unavailable." in page.one("div", role="alert").text


async def test_a_damaged_segment_is_a_page_that_says_what_to_do(world):
    """To try again is no help; the operator needs the segment's name."""
    await world.create()
    await world.services.sealer.seal_due(everything=True)
    (path,) = world.services.settings.audit_dir.glob(f"tenant={world.acme.id}/*/*.parquet")
    path.unlink()
    response = await see(world, f"{AUDIT}?source_ip=192.0.2.99", "auditor")
    page = Page(await response.get_data(as_text=True))

    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert page.one("h1").text == "Stored data cannot be read"
    said = page.one("div", role="alert").text
    assert f"segment {path.stem}" in said
    assert "countersign audit restore-segment" in said
    assert "Try again" not in page.html


@pytest.mark.parametrize(
    ("base_url", "promise"),
    [("https://audit.example", "max-age=31536000"), ("http://localhost:8080", None)],
)
async def test_browsers_are_told_to_come_by_https_alone(
    settings: Settings, clock: SettableClock, base_url: str, promise: str | None
):
    """Once they have come by it: over http they would ignore it (RFC 6797, 8.1)."""
    served = msgspec.structs.replace(settings, base_url=base_url)
    async with running_world(served, clock) as world:
        response = await world.client.get("/")

    assert response.headers.get("strict-transport-security") == promise


async def test_the_navigation_marks_where_it_is(world):
    page = await open_page(world)
    current = page.all("a", **{"aria-current": "page"})

    assert [link.attributes["href"] for link in current] == [AUDIT]


@pytest.mark.parametrize(("path", "status"), [("nothing", 404), ("members", 403)])
async def test_an_error_within_an_organisation_keeps_its_navigation(world, path, status):
    for who, has_navigation in (("auditor", True), ("stranger", False)):
        response = await world.client.get(
            f"/admin/ui/orgs/acme/{path}", headers=world.session(who) | {"accept": "text/html"}
        )
        page = Page(await response.get_data(as_text=True))
        assert response.status_code == (status if has_navigation or status == 404 else 403)
        assert bool(page.all("nav", **{"aria-label": "Pages of acme"})) is has_navigation
