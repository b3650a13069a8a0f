"""The pages, as a browser without scripts receives them."""

import asyncio
import gzip
import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
import pytest_asyncio

from service.app import system
from service.core.settings import REPOSITORY
from tests.budgets import sample
from tests.conftest import World, binding_body
from tests.service.pages.page import AUDIT, AUDIT_SCRIPTS, ORG, Page, open_page
from tests.service.pages.trust.pages import BINDINGS, EXPLAIN, NEW, REJECTED
from tests.service.trust.rejected.notes import rejection, remember

PAGES = (
    "/",
    "/sign-in",
    "/admin/ui/sign-in",
    "/admin/ui/profile",
    "/sign-in?token=abc",
    "/docs",
    ORG,
    AUDIT,
    f"{AUDIT}?package=none",
    BINDINGS,
    f"{BINDINGS}?asOf=2026-03-04T12:00:00Z",
    NEW,
    EXPLAIN,
    REJECTED,
)
STATIC = REPOSITORY / "templates" / "static"
STYLE = STATIC / "style.css"
BROWSER = {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}


async def press_sign_in(world: World, token: str, headers: dict[str, str] = BROWSER) -> Any:
    """What pressing the button on the sign-in page answers."""
    page = await open_page(world, f"/sign-in?token={token}")
    form = page.one("form", method="post")
    fields = {"token": page.one("input", type="hidden", name="token").attributes["value"]}
    return await world.client.post(form.attributes["action"], form=fields, headers=headers)


# Every page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full_world(shared_world: World) -> World:
    """With something on every page; an owner is shown all of it."""
    await shared_world.create()
    other = rejection(shared_world.acme.id, sub="repo:acme/other:ref:refs/heads/main")
    await remember(shared_world, other)
    return shared_world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pages(full_world: World) -> dict[str, Page]:
    owner = full_world.session("owner")
    return {path: await open_page(full_world, path, **owner) for path in PAGES}


@sample(6)
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_page_brings_no_script_and_no_style_of_its_own(pages, path):
    """The content security policy allows our own files and nothing else."""
    page = pages[path]

    assert set(page.scripts) <= {*AUDIT_SCRIPTS, "/static/docs.js", "/static/passkeys.js"}
    assert not page.all("style")
    for element in page.elements:
        assert not [name for name in element.attributes if name == "style" or name[:2] == "on"]
        for name in ("src", "href", "action"):
            assert not re.match(r"[a-z]+:|//", element.attributes.get(name, ""), re.IGNORECASE)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_page_can_be_used_without_seeing_it(pages, path):
    page = pages[path]

    assert page.one("html").attributes["lang"] == "en"
    assert page.all("title")[0].text.strip()
    assert page.one("h1").text.strip()
    assert page.link("Skip to content") == f"#{page.one('main').attributes['id']}"
    labelled = {label.attributes["for"] for label in page.all("label")}
    fields = [
        *(field for field in page.all("input") if field.attributes["type"] != "hidden"),
        *page.all("select"),
        *page.all("textarea"),
    ]
    assert {field.attributes["id"] for field in fields} == labelled


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_pages_ids_are_unique_and_its_anchors_lead_somewhere(pages, path):
    """A reference to nothing is a dead link, or a hint that is never read out."""
    page = pages[path]
    ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    wanted = {
        reference
        for element in page.elements
        for name in ("aria-describedby", "aria-labelledby", "for")
        for reference in element.attributes.get(name, "").split()
    } | {
        link.attributes["href"][1:]
        for link in page.all("a")
        if link.attributes["href"].startswith("#")
    }

    assert len(ids) == len(set(ids))
    assert wanted <= set(ids)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_page_lets_the_browser_name_its_origin_to_us(shared_world):
    """Under `no-referrer` browsers send `Origin: null` with forms, which we refuse (Fetch §3.1)."""
    for path in ("/sign-in?token=abc", AUDIT):
        response = await shared_world.client.get(path, headers=shared_world.session("owner"))
        assert response.headers["referrer-policy"] == "strict-origin"


@pytest.mark.parametrize("file", sorted(one.name for one in STATIC.iterdir()))
@pytest.mark.asyncio(loop_scope="module")
async def test_what_pages_refer_to_is_served(shared_world, file):
    assert (await shared_world.client.get(f"/static/{file}")).status_code == 200


