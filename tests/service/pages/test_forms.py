"""Every form of the pages: what all of them have in common, whatever they change.

The forms are those that an owner meets on the pages, so a new one is tested unnamed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from sqlalchemy import select

from analytics.model.ecosystems import Ecosystem
from analytics.model.rows import VerdictSource
from service.access.callers import RequestOrigin
from service.access.device_sign_in import request_sign_in
from service.access.refusals import CROSS_SITE, FOREIGN_FORM
from service.packages.ecosystem import Release
from service.packages.policy.exceptions import request_exception
from service.store.tables.base import Base
from tests.conftest import BY_OPERATOR, World
from tests.goldens.forms import Form, forms_of
from tests.goldens.pages import TYPED
from tests.service.pages.page import FORM_TYPE, ORG, OWN_PAGE, Page, open_page
from tests.service.pages.test_every_page import every_page, fill

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROFILE: Final = "/admin/ui/profile"
SIGNED_OUT: Final = frozenset({"/sign-in", "/admin/ui/sign-in/choose"})
"""The forms that need no session, which tests of signing in send."""

STEPS: Final = ("/begin", "/finish")
"""How the addresses end that a script sends JSON to."""

ANSWERED: Final = (
    f"{ORG}/audit/sql",
    f"{ORG}/policy/preview",
    f"{ORG}/bindings/explain",
    "/device",
)
"""Where forms go that change nothing: their answer is a page with a form."""

NOT_REPEATED: Final = frozenset({f"{ORG}/bindings/explain", "/device"})
"""Where secrets go: a token, or the code of a sign-in."""

ERROR_PAGES: Final = frozenset({"/admin/ui/orgs/<slug>/audit/searches", "/device/decision"})
"""Forms that are not shown again, as they have one short field or none."""

DESTRUCTIVE: Final = ("dismiss", "replace", "revoke", "end", "sign-out", "remove", "end-others")
"""The last part of addresses of forms that end something, in an order in which all of them work."""

TAKEN: Final = frozenset(
    f"/admin/ui/orgs/<slug>/bindings/{end}" for end in ("revoke", "<binding:binding_id>/replace")
)
"""Forms about a binding that another form of the same test ends."""

MARKUP: Final = """</td>"'><script>alert(1)</script>&amp;{{7**9}}"""
TEXTS: Final = (MARKUP, "x" * 5_000, "nul\0", "\u202etfel", "a\r\nb")


@dataclass(frozen=True, slots=True)
class Met:
    """A form, the page that has it, and the rule that its address matches."""

    page: str
    rule: str
    form: Form

    @property
    def has_text(self) -> bool:
        """True if a person types into it."""
        kinds = {"hidden", "select", "checkbox", "radio"}
        return any(field.kind not in kinds for field in self.form.fields)

    @property
    def order(self) -> int:
        """Forms that end what others are about come later."""
        end = self.form.action.rpartition("/")[2]
        if self.rule == "/sign-out":
            return len(DESTRUCTIVE) + 1
        return DESTRUCTIVE.index(end) + 1 if end in DESTRUCTIVE else 0

    def with_text(self, text: str) -> list[tuple[str, str]]:
        """What it sends with `text` typed into each of them."""
        return self.form.filled(dict.fromkeys(self.form.names, text))


async def send(
    world: World,
    action: str,
    fields: Sequence[tuple[str, str]],
    who: str = "owner",
    **headers: str,
) -> Any:
    """The answer to a form that a browser sends."""
    headers = world.session(who) | OWN_PAGE | {"content-type": FORM_TYPE} | headers
    return await world.client.post(action, data=urlencode(fields), headers=headers)


async def page_of(answer: Any) -> Page:
    """The page that is the answer; it has no script of its own, and closes its tags."""
    page = Page(await answer.get_data(as_text=True))
    assert all(script.startswith("/static/") for script in page.scripts)
    return page


async def token_of(world: World, who: str) -> str:
    """What ties forms to this member's session."""
    page = await open_page(world, PROFILE, **world.session(who))
    return page.forms["/sign-out"]["csrf"]


async def state_of(world: World) -> dict[str, list[tuple[Any, ...]]]:
    """What is stored, except for when sessions were used."""
    async with world.services.store.read() as session:
        return {
            table.name: [tuple(row) for row in await session.execute(select(table))]
            for table in Base.metadata.sorted_tables
            if table.name != "sessions"
        }


