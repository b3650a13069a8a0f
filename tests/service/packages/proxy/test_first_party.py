"""First-party packages: from the organisation's own registry, never from the public one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.core.settings import InvalidSetting, Settings, load_settings
from service.packages.proxy.registries_file import load_registries
from tests.service.packages.install_tokens.jobs import INSTALL, bearer, new_key
from tests.service.packages.proxy.proxied import (
    Proxied,
    deny,
    running_proxy,
    second_process,
    shown,
    wheel_of,
)
from tests.service.packages.proxy.registry import FakeRegistry

PYPI = {"ecosystem": "pypi", "package": "acme-*", "registry": "internal"}
NPM = {"ecosystem": "npm", "package": "@acme/*", "registry": "internal-npm"}


async def test_a_first_party_name_never_reaches_the_public_registry(proxied: Proxied):
    proxied.publishes("acme-lib", wheel_of("acme-lib", "99.0"))
    proxied.publishes_npm("@acme/lib", "99.0.0")
    path = await proxied.path_of("acme-lib")
    proxied.registry.asked.clear()
    await proxied.policy(first_party=[PYPI, NPM])

    for each in (
        "pypi/simple/acme-lib/",
        "pypi/simple/ACME.lib/",
        "pypi/simple/acme__lib",
        path,
        f"{path}.metadata",
        "npm/@acme/lib",
        "npm/@acme%2flib",
        "npm/@acme/lib/latest",
        "npm/@acme/lib/-/lib-99.0.0.tgz",
        "npm/@acme/other",
    ):
        status, text = await shown(await proxied.get(each))
        assert status == 404
        assert "this is a first-party package: install it from the registry internal" in text
    assert proxied.registry.asked == []
    assert await proxied.rows() == []


async def test_a_name_that_becomes_first_party_while_the_registry_answers_is_not_served(
    proxied: Proxied,
):
    """The document of the public registry is not the package's any more."""
    proxied.publishes("acme-lib", wheel_of("acme-lib", "99.0"))
    answer = proxied.registry.answers["/simple/acme-lib/"]

    async def slowly(asked: Any, writer: Any) -> None:
        await proxied.policy(first_party=[PYPI])
        await answer(asked, writer)

    proxied.registry.does("/simple/acme-lib/", slowly)

    assert (await proxied.get("pypi/simple/acme-lib/")).status_code == 404


@pytest.fixture
async def own(
    settings: Settings, registry: FakeRegistry, elsewhere: FakeRegistry, tmp_path: Path
) -> AsyncIterator[Proxied]:
    """A proxy with a registry of acme's own, at `elsewhere`."""
    url = elsewhere.url.replace("://", "://ci:pass@")
    file = tmp_path / "registries.toml"
    file.write_text(
        f"""
        [registries.internal]
        ecosystem = "pypi"
        url = "{url}/simple/"
        orgs = ["acme"]

        [registries.internal-npm]
        ecosystem = "npm"
        url = "{url}/npm/"
        orgs = ["acme"]
        """
    )
    async with running_proxy(settings, registry, proxy_registries_file=file) as proxied:
        yield proxied


async def test_a_first_party_package_comes_from_its_own_registry(
    own: Proxied, elsewhere: FakeRegistry
):
    own.publishes("acme-lib", wheel_of("acme-lib", "99.0"))
    own.publishes_npm("@acme/lib", "99.0.0")
    own.registry.asked.clear()
    inside = Proxied(own.world, elsewhere, own.key, own.client)
    inside.publishes("acme-lib", wheel_of("acme-lib", "1.0"))
    inside.publishes_npm("@acme/lib", "1.0.0")
    await own.policy(first_party=[PYPI, NPM], deny=[deny("pypi", "acme-lib")])

    served = await own.get(await own.path_of("acme-lib"))
    assert await served.get_data() == b"acme-lib 1.0"
    tarball = await own.get("npm/@acme/lib/-/lib-1.0.0.tgz")
    assert await tarball.get_data() == b"@acme/lib@1.0.0"
    rows = await own.rows()
    registries = [row["payload"].pop("admission")["registry"] for row in rows]
    assert registries == [f"{elsewhere.url}/simple/", f"{elsewhere.url}/npm/"]
    seen = [(row["event"], row["decision"], row["payload"]) for row in rows]
    assert seen == [
        ("oss_first_party", "ALLOWED", {"registry": "internal"}),
        ("oss_first_party", "ALLOWED", {"registry": "internal-npm"}),
    ]
    assert own.registry.asked == []
    assert all(asked.headers["authorization"] == "Basic Y2k6cGFzcw==" for asked in elsewhere.asked)