def test_each_brace_of_the_stylesheet_has_its_counterpart():
    """Browsers leave out the rule behind a stray one, and say nothing."""
    depth = 0
    for brace in re.findall(r"[{}]", re.sub(r"/\*.*?\*/", "", STYLE.read_text(), flags=re.DOTALL)):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0


async def test_every_text_stands_out_from_its_ground():
    """WCAG 2.2 AA in both colour schemes: 4.5 for text, 3 for what shows where a field is."""
    for colours in _schemes(STYLE.read_text()):
        for ground in ("paper", "sheet", "sunk", "hover"):
            for text in ("ink", "second", "accent", "stop", "wait"):
                assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for ground in ("paper", "sheet"):
            for mark in ("edge", "bar-go", "bar-stop", "bar-other", "bar-wait", "ghost"):
                assert _contrast(colours[mark], colours[ground]) >= 3, (mark, ground)
        for text, ground in _ON_COLOUR:
            assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


_ON_COLOUR = (
    ("accent", "accent-wash"),
    ("ink", "accent-wash"),
    ("on-accent", "accent"),
    ("stop", "stop-wash"),
    ("on-stop", "stop-fill"),
    ("wait", "wait-wash"),
    ("ink", "tint"),
    ("ink", "tint-stop"),
)
"""Texts on grounds of a colour."""


def _schemes(css: str) -> Iterator[dict[str, str]]:
    """The colours of the light scheme, then of the dark one."""
    tokens = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    assert len(tokens) > 20
    yield {name: light for name, light, _ in tokens}
    yield {name: dark for name, _, dark in tokens}


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# The home page


@pytest.mark.asyncio(loop_scope="module")
async def test_home_leads_members_on(shared_world):
    member = await open_page(shared_world, "/", **shared_world.session("member"))
    anonymous = await open_page(shared_world, "/", accept="text/html")
    operator = await open_page(shared_world, "/", **shared_world.admin)

    assert member.link("Go to acme") == ORG
    assert "acme" not in anonymous.html + operator.html


@pytest.mark.asyncio(loop_scope="module")
async def test_home_says_how_to_get_in(shared_world):
    """There is no password: a visitor without a link must learn whom to ask, and for what."""
    page = await open_page(shared_world, "/")

    assert "countersign session issue --org SLUG --member EMAIL" in page.one("pre").text
    assert page.link("API docs") == "/docs"


# Signing in and out


async def test_the_button_signs_in(world):
    response = await press_sign_in(world, await world.sign_in_link("auditor"))

    assert response.status_code == 303
    assert response.headers["location"] == ORG
    cookie = response.headers["set-cookie"].partition(";")[0]
    page = await open_page(world, AUDIT, cookie=cookie)
    assert "Signed in by link" in page.one("table", role="table").text


async def test_looking_at_a_link_does_not_use_it_up(world):
    """Mail scanners and previews open links; the person comes after them."""
    token = await world.sign_in_link("auditor")
    for _ in range(3):
        await open_page(world, f"/sign-in?token={token}")

    assert (await press_sign_in(world, token)).status_code == 303


async def test_a_link_works_once(world):
    token = await world.sign_in_link("auditor")
    await press_sign_in(world, token)
    response = await press_sign_in(world, token)

    assert response.status_code == 401
    assert "set-cookie" not in response.headers


async def test_a_link_is_refused_once_it_is_old(world):
    """A link lives ten minutes; the page says how to go on."""
    token = await world.sign_in_link("auditor")
    world.clock.advance(minutes=10)
    response = await press_sign_in(world, token, BROWSER | {"accept": "text/html"})
    page = Page(await response.get_data(as_text=True))

    assert response.status_code == 401
    assert page.one("h1").text == "This sign-in link does not work"
    assert "Ask the owner or operator who sent it for a new one" in page.one("main").text
    assert "Go back" not in page.one("main").text
    assert page.link("Sign in") == "/admin/ui/sign-in"


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "null"}, {"origin": "https://evil.example"}], ids=str
)
async def test_another_sites_button_does_not_sign_in(world, headers):
    """Otherwise a page could sign its visitor in as another person, and watch what they do."""
    token = await world.sign_in_link("auditor")

    assert (await press_sign_in(world, token, headers)).status_code == 403
    assert (await press_sign_in(world, token)).status_code == 303


@pytest.mark.asyncio(loop_scope="module")
async def test_a_link_without_its_token_says_that_it_is_incomplete(shared_world):
    """Mail programs break long links; a button that cannot work is of no use."""
    page = await open_page(shared_world, "/sign-in")

    assert "incomplete" in page.one("main").text
    assert not page.all("form")