def rule_of(world: World, address: str) -> str:
    adapter = world.app.url_map.bind("")
    rule, _ = adapter.match(address.partition("?")[0], "POST", return_rule=True)
    return str(rule.rule)


def forms_on(world: World, address: str, html: str) -> Iterator[Met]:
    for form in forms_of(html):
        yield Met(address, rule_of(world, form.action), form)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forms(shared_world: World) -> list[Met]:
    return await forms_met(shared_world)


async def forms_met(world: World) -> list[Met]:
    """One form of each address and set of fields, among those that an owner meets."""
    await fill(world)
    async with world.services.store.write() as work:
        origin = RequestOrigin(VerdictSource.ADMIN_API)
        codes = await request_sign_in(work, world.services.settings.secret_key, origin)
        release = Release(Ecosystem.NPM, "left-pad", "1.3.0")
        await request_exception(work, world.acme, release, "needed", BY_OPERATOR)
    pages = {address: page.html for address, page in (await every_page(world)).items()}
    pages["/device"] = (await open_page(world, "/device", **world.session("owner"))).html
    met = [form for address, html in pages.items() for form in forms_on(world, address, html)]
    for form in list(met):
        action = form.form.action
        if action in ANSWERED:
            answer = await send(world, action, form.form.filled(TYPED | {"code": codes.user_code}))
            met += forms_on(world, action, await answer.get_data(as_text=True))
    kinds: dict[tuple[str, tuple[str, ...]], Met] = {}
    for form in met:
        kinds.setdefault((form.rule, form.form.names), form)
    return sorted(kinds.values(), key=lambda form: form.order)


async def test_every_form_is_met(shared_world: World, forms: list[Met]) -> None:
    rules = {
        rule.rule
        for rule in shared_world.app.url_map.iter_rules()
        if "POST" in (rule.methods or ())
        and not rule.rule.startswith(("/api/", "/proxy/"))
        and not rule.rule.endswith(STEPS)
    }

    assert rules - {form.rule for form in forms} == SIGNED_OUT


@pytest.mark.parametrize(
    ("token", "site", "text"),
    [
        (None, "same-origin", FOREIGN_FORM.text),
        ("of the auditor", "same-origin", FOREIGN_FORM.text),
        ("own", "cross-site", CROSS_SITE.text),
    ],
    ids=["no token", "another session", "another site"],
)
async def test_a_form_of_another_session_or_site_changes_nothing(
    shared_world: World, forms: list[Met], token: str | None, site: str, text: str
) -> None:
    theirs = await token_of(shared_world, "auditor")
    before = await state_of(shared_world)
    accepted = {}
    for form in forms:
        fields = dict(form.form.untouched())
        if token is None:
            del fields["csrf"]
        elif token != "own":
            fields["csrf"] = theirs
        answer = await send(
            shared_world, form.form.action, list(fields.items()), **{"sec-fetch-site": site}
        )
        alert = (await page_of(answer)).one("div", role="alert").text
        if answer.status_code != 403 or text[1:] not in alert:
            accepted[form.rule] = (answer.status_code, alert)

    assert accepted == {}
    assert await state_of(shared_world) == before


async def test_who_lacks_the_right_is_refused(shared_world: World, forms: list[Met]) -> None:
    """With the token of their own session: forms that every member may send are few."""
    token = await token_of(shared_world, "member")
    before = await state_of(shared_world)
    accepted = set()
    for form in forms:
        if form.rule.startswith("/admin/ui/orgs/"):
            fields = dict(form.form.untouched()) | {"csrf": token}
            answer = await send(shared_world, form.form.action, list(fields.items()), "member")
            if answer.status_code != 403:
                accepted.add(form.rule)

    assert accepted == {"/admin/ui/orgs/<slug>/policy/exceptions/new"}
    assert await state_of(shared_world) == before


