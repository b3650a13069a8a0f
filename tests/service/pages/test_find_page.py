"""The page that jumps to any other."""

import re
from html import unescape
from urllib.parse import urlencode

import pytest

from service.access.roles import Role
from tests.conftest import World
from tests.service.pages.page import ORG, open_page

FIND = f"{ORG}/find"


async def links(world: World, role: Role, text: str = "") -> list[str]:
    page = await open_page(world, f"{FIND}?{urlencode({'q': text})}", **world.session(role))
    main = page.html[page.html.index("<main") :]
    return [unescape(path) for path in re.findall(r'<li><a href="([^"]+)"', main)]


async def test_every_word_must_be_in_the_name(world: World) -> None:
    assert await links(world, Role.OWNER, "KEY  issue") == [
        f"{ORG}/audit?q=KEY+issue",
        f"{ORG}/packages?name=KEY+issue",
        f"{ORG}/members?find=KEY+issue",
        f"{ORG}/keys?find=KEY+issue",
        f"{ORG}/keys",
    ]


@pytest.mark.parametrize("text", ["", "evil", "<b>"])
async def test_only_what_the_caller_may_open_is_offered(world: World, text: str) -> None:
    """And each offer opens: what a member may not see is not named."""
    everything = await links(world, Role.OWNER)
    for role in Role:
        offered = await links(world, role, text)
        assert all(path in everything or text for path in offered)
        for path in offered:
            response = await world.client.get(path, headers=world.session(role))
            assert response.status_code in (200, 303), (role, path)
    assert await links(world, Role.MEMBER) == [ORG]


async def test_what_was_typed_is_text(world: World) -> None:
    page = await open_page(world, f"{FIND}?q=%3Cb%3E", **world.session(Role.OWNER))

    assert page.one("input", name="q").attributes["value"] == "<b>"
    assert "<b>" not in page.html
