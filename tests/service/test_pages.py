"""The pages, as a browser without scripts receives them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from analytics.events import BlocklistHit, InstallAllowed
from analytics.rows import Stamp, VerdictSource, audit_row
from service.orgs.changes import issue_sign_in, set_tier
from service.settings import REPOSITORY
from service.store.journal import append
from tests.conftest import BY_OPERATOR, World, binding_body

AUDIT = "/admin/ui/orgs/acme/audit"
PAGES = (
    "/",
    "/sign-in",
    "/admin/ui/sign-in",
    "/sign-in?token=abc",
    "/docs",
    AUDIT,
    f"{AUDIT}?package=none",
)
HOSTILE = """</code></td>"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"""
BROWSER = {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}
VOID = {"meta", "link", "input", "br", "img", "hr"}


@dataclass
class Element:
    """One element: its name, attributes and the text within it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """A page's elements in document order. Fails on tags that do not close in turn."""

    html: str
    elements: list[Element] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Every `tag` with these attributes."""
        return [
            element
            for element in self.elements
            if element.tag == tag and attributes.items() <= element.attributes.items()
        ]

    def one(self, tag: str, **attributes: str) -> Element:
        """The only such element."""
        (element,) = self.all(tag, **attributes)
        return element

    def link(self, text: str) -> str:
        """Where the links with this text lead: all to one place."""
        (href,) = {link.attributes["href"] for link in self.all("a") if link.text.strip() == text}
        return href

    def values(self, name: str) -> list[str]:
        """What the fields called `name` would send."""
        return [field.attributes["value"] for field in self.all("input", name=name)]


async def open_page(world: World, path: str = AUDIT, **headers: str) -> Page:
    """The page at `path` for the auditor, or with other credentials."""
    if path.startswith("?"):
        path = AUDIT + path
    response = await world.client.get(path, headers=headers or world.session("auditor"))
    assert response.status_code == 200, await response.get_data(as_text=True)
    return Page(await response.get_data(as_text=True))


async def add_install(world: World, envelope: Any = None, **columns: str) -> None:
    """Record an install in acme whose row has these `columns`."""
    stamp = Stamp(actor="key_1", actor_source="api_key", verdict_source=VerdictSource.PROXY)
    row = audit_row(envelope or InstallAllowed(), stamp, world.clock.now)
    async with world.services.store.write() as work:
        await append(
            work.session,
            world.acme.id,
            [msgspec.structs.replace(row, **columns)],
            received_at=world.clock.now,
        )


async def issue_link(world: World, name: str) -> str:
    """A fresh sign-in token for the member called `name`."""
    async with world.services.store.write() as work:
        return await issue_sign_in(work, world.acme, world.members[name], BY_OPERATOR)


async def press_sign_in(world: World, token: str, headers: dict[str, str] = BROWSER) -> Any:
    """What pressing the button on the sign-in page answers."""
    page = await open_page(world, f"/sign-in?token={token}")
    form = page.one("form", method="post")
    fields = {"token": page.one("input", type="hidden", name="token").attributes["value"]}
    return await world.client.post(form.attributes["action"], form=fields, headers=headers)


# Every page


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_brings_no_script_and_no_style_of_its_own(world, path):
    """The content security policy allows our stylesheet and nothing else."""
    page = await open_page(world, path)

    assert not page.all("script")
    assert not page.all("style")
    for element in page.elements:
        assert not [name for name in element.attributes if name == "style" or name[:2] == "on"]
        for name in ("src", "href", "action"):
            assert not re.match(r"[a-z]+:|//", element.attributes.get(name, ""), re.IGNORECASE)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_can_be_used_without_seeing_it(world, path):
    """A language, a title, a heading, a way past the navigation, and a label for every field."""
    page = await open_page(world, path)

    assert page.one("html").attributes["lang"] == "en"
    assert page.one("title").text.strip()
    assert page.one("h1").text.strip()
    assert page.link("Skip to content") == f"#{page.one('main').attributes['id']}"
    labelled = {label.attributes["for"] for label in page.all("label")}
    fields = [
        *(field for field in page.all("input") if field.attributes["type"] != "hidden"),
        *page.all("select"),
    ]
    assert {field.attributes["id"] for field in fields} == labelled


@pytest.mark.parametrize("path", PAGES)
async def test_a_pages_ids_are_unique_and_its_anchors_lead_somewhere(world, path):
    """A reference to nothing is a dead link, or a hint that is never read out."""
    page = await open_page(world, path)
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


async def test_a_page_lets_the_browser_name_its_origin_to_us(world):
    """Under `no-referrer` browsers send `Origin: null` with forms, which we refuse (Fetch §3.1)."""
    for path in ("/sign-in?token=abc", AUDIT):
        response = await world.client.get(path, headers=world.session("owner"))
        assert response.headers["referrer-policy"] == "strict-origin"


@pytest.mark.parametrize("file", ["style.css", "icon.svg"])
async def test_what_pages_refer_to_is_served(world, file):
    """A page without its stylesheet is hard to read."""
    assert (await world.client.get(f"/static/{file}")).status_code == 200


async def test_every_text_stands_out_from_its_ground():
    """WCAG 2.2 AA in both colour schemes: 4.5 for text, 3 for what shows where a field is."""
    light, dark = _schemes((REPOSITORY / "templates/static/style.css").read_text())
    for colours in (light, light | dark):
        for ground in ("ground", "raised"):
            for text in ("text", "muted", "link"):
                assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
            for mark in ("edge", "focus"):
                assert _contrast(colours[mark], colours[ground]) >= 3, (mark, ground)
        for text, ground in (("go", "go-ground"), ("stop", "stop-ground"), ("on-press", "press")):
            assert _contrast(colours[text], colours[ground]) >= 4.5, text


def _schemes(css: str) -> Iterator[dict[str, str]]:
    for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL):
        yield dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))


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


async def test_home_says_how_to_get_in(world):
    """There is no password to try: whoever has no link must learn whom to ask, and for what."""
    page = await open_page(world, "/")

    assert "countersign session issue --org SLUG --member EMAIL" in page.one("pre").text
    assert page.link("API docs") == "/docs"


# Signing in and out


async def test_the_button_signs_in(world):
    """A link leads to a button, the button to the organisation's audit log."""
    response = await press_sign_in(world, await issue_link(world, "auditor"))

    assert response.status_code == 303
    assert response.headers["location"] == AUDIT
    cookie = response.headers["set-cookie"].partition(";")[0]
    page = await open_page(world, AUDIT, cookie=cookie)
    assert "link_sign_in_succeeded" in page.one("tbody").text


