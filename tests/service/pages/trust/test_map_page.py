"""The map of trust as a page: what it draws, for whom, and the same as a table."""

from itertools import pairwise

from service.pages.trust.map_page import ROW, draw_map
from service.trust.trust_map import Installs, MapBinding
from tests.conftest import World, grant
from tests.service.pages.page import ORG, Page, add_install, open_page
from tests.service.pages.trust.pages import HOSTILE_SUB

MAP = f"{ORG}/trust/map"


async def see(world: World, who: str = "owner") -> Page:
    return await open_page(world, MAP, **world.session(who))


def texts(page: Page) -> str:
    """What the drawing says."""
    return " ".join(one.text for one in page.all("text"))


def binding(number: int, repository: str, allowed: int, **more: str | None) -> MapBinding:
    facts = {"project": None, "team": None, "last_used_at": "2026-03-01T00:00:00.000000Z"} | more
    return MapBinding(
        id=f"obind_{number}",
        repository=repository,
        repository_id="1",
        job="main",
        sub_pattern=f"repo:{repository}:ref:refs/heads/main",
        event_names=[],
        installs=Installs(allowed, 0),
        **facts,
    )


async def test_it_shows_what_each_binding_may_act_for_and_did(world):
    used = await world.bind(sub_pattern="repo:acme/app:ref:refs/heads/main", event_names=[])
    await world.bind(
        sub_pattern="repo:acme/app:environment:prod",
        project_id=world.project.id,
        event_names=["push"],
    )
    for _ in range(3):
        await add_install(world, oidc_binding_id=used)
    await add_install(world)
    page = await see(world)

    assert "1 repository has 2 active bindings" in " ".join(page.one("main").text.split())
    assert "1 installs came without any binding" in page.one("main").text
    for said in ("acme/app", "main any event", "prod push never used", "all of acme", "3 installs"):
        assert said in " ".join(texts(page).split())
    assert "project, 1 binding" in texts(page)
    assert len(page.all("a", **{"class": "never"})) == 1
    rows = await open_page(world, page.link("3"), **world.session("owner"))
    assert len(rows.row_ids) == 3


async def test_who_may_not_read_the_log_sees_no_counts(world):
    await add_install(world, oidc_binding_id=await world.bind())
    await grant(world, "member", "oidc:r")
    page = await see(world, "member")

    assert "What it did" not in page.html
    assert "installs" not in page.one("main").text
    assert "Installs" not in page.html


async def test_a_hostile_subject_is_text(world):
    await world.bind(sub_pattern=HOSTILE_SUB)
    page = await see(world)

    assert HOSTILE_SUB in page.one("main").text
    assert all("src" in one.attributes for one in page.all("script"))
    assert not page.all("img")


async def test_without_bindings_it_says_so(world):
    assert "No CI job is trusted yet." in (await see(world)).one("main").text


def test_lines_are_as_wide_as_their_installs_and_end_apart_at_their_scopes():
    bindings = [
        binding(1, "a/one", 100),
        binding(2, "a/one", 50),
        binding(3, "a/two", 1, project="p"),
        binding(4, "a/two", 0, team="t", last_used_at=None),
    ]
    drawing = draw_map(bindings)
    lines = [line for own in drawing.repositories for line in own]

    assert [line.width for line in lines] == [14, 7, 1.5, 1.5]
    assert all(later.y - line.y >= ROW for line, later in pairwise(lines))
    assert [(node.scope, node.installs.allowed) for node in drawing.nodes] == [
        (("", ""), 150),
        (("project", "p"), 1),
        (("team", "t"), 0),
    ]
    for node, after in zip(drawing.nodes, [*drawing.nodes[1:], None], strict=True):
        for line in node.lines:
            assert node.y <= line.end - line.width / 2
            assert line.end + line.width / 2 <= node.y + node.height
        assert after is None or node.y + node.height < after.y
    assert drawing.share(Installs(150)) == 25
    assert drawing.share(Installs(15)) == 2.5
