"""The proxy page: its registries, its cache, its installs, and the lines to set up a client."""

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import BlocklistHit
from service.core.settings import Settings
from service.packages.ecosystems import CLIENTS
from service.pages.proxy import in_units
from tests.budgets import sample
from tests.conftest import SettableClock, World, grant, running_world
from tests.service.pages.page import AUDIT, ORG, add_install
from tests.service.pages.people.desk import HOSTILE, get, see

SECRET = "hunter2"


@pytest.fixture
async def proxied(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """A world whose proxy has a registry for PyPI, with credentials, and none for npm."""
    configured = msgspec.structs.replace(
        settings,
        proxy_pypi_upstream=f"https://reader:{SECRET}@pypi.internal.example/simple/",
        proxy_pypi_file_origins=("https://files.internal.example",),
    )
    async with running_world(configured, clock) as world:
        yield world


async def test_without_a_registry_it_says_which_setting_is_missing(world: World):
    """Installs are answered with 404 until then."""
    page = await see(world, "proxy")

    assert "No registry is configured." in page.one("div", role="status").text
    assert page.html.count("not configured") == 2
    assert "COUNTERSIGN_PROXY_NPM_UPSTREAM" in page.html


async def test_registries_are_shown_without_their_credentials(proxied: World):
    page = await see(proxied, "proxy")
    text = page.one("main").text

    assert "https://pypi.internal.example/simple/" in text
    assert "https://files.internal.example" in text
    assert "with credentials" in text
    assert SECRET not in page.html
    assert SECRET not in text
    assert "not asked yet" in page.one("section", **{"aria-labelledby": "upstream-1"}).text
    assert "http://localhost:8080/proxy/acme/pypi/simple/" in text


async def test_the_state_is_that_of_the_last_request(proxied: World):
    registry = proxied.services.proxy.registries[Ecosystem.PYPI].public
    assert registry is not None
    health, now = registry.upstream.health, proxied.clock.now
    health.answered_at = now - timedelta(hours=2)
    answers = (await see(proxied, "proxy")).one("section", **{"aria-labelledby": "upstream-1"})
    health.failed_at, health.failure = now - timedelta(minutes=5), HOSTILE
    fails = (await see(proxied, "proxy")).one("section", **{"aria-labelledby": "upstream-1"})

    assert "answers" in answers.text
    assert "Last answer2026-03-04 10:00" in answers.text
    assert "fails" in fails.text
    assert f"2026-03-04 11:55: {HOSTILE}" in fails.text


async def test_installs_are_counted_by_ecosystem_with_links(world: World):
    for name, ecosystem in (("left-pad", "npm"), ("lodash", "npm"), ("requests", "pypi")):
        await add_install(world, package_name=name, ecosystem=ecosystem, version="1")
    blocked = BlocklistHit(rule_id="r", source="operator")
    await add_install(world, blocked, package_name="evil", ecosystem="npm", version="1")
    page = await see(world, "proxy")
    cells = [one.text for one in page.all("td", role="cell")]

    assert cells[:2] == ["3", "1"]
    assert cells[3:5] == ["1", "–"]
    href = next(
        one.attributes["href"]
        for one in page.all("a")
        if one.attributes["href"].startswith(AUDIT) and "ecosystem=npm" in one.attributes["href"]
    )
    listed = await get(world, href.removeprefix(f"{ORG}/"))
    assert (await listed.get_data(as_text=True)).count('class="c-package" data-label') == 3


async def test_installs_need_the_right_to_read_rows(world: World):
    await grant(world, "member", "policy:r")
    await add_install(world, package_name="left-pad", ecosystem="npm", version="1")
    page = await see(world, "proxy", "member")

    assert "Installs of the last 24 hours" not in page.html
    assert AUDIT not in page.html
    assert "Set up a client" in page.html
    assert (await get(world, "proxy", "auditor")).status_code == 403
    assert (await get(world, "proxy", "stranger")).status_code == 403


async def test_the_cache_says_what_it_holds(world: World):
    kept = world.services.settings.package_cache_dir / "files" / "kept" / "aa"
    kept.mkdir(parents=True)
    (kept / f"sha256-{'a' * 64}").write_bytes(b"x" * 3 * 2**20)
    section = (await see(world, "proxy")).one("section", **{"aria-labelledby": "cache-title"})

    assert "3.0 MiB of 10.0 GiB in 1 package file and 0 documents" in section.text


@sample(12)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", ["github", "gitlab", "circleci", "other"])
async def test_each_client_and_provider_has_lines_for_this_organisation(
    world: World, client: str, provider: str
):
    page = await see(world, f"proxy?client={client}&provider={provider}")
    chosen = [one.text for one in page.all("a", **{"aria-current": "true"})]
    blocks = [
        one.text for one in page.all("code") if one.attributes.get("id", "").startswith("with")
    ]

    assert len(chosen) == 4  # the section of the navigation, the theme, the client and the provider
    assert any("--url http://localhost:8080 --org acme" in block for block in blocks)
    assert any("countersign run -- " in block for block in blocks)
    assert len(blocks) == (5 if client == "poetry" else 4)


@pytest.mark.parametrize("query", ["client=cargo", "provider=jenkins", "x=1", "client=a&client=b"])
async def test_other_choices_are_refused(world: World, query: str):
    assert (await get(world, f"proxy?{query}")).status_code == 400


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (10 * 2**30, "10.0 GiB")],
)
def test_sizes_are_in_units(size: int, words: str):
    assert in_units(size) == words


async def test_the_keys_page_leads_to_the_lines(world: World):
    """A key alone installs nothing."""
    page = await see(world, "keys")

    assert f'href="{ORG}/proxy#set-up"' in page.html
    assert "packages:install" in page.html
