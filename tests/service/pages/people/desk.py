"""What tests of these pages share: seeing one as a member, sending forms, and what that changed."""

from typing import Any

from service.orgs.members import add_member, issue_cookie
from tests.conftest import BY_OPERATOR, World
from tests.service.pages.page import ORG, OWN_PAGE, Page, send, shown

HOSTILE = """</td>"'><script>alert(1)</script>"""


async def get(world: World, page: str, who: str = "owner") -> Any:
    return await world.client.get(f"{ORG}/{page}", headers=world.session(who) | OWN_PAGE)


async def see(world: World, page: str, who: str = "owner") -> Page:
    return await shown(await get(world, page, who))


async def post(world: World, action: str, who: str = "owner", **fields: Any) -> Any:
    """The answer to a form that `who` made up, with what ties it to their session, if they can."""
    answer = await get(world, "members", who)
    forms = Page(await answer.get_data(as_text=True)).forms.values()
    hidden = {name: text for form in forms for name, text in form.items()}
    return await send(world, f"{ORG}/{action}", hidden | fields, who)


def leads_to(answer: Any) -> str:
    """Where a form that was done leads."""
    assert answer.status_code == 303
    return str(answer.headers["location"])


async def logged(world: World) -> list[tuple[str, str, str | None]]:
    """Event, actor and subject of each of acme's rows, newest first."""
    return [(row["event"], row["actor"], row["subject"]) for row in await world.audit()]


def actor(world: World, who: str) -> str:
    """How rows name the member called `who`."""
    return f"github:{world.members[who].id}"


def fault_of(page: Page, field: str) -> str:
    """What stands beside the field with this id, which must say that it is at fault."""
    (element,) = [one for one in page.elements if one.attributes.get("id") == field]
    assert "aria-invalid" in element.attributes, element
    return page.one("p", id=element.attributes["aria-describedby"]).text


def chosen(page: Page, select: str) -> list[str]:
    """What is chosen in the select with this id."""
    begin = page.elements.index(page.one("select", id=select))
    options = []
    for element in page.elements[begin + 1 :]:
        if element.tag != "option":
            break
        options.append(element)
    return [one.attributes["value"] for one in options if "selected" in one.attributes]


async def add_person(world: World, name: str, role: str, org: str = "acme") -> None:
    """One more member, with a session, called `name`."""
    async with world.services.store.write() as work:
        tenant = world.acme if org == "acme" else world.other
        member = await add_member(
            work, tenant, f"{name}@{org}.example", role, "github", BY_OPERATOR
        )
        world.members[name] = member
        world.cookies[name] = await issue_cookie(work, tenant, member, BY_OPERATOR)