async def test_a_registry_serves_only_the_organisations_that_it_lists(
    own: Proxied, elsewhere: FakeRegistry
):
    """A writer of policies must not choose who reads a registry."""
    Proxied(own.world, elsewhere, own.key, own.client).publishes(
        "acme-lib", wheel_of("acme-lib", "1.0")
    )
    stranger = await new_key(own.world, INSTALL, slug="other")
    other = Proxied(own.world, own.registry, stranger, own.client)
    world = own.world
    world.acme, world.other = world.other, world.acme
    await other.policy(first_party=[PYPI])
    world.acme, world.other = world.other, world.acme
    answer = await own.client.get(
        "/proxy/other/pypi/simple/acme-lib/", headers=[bearer(stranger.secret)]
    )
    assert (await shown(answer))[0] == 404

    await own.policy(first_party=[{**PYPI, "registry": "internal-npm"}])
    assert (await shown(await own.get("pypi/simple/acme-lib/")))[0] == 404
    assert elsewhere.asked == own.registry.asked == []


async def test_an_own_registry_that_is_down_is_never_replaced(
    own: Proxied, elsewhere: FakeRegistry
):
    own.publishes("acme-lib", wheel_of("acme-lib", "99.0"))
    await own.policy(first_party=[PYPI])
    assert (await own.get("pypi/simple/acme-lib/")).status_code == 404
    own.clock.advance(minutes=1)
    elsewhere.says("/simple/acme-lib/", status=503)

    assert (await own.get("pypi/simple/acme-lib/")).status_code == 502
    assert own.registry.asked == []


async def test_what_one_account_may_read_is_not_remembered_for_another(
    settings: Settings, registry: FakeRegistry, tmp_path: Path
):
    file = tmp_path / "registries.toml"

    def write(password: str) -> None:
        url = registry.url.replace("://", f"://ci:{password}@")
        file.write_text(
            f'[registries.internal]\necosystem="pypi"\nurl="{url}/simple/"\norgs=["acme"]\n'
        )

    write("first")
    async with running_proxy(settings, registry, proxy_registries_file=file) as proxied:
        await proxied.policy(first_party=[PYPI])
        proxied.publishes("acme-lib", wheel_of("acme-lib", "1.0"))
        await proxied.page("acme-lib")
        write("second")
        async with second_process(proxied) as later:
            await later.page("acme-lib")

    sent = [asked.headers["authorization"] for asked in registry.asked]
    assert len(set(sent)) == 2


async def test_accounts_at_one_url_have_files_of_their_own(
    settings: Settings, registry: FakeRegistry, elsewhere: FakeRegistry, tmp_path: Path
):
    file = tmp_path / "registries.toml"
    file.write_text(
        "".join(
            f'[registries.of-{org}]\necosystem="pypi"\norgs=["{org}"]\n'
            f'url="{elsewhere.url.replace("://", f"://{org}:pass@")}/simple/"\n'
            for org in ("acme", "other")
        )
    )
    async with running_proxy(settings, registry, proxy_registries_file=file) as proxied:
        world = proxied.world
        keys = {"acme": proxied.key, "other": await new_key(world, INSTALL, slug="other")}
        for org, key in keys.items():
            inside = Proxied(world, elsewhere, key, proxied.client)
            inside.publishes("acme-lib", wheel_of("acme-lib", "1.0", f"of {org}".encode()))
            await inside.policy(first_party=[{**PYPI, "registry": f"of-{org}"}])
            page = await inside.send(
                "GET",
                "pypi/simple/acme-lib/",
                slug=org,
                accept="application/vnd.pypi.simple.v1+json",
            )
            path = (await page.get_json())["files"][0]["url"].partition(f"/proxy/{org}/")[2]
            served = await inside.send("GET", path, slug=org)
            assert await served.get_data() == f"of {org}".encode()
            world.acme, world.other = world.other, world.acme