async def test_signing_out_ends_the_session(world):
    page = await open_page(world)
    form = page.one("form", method="post")
    response = await world.client.post(
        form.attributes["action"],
        form={"csrf": page.values("csrf")[0]},
        headers=world.session("auditor") | BROWSER,
    )

    assert response.status_code == 303
    again = await world.client.get(AUDIT, headers=world.session("auditor"))
    assert again.status_code == 401


async def test_two_presses_of_the_button_sign_out_once(world):
    page = await open_page(world)
    headers = world.session("auditor") | BROWSER
    form = {"csrf": page.values("csrf")[0]}
    await asyncio.gather(
        *(world.client.post("/sign-out", form=form, headers=headers) for _ in range(4))
    )

    assert len(await world.audit(event="signed_out")) == 1


@pytest.mark.parametrize("form", [{}, {"csrf": ""}, {"csrf": "0" * 64}], ids=str)
async def test_signing_out_needs_the_pages_own_token(world, form):
    """Another site can make a browser send a form, but cannot read the token on our page."""
    response = await world.client.post(
        "/sign-out", form=form, headers=world.session("auditor") | BROWSER
    )

    assert response.status_code == 403
    await open_page(world)


async def test_another_members_token_does_not_sign_out(world):
    page = await open_page(world, AUDIT, **world.session("admin"))
    response = await world.client.post(
        "/sign-out",
        form={"csrf": page.values("csrf")[0]},
        headers=world.session("auditor") | BROWSER,
    )

    assert response.status_code == 403


async def test_the_admin_token_has_no_session_to_sign_out_of(world):
    page = await open_page(world, AUDIT, **world.admin)

    assert not page.all("form", method="post")


# The API docs


@pytest.mark.asyncio(loop_scope="module")
async def test_the_docs_show_every_operation(shared_world, pages):
    document = await (await shared_world.client.get("/openapi.json")).get_json()
    page = pages["/docs"]

    shared = page.one("section", id="parameters").text + page.one("section", id="errors").text
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            shown = page.one("section", id=operation["operationId"]).text
            line = next(
                each.text
                for each in page.all("summary")
                if f"{method.upper()} {path} " in each.text
            )
            assert _plain(operation["summary"]) in line
            assert operation.get("x-capability", "") in line
            for parameter in operation["parameters"]:
                assert parameter["name"] in shown
                assert _plain(parameter["description"]) in shown + shared
            for status, response in operation["responses"].items():
                assert status in shown
                assert _plain(response["description"]) in shown
                named = re.findall(r"[\w-]+", shown + shared)
                assert set(response["headers"]) <= set(named)
            for text in _error_texts(operation):
                assert text in shown + shared
            schemes = {name for choice in operation["security"] for name in choice}
            assert ("x-service-admin-token" in shown) == ("adminToken" in schemes)
            assert ("authorization: Bearer" in shown) == bool({"bearer", "metricsToken"} & schemes)
    assert page.link("openapi.json") == "/openapi.json"


@pytest.mark.asyncio(loop_scope="module")
async def test_the_docs_say_once_what_many_endpoints_share(pages):
    html = pages["/docs"].html

    for text in ("storage is full: nothing was changed", "The organisation.", "Org not found"):
        assert html.count(text) == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_an_address_opens_the_endpoint_it_names(pages):
    """A browser opens the `details` around the target, not one that is the target."""
    html = pages["/docs"].html

    for name in re.findall(r'<a href="#(\w+)"><span class="method">', html):
        before = html[: html.index(f'<section class="operation" id="{name}"')]
        assert before.count("<details") > before.count("</details>")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("REVOKE  repository", ["revoke_repository_bindings", "revoke_repository_everywhere"]),
        ("policy:w", ["set_policy", "decide_exception"]),
        ("<script>", []),
    ],
)
async def test_the_docs_find_endpoints_without_a_script(shared_world, text, found):
    page = await open_page(shared_world, f"/docs?{urlencode({'q': text})}")

    names = re.findall(r'<a href="/docs#(\w+)">', page.html)
    assert set(found) <= set(names)
    assert len(names) < 10
    assert page.one("input", name="q").attributes["value"] == " ".join(text.split())


@pytest.mark.asyncio(loop_scope="module")
async def test_the_docs_show_a_request_body_with_example_and_fields(pages):
    page = pages["/docs"]
    shown = page.one("section", id="create_binding").text

    assert '"sub_pattern": "repo:acme/payments:ref:refs/heads/main"' in shown
    for name in binding_body():
        assert name in shown