async def test_looking_at_a_link_does_not_use_it_up(world):
    """Mail scanners and previews open links; the person comes after them."""
    token = await issue_link(world, "auditor")
    for _ in range(3):
        await open_page(world, f"/sign-in?token={token}")

    assert (await press_sign_in(world, token)).status_code == 303


async def test_a_link_works_once(world):
    """Whoever finds a used link in a log or a history gets nowhere with it."""
    token = await issue_link(world, "auditor")
    await press_sign_in(world, token)
    response = await press_sign_in(world, token)

    assert response.status_code == 401
    assert "set-cookie" not in response.headers


async def test_a_link_is_refused_once_it_is_old(world):
    """A link lives ten minutes."""
    token = await issue_link(world, "auditor")
    world.clock.advance(minutes=10)

    assert (await press_sign_in(world, token)).status_code == 401


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "null"}, {"origin": "https://evil.example"}], ids=str
)
async def test_another_sites_button_does_not_sign_in(world, headers):
    """Otherwise a page could sign its visitor in as somebody else, and watch what they do."""
    token = await issue_link(world, "auditor")

    assert (await press_sign_in(world, token, headers)).status_code == 403
    assert (await press_sign_in(world, token)).status_code == 303


async def test_a_link_without_its_token_says_that_it_is_incomplete(world):
    """Mail programs break long links; a button that cannot work helps nobody."""
    page = await open_page(world, "/sign-in")

    assert "incomplete" in page.one("main").text
    assert not page.all("form")


async def test_signing_out_ends_the_session(world):
    """The form on the page carries all it takes."""
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


@pytest.mark.parametrize("form", [{}, {"csrf": ""}, {"csrf": "0" * 64}], ids=str)
async def test_signing_out_needs_the_pages_own_token(world, form):
    """Another site can make a browser send a form, but cannot read the token on our page."""
    response = await world.client.post(
        "/sign-out", form=form, headers=world.session("auditor") | BROWSER
    )

    assert response.status_code == 403
    await open_page(world)


async def test_another_members_token_does_not_sign_out(world):
    """A token belongs to one session."""
    page = await open_page(world, AUDIT, **world.session("admin"))
    response = await world.client.post(
        "/sign-out",
        form={"csrf": page.values("csrf")[0]},
        headers=world.session("auditor") | BROWSER,
    )

    assert response.status_code == 403


