"""What an operator sets up: providers by settings, domains by command."""

import msgspec
import pytest

from service.access.sign_in.providers import load_providers
from service.core.errors import Invalid
from service.core.settings import PREFIX, InvalidSetting, Settings
from service.orgs.domains import list_domains, set_domain
from tests.conftest import BY_OPERATOR, World
from tests.processes.homes import Home
from tests.service.access.sign_in.visitors import SIGN_IN, open_visit
from tests.sign_in.fixtures import PROVIDERS, ProviderProcess

GOOD = {
    f"oauth_{name}_{part}": "x" for name in PROVIDERS for part in ("client_id", "client_secret")
} | {"oauth_microsoft_tenant": "3aa0d5a1-8f2b-4c6e-9d0a-5b7c1e2f3a4b"}


def test_without_settings_there_is_no_provider(settings: Settings) -> None:
    assert load_providers(settings) == {}


def test_a_provider_needs_its_id_and_its_secret_only(settings: Settings) -> None:
    providers = load_providers(msgspec.structs.replace(settings, **GOOD))

    assert list(providers) == ["google", "github", "microsoft"]
    assert providers["google"].namespace == "https://accounts.google.com"
    assert providers["github"].api_url == "https://api.github.com"
    assert all("client_secret" not in repr(provider) for provider in providers.values())


def test_a_github_of_ones_own_has_its_api_beside_it(settings: Settings) -> None:
    """As GitHub Enterprise Server has."""
    own = msgspec.structs.replace(settings, **GOOD, oauth_github_url="https://git.acme.example/")

    github = load_providers(own)["github"]

    assert github.api_url == "https://git.acme.example/api/v3"
    assert github.namespace == "https://git.acme.example"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"oauth_google_client_secret": ""}, "OAUTH_GOOGLE_CLIENT_SECRET"),
        ({"oauth_github_client_id": ""}, "OAUTH_GITHUB_CLIENT_ID"),
        ({"oauth_microsoft_tenant": ""}, "OAUTH_MICROSOFT_TENANT"),
        ({"oauth_microsoft_tenant": "acme.onmicrosoft.com"}, "OAUTH_MICROSOFT_TENANT"),
        ({"oauth_microsoft_tenant": "../common"}, "OAUTH_MICROSOFT_TENANT"),
        ({"oauth_google_issuer": "http://accounts.google.com"}, "OAUTH_GOOGLE_ISSUER"),
        ({"oauth_google_issuer": "https://a@b.example"}, "OAUTH_GOOGLE_ISSUER"),
        ({"oauth_github_url": "https://git.acme.example?x"}, "OAUTH_GITHUB_URL"),
        ({"oauth_github_url": "git.acme.example"}, "OAUTH_GITHUB_URL"),
        ({"oauth_microsoft_url": "ftp://login.example"}, "OAUTH_MICROSOFT_URL"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_by_name(
    settings: Settings, changes: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidSetting, match=PREFIX + named):
        load_providers(msgspec.structs.replace(settings, **(GOOD | changes)))


async def test_providers_that_are_not_set_up_are_not_there(
    settings: Settings, idp: ProviderProcess
) -> None:
    async with open_visit(idp.known_to(settings, "github"), idp) as visitor:
        page = await (await visitor.get(SIGN_IN)).get_data(as_text=True)

        assert "Sign in with GitHub" in page
        assert "Google" not in page
        assert "Microsoft" not in page
        for name in ("google", "microsoft", "missing", "choose"):
            assert (await visitor.get(f"{SIGN_IN}/{name}/callback", state="x")).status_code == 404
        for name in ("google", "microsoft", "missing"):
            assert (await visitor.get(f"{SIGN_IN}/{name}")).status_code == 404


async def test_an_own_page_to_come_back_to_is_passed_on(
    settings: Settings, idp: ProviderProcess
) -> None:
    async with open_visit(idp.known_to(settings, "github"), idp) as visitor:
        own = '/admin/ui/orgs/acme/audit?package="><b>'
        page = await (await visitor.get(SIGN_IN, next=own)).get_data(as_text=True)
        foreign = await visitor.get(SIGN_IN, next="https://evil.example/")

        assert "next=/admin/ui/orgs/acme/audit?package%3D%22%3E%3Cb%3E" in page
        assert "evil" not in await foreign.get_data(as_text=True)


async def test_https_gives_cookies_that_no_neighbour_can_set(
    settings: Settings, idp: ProviderProcess
) -> None:
    """`__Host-` keeps other hosts of the domain from planting a sign-in of their own."""
    secure = idp.known_to(settings, base_url="https://countersign.example")
    async with open_visit(secure, idp) as visitor:
        cookie = (await visitor.get(f"{SIGN_IN}/github")).headers["set-cookie"]

        assert cookie.startswith("__Host-sign_in=")
        assert {"Secure", "HttpOnly", "Path=/"} <= set(cookie.split("; "))
        assert "Domain" not in cookie


async def test_a_change_of_domains_leaves_one_row_each(world: World) -> None:
    for is_allowed in (True, True, False, False):
        async with world.services.store.write() as work:
            await set_domain(
                work, world.acme, "Acme.Example", "google", BY_OPERATOR, is_allowed=is_allowed
            )

    rows = await world.audit(event="sign_in_domain_changed")

    assert [row["payload"] for row in rows] == [
        {"domain": "acme.example", "identity_provider": "google", "is_allowed": is_allowed}
        for is_allowed in (False, True)
    ]
    async with world.services.store.read() as session:
        assert await list_domains(session, world.acme) == []


@pytest.mark.parametrize(
    ("domain", "idp"),
    [
        ("", "google"),
        ("acme", "google"),
        ("@acme.example", "google"),
        ("*.acme.example", "google"),
        ("acmé.example", "google"),
        ("acme.example.", "google"),
        ("-.example", "google"),
        ("acme.example\n", "google"),
        ("a" * 64 + ".example", "google"),
        ("acme.example", "okta"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_no_domain_or_no_provider_is_refused(
    shared_world: World, domain: str, idp: str
) -> None:
    async with shared_world.services.store.write() as work:
        with pytest.raises(Invalid):
            await set_domain(work, shared_world.acme, domain, idp, BY_OPERATOR, is_allowed=True)


@pytest.mark.slow
def test_domains_are_kept_at_the_command_line(tmp_path) -> None:
    home = Home(tmp_path)
    assert home.order("init").code == 0
    assert home.order("org", "add", "acme").code == 0

    assert home.order("org", "allow-domain", "acme", "Acme.example", "--idp", "github").code == 0
    listed = home.listed("org", "domains", "acme")
    assert [(found["domain"], found["idp"]) for found in listed] == [("acme.example", "github")]
    allow = ["org", "allow-domain", "acme", "acme.example", "--idp", "github", "--remove"]
    assert "acme.example need an invitation" in home.order(*allow).out
    assert home.listed("org", "domains", "acme") == []