async def test_a_digest_that_another_registry_lists_does_not_open_its_file(
    settings: Settings, registry: FakeRegistry, elsewhere: FakeRegistry, tmp_path: Path
):
    """Neither from the cache nor from a public registry that names it: the file is acme's."""
    file = tmp_path / "registries.toml"
    urls = {"acme": elsewhere.url.replace("://", "://ci:pass@"), "other": f"{registry.url}/own"}
    file.write_text(
        "".join(
            f'[registries.of-{org}]\necosystem="pypi"\norgs=["{org}"]\nurl="{url}/simple/"\n'
            for org, url in urls.items()
        )
    )
    async with running_proxy(settings, registry, proxy_registries_file=file) as proxied:
        world = proxied.world
        private = wheel_of("acme-lib", "1.0", b"private to acme" * 1000)
        inside = Proxied(world, elsewhere, proxied.key, proxied.client)
        inside.publishes("acme-lib", private)
        await inside.policy(first_party=[{**PYPI, "registry": "of-acme"}])
        served = await inside.get(await inside.path_of("acme-lib"))
        assert await served.get_data() == private.content

        stranger = Proxied(
            world, registry, await new_key(world, INSTALL, slug="other"), proxied.client
        )
        world.acme, world.other = world.other, world.acme
        await stranger.policy(first_party=[{**PYPI, "registry": "of-other"}])
        for name, at in (
            ("acme-lib", "/own/simple/acme-lib/"),
            ("public-lib", "/simple/public-lib/"),
        ):
            listed = wheel_of(name, "1.0", private.content)
            stranger.publishes(name, listed)
            registry.answers[at] = registry.answers[f"/simple/{name}/"]
            registry.says(f"/files/{listed.filename}", status=404)
            page = await stranger.send(
                "GET",
                f"pypi/simple/{name}/",
                slug="other",
                accept="application/vnd.pypi.simple.v1+json",
            )
            path = (await page.get_json())["files"][0]["url"].partition("/proxy/other/")[2]
            for headers in ({}, {"range": "bytes=0-9"}):
                answer = await stranger.send("GET", path, slug="other", **headers)
                assert (await shown(answer))[0] == 404


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("registries", "not TOML"),
        ("[other]", "unknown table other"),
        ("registries = 1", "registries: is not a table"),
        ("[registries.a]", "registries.a: Object missing required field `ecosystem`"),
        ('[registries.a]\necosystem="gem"\nurl="https://a"\norgs=["x"]', "registries.a.ecosystem"),
        ('[registries.a]\necosystem="npm"\nurl="ftp://u:secret@a"\norgs=["x"]', "registries.a.url"),
        ('[registries.a]\necosystem="npm"\nurl="https://a"\norgs=[]', "registries.a.orgs"),
        ('[registries.a]\necosystem="npm"\nurl="https://a"', "field `orgs`"),
        (
            '[registries.a]\necosystem="npm"\nurl="https://a"\norgs=["x"]\nfile_origins=["u:secret@"]',
            "registries.a.file_origins[0]",
        ),
        ('[registries.a]\necosystem="npm"\nurl="https://a"\norgs=["x"]\nx=1', "unknown field `x`"),
    ],
)
def test_a_wrong_registries_file_is_refused_by_its_field(tmp_path: Path, text: str, place: str):
    """And no URL is shown, which may hold a password."""
    file = tmp_path / "registries.toml"
    file.write_text(text)
    with pytest.raises(InvalidSetting) as refused:
        load_registries(file)

    assert str(refused.value).startswith(f"COUNTERSIGN_PROXY_REGISTRIES_FILE {file}: ")
    assert place in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_registries_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InvalidSetting, match="No such file"):
        load_registries(tmp_path / "none.toml")
    assert load_registries(None) == {}
    named = load_settings({"COUNTERSIGN_PROXY_REGISTRIES_FILE": str(tmp_path / "a.toml")})
    assert named.proxy_registries_file == tmp_path / "a.toml"
    assert load_settings({}).proxy_registries_file is None