async def test_what_belongs_to_another_organisation_is_not_found(
    shared_world: World, forms: list[Met]
) -> None:
    """Neither by its own path nor by that of one's own organisation."""
    token = await token_of(shared_world, "stranger")
    before = await state_of(shared_world)
    reached = {}
    for form in forms:
        fields = list((dict(form.form.untouched()) | {"csrf": token}).items())
        if form.rule.startswith("/admin/ui/orgs/"):
            answer = await send(shared_world, form.form.action, fields, "stranger")
            if answer.status_code != 403:
                reached[form.form.action] = answer.status_code
        if form.rule.count("<") > 1 and "<role>" not in form.rule:
            action = form.form.action.replace("/orgs/acme/", "/orgs/other/")
            answer = await send(shared_world, action, fields, "stranger")
            expected = 409 if "once" in form.form.names else 404
            if answer.status_code != expected:
                reached[action] = answer.status_code

    assert reached == {}
    assert await state_of(shared_world) == before


async def test_an_empty_form_is_shown_again_with_its_errors(
    shared_world: World, forms: list[Met]
) -> None:
    """Each error is at a field, which names it, or stands above the page."""
    unexplained = {}
    for form in forms:
        if not form.has_text:
            continue
        answer = await send(shared_world, form.form.action, form.form.emptied())
        if answer.status_code in {200, 303}:
            continue  # all fields are optional
        page = await page_of(answer)
        faulty = [each for each in page.elements if "aria-invalid" in each.attributes]
        notes = [page.one("p", id=each.attributes["aria-describedby"]).text for each in faulty]
        is_shown = form.form.action in page.forms
        if not all(notes) or not (faulty or page.all("div", role="alert")):
            unexplained[form.rule] = notes
        if is_shown is (form.rule in ERROR_PAGES):
            unexplained[form.rule] = [f"shown again: {is_shown}"]

    assert unexplained == {}


@pytest.mark.parametrize("text", TEXTS, ids=["markup", "long", "nul", "direction", "lines"])
async def test_typed_text_is_text_and_stays(
    shared_world: World, forms: list[Met], text: str
) -> None:
    """Where it is refused it stands in its field again; where it is taken it is read as it is."""
    lost = {}
    for form in forms:
        if not form.has_text:
            continue
        answer = await send(shared_world, form.form.action, form.with_text(text))
        if answer.status_code == 303:
            address = answer.headers["location"].partition("#")[0]
            answer = await shared_world.client.get(address, headers=shared_world.session("owner"))
            assert answer.status_code == 200, form.rule
            await page_of(answer)
            continue
        page = await page_of(answer)
        assert answer.status_code in {200, 400, 404, 409}, form.rule
        if answer.status_code == 200 or form.form.action in NOT_REPEATED or "\0" in text:
            continue  # no document can hold NUL
        if form.form.action in page.forms:
            shown = [each for each in forms_of(page.html) if each.action == form.form.action]
            values = {pair for each in shown for pair in each.untouched()}
            hidden = {field.name for field in form.form.fields if field.kind == "hidden"}
            typed = [pair for pair in form.with_text(text) if pair[0] not in hidden]
            missing = [pair for pair in typed if pair not in values]
            if missing:
                lost[form.rule] = missing

    assert lost == {}


@pytest.mark.asyncio(loop_scope="function")
async def test_a_form_that_is_sent_is_confirmed(world: World) -> None:
    """By the page that it leads to, or by its answer if that is shown only once."""
    forms = await forms_met(world)
    unconfirmed = {}
    done = set(TAKEN)
    for number, form in enumerate(forms):
        if form.rule in done or form.form.action in ANSWERED:
            continue
        done.add(form.rule)
        fields = dict(form.form.filled(TYPED | {"member": "auditor@acme.example"}))
        if "sub_pattern" in fields:
            fields["sub_pattern"] = f"repo:acme/{number}"
        if form.rule.endswith("/sql/save"):  # beside the saved search
            fields["name"] = "statement"
        if "once" in fields:  # forms of one page share it
            page = await open_page(world, form.page, **world.session("owner"))
            fields["once"] = page.forms[form.form.action]["once"]
        answer = await send(world, form.form.action, list(fields.items()))
        if answer.status_code == 303:
            address = answer.headers["location"].partition("#")[0]
            answer = await world.client.get(address, headers=world.session("owner"))
        page = await page_of(answer)
        if answer.status_code != 200 or page.all("div", role="alert"):
            unconfirmed[form.rule] = (answer.status_code, page.one("main").text[:200])

    assert unconfirmed == {}
