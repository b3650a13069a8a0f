"""Rules that hold on every page: confirmations, with scripts or without, and times."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest
import pytest_asyncio

from service.ci.verifier.codes import Detail
from service.orgs.api_keys import issue_api_key
from service.orgs.members import issue_cookie
from service.orgs.teams import set_team_admin
from service.store.tables import Passkey
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, World
from tests.service.pages.page import AUDIT, ORG, Page, open_page, send_form
from tests.service.trust.rejected.notes import rejection, remember

PROFILE = "/admin/ui/profile"
DESTRUCTIVE = re.compile(
    r"/(remove|remove-passkeys|revoke|delete|dismiss|end|end-others|sign-out)$"
)
"""How the address of a form ends that removes, revokes, deletes or ends something."""

OWN_SESSION = "/sign-out"
"""Ends the session that presses it, which can sign in again at once."""


async def fill(world: World) -> None:
    """Give the owner something to remove on each page."""
    async with world.services.store.write() as work:
        await issue_cookie(work, world.acme, world.members["owner"], BY_OPERATOR)
        await issue_api_key(work, world.acme, "proxy", None, BY_OPERATOR, scopes=PROXY_SCOPES)
        await set_team_admin(work, world.team, world.members["admin"], BY_OPERATOR, is_admin=True)
        for name in ("owner", "member"):
            passkey = Passkey(
                id=f"passkey-{name}",
                member_id=world.members[name].id,
                name=name,
                public_key=b"",
                transports=[],
                sign_count=0,
                use_count=0,
                added_at=work.now,
            )
            work.session.add(passkey)
    await issue_machine_tokens(world)
    await world.create()
    await world.create(origin="team_admin", team_id=world.team.id)
    await remember(world, rejection(world.acme.id, detail=Detail.BINDING_AMBIGUOUS))
    page = await open_page(world, f"{AUDIT}?last=24h", **world.session("owner"))
    await send_form(world, page, f"{AUDIT}/searches", name="Today")
    page = await open_page(world, f"{AUDIT}/sql", **world.session("owner"))
    await send_form(world, page, f"{AUDIT}/sql/save", name="One")
    page = await open_page(world, f"{ORG}/streams", **world.session("owner"))
    receiver = {"name": "SIEM", "kind": "webhook", "url": "https://127.0.0.1:1/rows"}
    await send_form(world, page, f"{ORG}/streams", **receiver)
    trial = f"{ORG}/alerts?name=Changes&query=event%3Doidc_binding_created"
    page = await open_page(world, trial, **world.session("owner"))
    await send_form(world, page, f"{ORG}/alerts")
    await world.create()
    await world.services.alerts.watch_due()


async def issue_machine_tokens(world: World) -> None:
    """Give the owner a machine token, and an auditor another one, which is newer."""
    path = "/api/v1/admin/orgs/acme/machine-tokens"
    for name in ("owner", "auditor"):
        body = {"name": "laptop", "member": world.members[name].id}
        answer = await world.client.post(path, headers=world.admin, json=body)
        assert answer.status_code == 201
        world.clock.advance(seconds=1)


def links_of(page: Page) -> Iterator[str]:
    """The pages that the links of `page` lead to; not files."""
    for link in page.all("a"):
        address = link.attributes["href"]
        is_ours = urlsplit(address).path.startswith((ORG, PROFILE))
        if is_ours and not urlsplit(address).path.endswith(("/export", "/receipt")):
            yield address.partition("#")[0]


def kind_of(address: str) -> tuple[str, frozenset[str]]:
    """Pages that differ only in the values of their filters are of one kind."""
    parts = urlsplit(address)
    return parts.path, frozenset(name for name, _ in parse_qsl(parts.query))


async def every_page(world: World) -> dict[str, Page]:
    """Every page that an owner's links lead to, one of each kind."""
    pages: dict[str, Page] = {}
    waiting, seen = [ORG, PROFILE], {kind_of(ORG), kind_of(PROFILE)}
    while waiting:
        address = waiting.pop()
        pages[address] = await open_page(world, address, **world.session("owner"))
        for link in links_of(pages[address]):
            if kind_of(link) not in seen:
                seen.add(kind_of(link))
                waiting.append(link)
    return pages


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pages(shared_world: World) -> dict[str, Page]:
    """Every page, with something on it."""
    await fill(shared_world)
    return await every_page(shared_world)


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_is_removed_at_once(shared_world: World, pages: dict[str, Page]) -> None:
    """A form that does so is folded away (macro `danger`), or has a page of its own to confirm on.

    Each such address of the app is met on some page: none is forgotten.
    """
    met = {action.partition("?")[0] for page in pages.values() for action in page.forms}
    addresses = {
        re.compile(re.sub(r"<[^>]+>", "[^/]+", rule.rule))
        for rule in shared_world.app.url_map.iter_rules()
        if "POST" in (rule.methods or ())
        and rule.rule.startswith("/admin/ui/")
        and DESTRUCTIVE.search(rule.rule)
    }

    at_once = {
        (address, action)
        for address, page in pages.items()
        for action in page.at_once
        if DESTRUCTIVE.search(action.partition("?")[0])
        and action != OWN_SESSION
        and urlsplit(address).path != action
    }

    assert at_once == set()
    unmet = [each.pattern for each in addresses if not any(map(each.fullmatch, met))]
    assert unmet == []
    assert len(addresses) >= 10


@pytest.mark.asyncio(loop_scope="module")
async def test_one_switch_governs_all_times(pages: dict[str, Page]) -> None:
    """Rows in one zone beside details or fields in another are misread."""
    times = 0
    for address, page in pages.items():
        shown = page.all("time")
        times += len(shown)
        governed = {"data-local", "data-age"}
        fixed = [time.text for time in shown if not governed & time.attributes.keys()]
        assert fixed == [], address
        zones = [one for one in page.all("span") if "data-zone" in one.attributes]
        assert bool(zones) >= bool(shown), address
        said = re.findall(r"\bUTC\b(?!: \d)", page.one("main").text)  # bars have tooltips
        in_frame = 1
        assert len(said) == len(zones) - in_frame, address

    assert times > 100
