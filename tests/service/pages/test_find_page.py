"""The page that jumps to any other."""

import re
from html import unescape
from urllib.parse import urlencode

import pytest

from service.access.roles import Role
from service.pages.find_page import HITS_MAX
from tests.conftest import World
from tests.service.pages.page import ORG, add_install, open_page

FIND = f"{ORG}/find"


async def links(world: World, role: Role, text: str = "") -> list[str]:
    return list(await found(world, role, text))


async def found(world: World, role: Role, text: str) -> dict[str, str]:
    """The names of the results by their addresses."""
    page = await open_page(world, f"{FIND}?{urlencode({'q': text})}", **world.session(role))
    main = page.html[page.html.index("<main") :]
    results = re.findall(r'<li><a href="([^"]+)"><bdi[^>]*>(.*?)</bdi>', main)
    return {unescape(path): unescape(name) for path, name in results}


async def test_every_word_must_be_in_the_name(world: World) -> None:
    assert await links(world, Role.OWNER, "KEY  issue") == [
        f"{ORG}/keys",
        f"{ORG}/audit?q=KEY+issue",
        f"{ORG}/packages?name=KEY+issue",
        f"{ORG}/members?find=KEY+issue",
        f"{ORG}/keys?find=KEY+issue",
    ]


async def test_packages_jobs_bindings_and_people_are_found_by_name(world: World) -> None:
    job = "repo:acme/payments:ref:refs/heads/main"
    binding = await world.bind(sub_pattern=job)
    await add_install(world, ecosystem="npm", package_name="payment-kit", subject=job)
    owner = world.members["owner"]

    assert await found(world, Role.OWNER, "Payment") == {
        f"{ORG}/packages?name=payment-kit": "payment-kit",
        f"{ORG}/audit?{urlencode({'subject': job})}": "acme/payments · main",
        f"{ORG}/bindings/{binding}": "acme/payments · main",
        f"{ORG}/audit?q=Payment": "Rows of the audit log",
        f"{ORG}/packages?name=Payment": "The package",
        f"{ORG}/members?find=Payment": "Members",
        f"{ORG}/keys?find=Payment": "API keys",
    }
    people = await found(world, Role.OWNER, owner.email)
    actor = urlencode({"actor": f"{owner.identity_provider}:{owner.id}"})
    assert people[f"{ORG}/audit?{actor}"] == f"What {owner.email} did"
    assert f"{ORG}/members?{urlencode({'find': owner.email})}" in people


async def test_a_revoked_binding_says_so_and_many_are_cut(world: World) -> None:
    gone = await world.bind(sub_pattern="repo:acme/pay:ref:refs/heads/old")
    await world.revoke(gone)
    assert (await found(world, Role.OWNER, "acme/pay"))[f"{ORG}/bindings/{gone}"].endswith(
        ", revoked"
    )

    for number in range(HITS_MAX + 1):
        await world.bind(sub_pattern=f"repo:acme/pay:ref:refs/heads/b{number}")
    hits = await links(world, Role.OWNER, "acme/pay")
    assert len([path for path in hits if "/bindings/" in path]) == HITS_MAX


@pytest.mark.parametrize("text", ["", "evil", "<b>", "pay", "example"])
async def test_only_what_the_caller_may_open_is_offered(world: World, text: str) -> None:
    """And each offer opens: what a member may not see is not named."""
    await world.bind(sub_pattern="repo:acme/pay:ref:refs/heads/main")
    await add_install(world, ecosystem="npm", package_name="payment-kit")
    everything = await links(world, Role.OWNER)
    for role in Role:
        offered = await links(world, role, text)
        assert all(path in everything or text for path in offered)
        for path in offered:
            response = await world.client.get(path, headers=world.session(role))
            assert response.status_code in (200, 303), (role, path)
    assert await links(world, Role.MEMBER, text) == ([] if text else [ORG])


async def test_what_was_typed_is_text(world: World) -> None:
    page = await open_page(world, f"{FIND}?q=%3Cb%3E", **world.session(Role.OWNER))

    assert page.one("input", name="q").attributes["value"] == "<b>"
    assert "<b>" not in page.html
