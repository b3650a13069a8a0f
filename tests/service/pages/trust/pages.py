"""What the tests of the pages of trust share: their addresses, and bindings to look at."""

from service.orgs.teams import create_team
from service.store.tables import Team
from tests.conftest import BY_OPERATOR, World
from tests.service.pages.page import ORG, Page, open_page

BINDINGS = f"{ORG}/bindings"
NEW = f"{BINDINGS}/new"
EXPLAIN = f"{BINDINGS}/explain"
REJECTED = f"{ORG}/rejected"
SUB = "repo:acme/payments:ref:refs/heads/main"
HOSTILE = """</code></td>"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"""
HOSTILE_SUB = HOSTILE.replace(" ", "_")


async def see(world: World, path: str = BINDINGS, who: str = "owner") -> Page:
    return await open_page(world, path, **world.session(who))


async def add_team(world: World, name: str) -> Team:
    async with world.services.store.write() as work:
        acme = await work.session.merge(world.acme)
        return await create_team(work, acme, name, BY_OPERATOR)


def subjects_of(page: Page) -> list[str]:
    """The subjects of the page's list, which shows their labels."""
    jobs = [one for one in page.all("bdi") if one.attributes.get("title", "").startswith("repo:")]
    return [job.attributes["title"] for job in jobs]


def cells(page: Page, label: str) -> list[str]:
    """The texts of one column of the page's table, white space folded."""
    found = [one for one in page.elements if one.attributes.get("data-label") == label]
    return [" ".join(one.text.split()) for one in found]