async def test_the_admin_token_has_no_session_to_sign_out_of(world):
    """A button that can only fail is not shown."""
    page = await open_page(world, AUDIT, **world.admin)

    assert not page.all("form", method="post")


# The audit page


async def test_a_row_shows_what_happened_and_all_there_is_to_know(world):
    """The columns answer at a glance; the details hold everything the API would say."""
    await world.create()
    (entry, *_) = await world.audit(event="oidc_binding_created")
    page = await open_page(world, "?event=oidc_binding_created")
    row = page.one("tbody").text

    for column, value in entry.items():
        if isinstance(value, str) and column not in {"created_at", "received_at", "tenant_id"}:
            assert value in row, column
    assert '"sub_pattern": "' + binding_body()["sub_pattern"] + '"' in row


async def test_times_are_utc_and_say_so(world):
    """Two people in two places must read the same instant."""
    page = await open_page(world)
    (entry, *_) = await world.audit()

    assert "UTC" in page.all("th", scope="col")[0].text
    time = page.all("time", datetime=entry["created_at"])[1]
    assert time.text == "2026-03-04 12:00:00.123456 UTC"


async def test_the_log_is_a_table_with_headers(world):
    """A screen reader reads each cell with its column and its row."""
    page = await open_page(world)

    assert page.one("caption").text
    assert len(page.all("th", scope="col")) == 7
    assert len(page.all("th", scope="row")) == len(await world.audit())


async def test_a_block_is_told_by_word_and_sign_not_by_colour_alone(world):
    """Some readers do not tell red from green."""
    await add_install(world, BlocklistHit(rule_id="MAL-1", source="osv"), package_name="left-pad")
    await add_install(world, package_name="lodash")
    page = await open_page(world)

    assert "✕ BLOCKED" in page.one("tr", **{"class": "blocked"}).text
    assert "✓ ALLOWED" in page.one("tbody").text


@pytest.mark.parametrize(
    "column",
    ["package_name", "version", "actor", "subject", "source_ip", "decision", "decision_reason"],
)
async def test_a_hostile_value_is_text(world, column):
    """Package names and subjects come from outside: they are shown, never obeyed."""
    await add_install(world, **{column: HOSTILE})
    page = await open_page(world)

    assert HOSTILE in page.one("tbody").text
    assert not page.all("script")
    assert not page.all("img")


async def test_a_hostile_payload_is_text(world):
    """What is shown as JSON is escaped for HTML all the same."""
    await world.create(sub_pattern="repo:<script>alert('1')</script>")
    page = await open_page(world)

    assert "\"repo:<script>alert('1')</script>\"" in page.one("tbody").text
    assert not page.all("script")


@pytest.mark.parametrize("name", ["package", "subject", "decision", "version"])
async def test_a_hostile_query_is_text(world, name):
    """A link can put anything into the form; it stays a value."""
    response = await world.client.get(
        AUDIT, headers=world.session("auditor"), query_string={name: HOSTILE}
    )
    page = Page(await response.get_data(as_text=True))

    assert HOSTILE in [*page.values(name), *(option.text for option in page.all("option"))]
    assert not page.all("script")


async def test_filters_stay_in_the_form_and_go_along_with_exports(world):
    """What is shown, what the form says and what an export takes are one query."""
    given = {
        "since": "2026-03-01",
        "until": "2026-03-05T00:00:00Z",
        "event": "install_allowed",
        "package": "@acme/*",
        "actor": "!key_2",
        "subject": "repo:acme/a b&c=d",
    }
    response = await world.client.get(
        AUDIT, headers=world.session("auditor"), query_string={**given, "decision": "BLOCKED"}
    )
    page = Page(await response.get_data(as_text=True))

    assert {name: page.values(name)[0] for name in given} == given
    assert page.one("option", selected="").text == "BLOCKED"
    assert page.link("Clear") == AUDIT
    for label in ("CSV", "JSON", "NDJSON", "Parquet"):
        export = await world.client.get(page.link(label), headers=world.session("auditor"))
        assert export.status_code == 200
        await export.get_data()
    recorded = (await world.audit(event="audit_exported"))[0]["payload"]["filters"]
    assert recorded == {name: [value] for name, value in (given | {"decision": "BLOCKED"}).items()}


