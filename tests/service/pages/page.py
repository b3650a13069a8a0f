"""A page as a browser without scripts receives it, taken apart."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from analytics.model.envelopes import InstallAllowed
from analytics.model.rows import AuditContext, VerdictSource, audit_row
from service.audit.tenant_log import TenantLog
from service.store.journal import append
from tests.conftest import World
from tests.goldens.forms import form_of_button

ORG = "/admin/ui/orgs/acme"
AUDIT = f"{ORG}/audit"
SCRIPTS = ["/static/times.js", "/static/find.js"]
"""Those of every page of an organisation."""
AUDIT_SCRIPTS = [
    *SCRIPTS,
    *(f"/static/{name}.js" for name in ("live", "histogram", "values", "rows")),
]
OWN_PAGE = {
    "origin": "http://localhost:8080",
    "sec-fetch-site": "same-origin",
    "accept": "text/html,application/xhtml+xml,*/*;q=0.8",
}
"""What a browser says of itself when it sends a form that is on one of our pages."""

FORM_TYPE = "application/x-www-form-urlencoded"
VOID = {"meta", "link", "input", "br", "img", "hr", "wbr"}


@dataclass
class Element:
    """One element: its name, attributes and the text within it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """A page's elements in document order. Fails on tags that do not close in turn.

    An age is read as the instant in its title, to the minute.
    """

    html: str
    elements: list[Element] = field(default_factory=list)
    forms: dict[str, dict[str, str]] = field(default_factory=dict)
    """What each form that is posted sends along unseen, by where it goes."""
    at_once: set[str] = field(default_factory=set)
    """Where those go that are sent without opening a confirmation first."""
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
        if tag == "form" and element.attributes.get("method") == "post":
            self.forms[element.attributes["action"]] = {}
            if not any("danger" in one.attributes.get("class", "").split() for one in self._open):
                self.at_once.add(element.attributes["action"])
        if tag == "input" and element.attributes.get("type") == "hidden":
            self._note_hidden(element.attributes)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1].attributes.get("class") == "face":
            return  # initials, for the eye alone
        if self._open and "data-age" in self._open[-1].attributes:
            data = self._open[-1].attributes["title"][: len("2026-03-04 12:00")]
        for element in self._open:
            element.text += data

    def _note_hidden(self, attributes: dict[str, str]) -> None:
        for form in (one for one in self._open if one.tag == "form"):
            if form.attributes.get("method") == "post":
                self.forms[form.attributes["action"]][attributes["name"]] = attributes["value"]

    def all(self, tag: str, **attributes: str) -> list[Element]:
        return [
            element
            for element in self.elements
            if element.tag == tag and attributes.items() <= element.attributes.items()
        ]

    def one(self, tag: str, **attributes: str) -> Element:
        (element,) = self.all(tag, **attributes)
        return element

    @property
    def scripts(self) -> list[str]:
        """Where the page's scripts come from; it has none of its own."""
        assert not any(one.text for one in self.all("script"))
        return [one.attributes["src"] for one in self.all("script")]

    @property
    def log(self) -> Element:
        return self.one("table", role="table")

    @property
    def chips(self) -> list[str]:
        """The active filters, in words."""
        return [
            link.text.removeprefix("Remove filter: ").removesuffix("✕")
            for link in self.all("a", **{"class": "chip"})
        ]

    @property
    def row_ids(self) -> list[str]:
        """The ids of the audit rows."""
        rows = self.all("tr", role="row")
        return [row.attributes["id"] for row in rows if "id" in row.attributes]

    @property
    def live(self) -> str:
        """Where the page is sent its new rows from."""
        (button,) = [one for one in self.all("button") if "data-live" in one.attributes]
        return button.attributes["data-live"]

    @property
    def exports(self) -> str:
        """The label of the export menu."""
        (menu,) = [one for one in self.all("summary") if one.text.strip().startswith("Export")]
        return menu.text.strip()

    @property
    def chart(self) -> Element:
        """The drawing of rows over time."""
        return self.one("svg", **{"class": "histogram"})

    def link(self, text: str) -> str:
        """Where the links with this text lead: all to one place."""
        (href,) = {link.attributes["href"] for link in self.all("a") if link.text.strip() == text}
        return href

    def facet(self, text: str) -> str:
        """Where the value of a facet leads."""
        (href,) = {
            one.attributes["href"] for one in self.all("a", **{"class": "what"}) if one.text == text
        }
        return href

    def values(self, name: str) -> list[str]:
        """What the fields called `name` would send."""
        return [field.attributes["value"] for field in self.all("input", name=name)]


async def open_page(world: World, path: str = AUDIT, **headers: str) -> Page:
    """The page at `path` for the auditor, or with other credentials."""
    if path.startswith("?"):
        path = AUDIT + path
    sent = headers or world.session("auditor")
    return await shown(await world.client.get(path, headers=sent, follow_redirects=True))


async def shown(answer: Any, status: int = 200) -> Page:
    """The page that was answered, with this status."""
    text = await answer.get_data(as_text=True)
    assert answer.status_code == status, text
    return Page(text)


async def open_details(world: World, page: Page, number: int = 0, who: str = "auditor") -> Page:
    """What a script puts below a row of the audit page, which must come from there as well."""
    links = [link.attributes["data-details"] for link in page.all("a", **{"class": "open"})]
    return await open_page(world, links[number], **world.session(who))


async def open_row(world: World, page: Page, number: int = 0, who: str = "auditor") -> Page:
    links = [link.attributes["href"] for link in page.all("a", **{"class": "open"})]
    return await open_page(world, links[number], **world.session(who))


async def send_form(
    world: World, page: Page, action: str, who: str = "owner", **fields: Any
) -> Any:
    """The answer to the form of `page` that goes to `action`, filled in and sent by a browser."""
    return await send(world, action, page.forms[action] | fields, who)


async def send(world: World, action: str, fields: dict[str, Any], who: str = "owner") -> Any:
    """The answer to a form with these fields; a list is a field that is there more than once."""
    return await world.client.post(
        action,
        data=urlencode(fields, doseq=True),
        headers=world.session(who) | OWN_PAGE | {"content-type": FORM_TYPE},
    )


async def press(world: World, html: str, label: str, who: str = "owner", **typed: str) -> Any:
    """The answer after pressing the one button that is called `label`, with `typed` filled in."""
    form = form_of_button(html, label)
    assert set(typed) <= set(form.names)
    fields: dict[str, list[str]] = {}
    for name, value in form.untouched():
        fields.setdefault(name, []).append(typed.get(name, value))
    return await send(world, form.action, fields, who)


def fails(monkeypatch: pytest.MonkeyPatch, question: str, error: Exception) -> None:
    """Every such question to the lake ends with `error`."""

    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(TenantLog, question, fail)


async def add_install(
    world: World, envelope: Any = None, slug: str = "acme", **columns: str
) -> None:
    """Record an install in acme, or another organisation, whose row has these `columns`."""
    audit_context = AuditContext(
        actor="key_1", actor_source="api_key", verdict_source=VerdictSource.PROXY
    )
    row = audit_row(envelope or InstallAllowed(), audit_context, world.clock.now)
    async with world.services.store.write() as work:
        await append(
            work.session,
            getattr(world, slug).id,
            [msgspec.structs.replace(row, **columns)],
            now=world.clock.now,
        )