@pytest.mark.asyncio(loop_scope="module")
async def test_the_docs_are_in_the_order_of_their_contents(pages):
    """Who reads on below an operation finds the next one of the same group."""
    html = pages["/docs"].html
    shown = re.findall(r'<section class="operation" id="(\w+)"', html)

    assert re.findall(r'<a href="#(\w+)"><span class="method">', html) == shown


@pytest.mark.asyncio(loop_scope="module")
async def test_the_docs_say_patterns_in_words(pages):
    """The one of instants has 400 characters: it is for programs, in openapi.json."""
    html = pages["/docs"].html

    assert "an instant in UTC with milliseconds" in html
    assert r"\d{4}" not in html
    assert max(map(len, map(unescape, re.findall(r"pattern <code>([^<]*)", html)))) <= 40


@pytest.mark.asyncio(loop_scope="module")
async def test_the_docs_hold_no_character_that_html_may_not(pages):
    """Patterns name control characters; a page that contains them is no valid HTML."""
    html = pages["/docs"].html

    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\ufffe\uffff]", html)


FIXED = pytest.mark.parametrize("path", ["/docs", "/openapi.json"])


@FIXED
async def test_what_never_changes_is_made_once(world, path, monkeypatch):
    """It took 32 ms of each request, of clients without any credential."""
    first = await world.client.get(path)
    monkeypatch.setattr(system, "openapi_document", None)
    again = await world.client.get(path)

    assert await again.get_data() == await first.get_data()
    assert again.headers["cache-control"] == "no-cache"


@FIXED
@pytest.mark.parametrize(
    ("coding", "decode"),
    [
        ("gzip", gzip.decompress),
        ("zstd", lambda packed: pa.input_stream(pa.py_buffer(packed), "zstd").read()),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_never_changes_is_sent_compressed(shared_world, path, coding, decode):
    """To those who ask for it, under an ETag of its own (RFC 9110, 8.8.3)."""
    plain = await shared_world.client.get(path)
    packed = await shared_world.client.get(path, headers={"accept-encoding": coding})

    assert packed.headers["content-encoding"] == coding
    assert "content-encoding" not in plain.headers
    assert decode(await packed.get_data()) == await plain.get_data()
    assert len(await packed.get_data()) < len(await plain.get_data()) / 5
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"


@FIXED
@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_client_has_is_not_sent_again(shared_world, path):
    known = (await shared_world.client.get(path)).headers["etag"]
    same = await shared_world.client.get(path, headers={"if-none-match": known})
    other = await shared_world.client.get(path, headers={"if-none-match": '"another"'})

    assert (same.status_code, await same.get_data()) == (304, b"")
    assert same.headers["etag"] == known
    assert other.status_code == 200


def _plain(text: str) -> str:
    return text.replace("`", "")


def _error_texts(operation: dict[str, Any]) -> Iterator[str]:
    for response in operation["responses"].values():
        for body in response.get("content", {}).values():
            for example in body.get("examples", {}).values():
                yield example["value"]["error"]


# The colour scheme


async def test_a_browser_keeps_the_scheme_it_was_set_to(world):
    """Without scripts, and without an account: by a cookie of its own."""
    owner = world.session("owner")
    before = await open_page(world, ORG, **owner)
    chosen = await world.client.get("/admin/ui/theme/dark?back=/admin/ui/orgs/acme/bindings?text=a")
    cookie = chosen.headers["set-cookie"].partition(";")[0]
    headers = {"cookie": f"{owner['cookie']}; {cookie}"}
    after = await open_page(world, ORG, **headers)
    cleared = await world.client.get("/admin/ui/theme/system", headers=headers)

    assert "data-theme" not in before.one("html").attributes
    assert chosen.headers["location"] == "/admin/ui/orgs/acme/bindings?text=a"
    assert after.one("html").attributes["data-theme"] == "dark"
    assert "Max-Age=0" in cleared.headers["set-cookie"]


async def test_another_site_does_not_choose_the_scheme(world):
    answer = await world.client.get(
        "/admin/ui/theme/dark", headers={"sec-fetch-site": "cross-site"}
    )

    assert answer.status_code == 303
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
async def test_the_way_back_is_a_page_of_ours(world, back):
    answer = await world.client.get("/admin/ui/theme/light", query_string={"back": back})

    assert answer.headers["location"] == "/"