async def test_what_the_form_has_no_field_for_is_said_and_kept(world):
    """A form that forgets half of a query shows rows nobody asked for."""
    page = await open_page(world, "?event=org_created&event=team_created&order=asc&actor=system:*")

    assert page.values("event") == ["org_created", "team_created"]
    assert page.values("order") == ["asc"]
    assert "order=asc" in page.one("form", method="get").text
    assert "oldest first" in page.one("caption").text


async def test_empty_fields_filter_nothing(world):
    """A form sends its empty fields, too."""
    page = await open_page(world, "?since=&until=&event=&package=&decision=&actor=&subject=")

    assert page.all("tr")


async def test_older_rows_are_a_link_away_and_so_is_the_way_back(world):
    """Every row is reached once, by links alone, with the filters kept."""
    shown = []
    page = await open_page(world, "?limit=2&actor=system:*")
    while True:
        shown += [row.text for row in page.all("summary")]
        assert len(page.all("summary")) <= 2
        older = page.all("a", rel="next")
        if not older:
            break
        page = await open_page(world, older[0].attributes["href"])
    everything = await world.audit(actor="system:*")

    assert len(shown) == len(set(shown)) == len(everything)
    first = await open_page(world, page.link("Newest"))
    assert everything[0]["id"] in first.all("summary")[0].text


@pytest.mark.parametrize("value", ["!", "*", "left*", "!left-pad", "a\\*b\\", "a b&c=d/é+%"])
async def test_a_row_links_to_the_rows_with_the_same_value(world, value):
    """Characters that mean something in a filter stand for themselves in such a link."""
    await add_install(world, package_name=value)
    await add_install(world, package_name="left-pad")
    await add_install(world, package_name="leftover")
    page = await open_page(world, "?event=install_allowed")
    links = [link.attributes["href"] for link in page.all("a") if link.text == "package"]
    names = [entry["packageName"] for entry in await world.audit(event="install_allowed")]
    narrowed = await open_page(world, links[names.index(value)])

    assert [name.text for name in narrowed.all("bdi")] == [value]


async def test_no_matching_row_says_what_to_do(world):
    """An empty answer must not be a dead end."""
    page = await open_page(world, "?package=none")

    assert not page.all("table")
    assert page.link("clear the filters") == AUDIT


async def test_the_page_says_how_far_back_it_looks(world):
    """Rows past retention are not shown; without a word that would look like there were none."""
    page = await open_page(world, "?package=none")
    floor = page.one("time", datetime="2025-03-04T12:00:00.123456+00:00")

    assert floor.text == "2025-03-04 12:00:00 UTC"


async def test_without_a_limit_to_retention_the_page_names_none(world):
    """The enterprise tier keeps everything."""
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        await set_tier(work, acme, "enterprise", BY_OPERATOR)
    page = await open_page(world, "?package=none")

    assert "retention" not in page.one("main").text


# The API docs


async def test_the_docs_show_every_operation(world):
    """What the OpenAPI document says, a person can read: nothing is left out."""
    document = await (await world.client.get("/openapi.json")).get_json()
    page = await open_page(world, "/docs")

    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            shown = page.one("section", id=operation["operationId"]).text
            assert f"{method.upper()} {path}" in shown
            assert _plain(operation["summary"]) in shown
            for parameter in operation["parameters"]:
                assert parameter["name"] in shown
                assert _plain(parameter["description"]) in shown
            for status, response in operation["responses"].items():
                assert status in shown
                assert _plain(response["description"]) in shown
                assert set(response["headers"]) <= set(re.findall(r"[\w-]+", shown))
            for text in _error_texts(operation):
                assert text in shown
            assert ("x-service-admin-token" in shown) == ("security" in operation)
    assert page.link("openapi.json") == "/openapi.json"


async def test_the_docs_show_a_request_body_with_example_and_fields(world):
    """Enough to write the first request without looking anywhere else."""
    page = await open_page(world, "/docs")
    shown = page.one("section", id="bindings_create").text

    assert '"sub_pattern": "repo:acme/payments:ref:refs/heads/main"' in shown
    for name in binding_body():
        assert name in shown


async def test_the_docs_hold_no_character_that_html_may_not(world):
    """Patterns name control characters; a page that contains them is no valid HTML."""
    html = (await open_page(world, "/docs")).html

    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\ufffe\uffff]", html)


def _plain(text: str) -> str:
    return text.replace("`", "")


def _error_texts(operation: dict[str, Any]) -> Iterator[str]:
    for response in operation["responses"].values():
        for body in response.get("content", {}).values():
            for example in body.get("examples", {}).values():
                yield example["value"]["error"]
