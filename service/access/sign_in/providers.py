"""The identity providers that users sign in with, from the settings."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from service.ci.issuers.urls import key_url_fault
from service.core.settings import PREFIX, IdentityProviderName, InvalidSetting, Settings

ID_TOKEN_ALGORITHMS: Final = ("RS256", "PS256", "ES256")
TENANT_PLACE: Final = "{tenantid}"
"""Placeholder in a Microsoft issuer for the user's tenant."""

_GITHUB_URL: Final = "https://github.com"
_GITHUB_API_URL: Final = "https://api.github.com"
_PERSONAL_TENANT: Final = "9188040d-6c67-4c5b-b112-36a304b66dad"
"""The tenant of all of Microsoft's personal accounts."""

_TENANT: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_SEVERAL_TENANTS: Final = frozenset({"common", "organizations"})


_GOOGLE: Final = "Google"
_GITHUB: Final = "GitHub"
_MICROSOFT: Final = "Microsoft"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a browser is redirected, and where its code is exchanged for a token."""

    authorization: str
    token: str


@dataclass(frozen=True, slots=True)
class IdTokenIssuer:
    """The issuer of a provider's id tokens; its keys are cached like those of CI issuers.

    `url` is the `iss` of its tokens, with TENANT_PLACE in place of the tenant.
    """

    name: str
    url: str
    jwks_uri: str | None = None
    algorithms: tuple[str, ...] = ID_TOKEN_ALGORITHMS
    refused_tenants: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Provider:
    """A configured provider, whose subjects are unique within `namespace`.

    If `endpoints` is None they are read from the configuration that `id_tokens` publishes. If
    `id_tokens` is None it is GitHub, which issues none; the user is then looked up at `api_url`.

    The claim `verified_claim` says that the address of a user is verified. With `domain_claim`
    the owner of the address's domain manages the account; if it is None, that is so of every
    verified one. Google sets `email_verified` for private accounts, too, whose address may once
    have been a company's; `hd` means that the company's Workspace manages the account. Microsoft
    verifies an address only if the app requests `xms_edov`: otherwise a tenant's admin can set
    any address.
    """

    name: IdentityProviderName
    label: str
    client_id: str
    client_secret: str = field(repr=False)
    namespace: str
    scope: str = "openid email"
    endpoints: Endpoints | None = None
    id_tokens: IdTokenIssuer | None = None
    api_url: str = ""
    verified_claim: str = "email_verified"
    domain_claim: str | None = "hd"


Providers = Mapping[str, Provider]
"""Name to provider, in the order they are shown; only configured ones."""


def load_providers(settings: Settings) -> Providers:
    """The providers configured in `settings`. Raises InvalidSetting, naming the variable."""
    providers = (load(settings) for _, load in _KINDS.values())
    return {provider.name: provider for provider in providers if provider is not None}


def is_tenant(text: object) -> bool:
    """True for the id of a Microsoft tenant as written in its tokens."""
    return isinstance(text, str) and _TENANT.fullmatch(text) is not None


def _google(settings: Settings) -> Provider | None:
    if not _is_set_up(
        "google", settings.oauth_google_client_id, settings.oauth_google_client_secret
    ):
        return None
    issuer = _url("google_issuer", settings.oauth_google_issuer)
    return Provider(
        name="google",
        label=_GOOGLE,
        client_id=settings.oauth_google_client_id,
        client_secret=settings.oauth_google_client_secret,
        namespace=issuer,
        id_tokens=IdTokenIssuer("sign-in google", issuer),
    )


def _github(settings: Settings) -> Provider | None:
    if not _is_set_up(
        "github", settings.oauth_github_client_id, settings.oauth_github_client_secret
    ):
        return None
    url = _url("github_url", settings.oauth_github_url)
    return Provider(
        name="github",
        label=_GITHUB,
        client_id=settings.oauth_github_client_id,
        client_secret=settings.oauth_github_client_secret,
        namespace=url,
        scope="user:email",
        endpoints=Endpoints(f"{url}/login/oauth/authorize", f"{url}/login/oauth/access_token"),
        api_url=_GITHUB_API_URL if url == _GITHUB_URL else f"{url}/api/v3",
    )


def _microsoft(settings: Settings) -> Provider | None:
    if not _is_set_up(
        "microsoft", settings.oauth_microsoft_client_id, settings.oauth_microsoft_client_secret
    ):
        return None
    url = _url("microsoft_url", settings.oauth_microsoft_url)
    tenant = settings.oauth_microsoft_tenant.lower()
    if not is_tenant(tenant) and tenant not in _SEVERAL_TENANTS | {"consumers"}:
        raise InvalidSetting(
            f"{PREFIX}OAUTH_MICROSOFT_TENANT must be the id of your tenant (a GUID),"
            " or organizations, consumers or common"
        )
    issuer = f"{url}/{_tenant_in_issuer(tenant)}/v2.0"
    return Provider(
        name="microsoft",
        label=_MICROSOFT,
        client_id=settings.oauth_microsoft_client_id,
        client_secret=settings.oauth_microsoft_client_secret,
        namespace=issuer,
        endpoints=Endpoints(
            f"{url}/{tenant}/oauth2/v2.0/authorize", f"{url}/{tenant}/oauth2/v2.0/token"
        ),
        id_tokens=IdTokenIssuer(
            "sign-in microsoft",
            issuer,
            jwks_uri=f"{url}/{tenant}/discovery/v2.0/keys",
            refused_tenants=frozenset({_PERSONAL_TENANT} if tenant == "organizations" else ()),
        ),
        verified_claim="xms_edov",
        domain_claim=None,
    )


_KINDS: Final[Mapping[IdentityProviderName, tuple[str, Callable[[Settings], Provider | None]]]] = {
    "google": (_GOOGLE, _google),
    "github": (_GITHUB, _github),
    "microsoft": (_MICROSOFT, _microsoft),
}
"""The label of each, and what reads its settings, in the order in which they are shown."""

LABELS: Final = {name: _KINDS[name][0] for name in get_args(IdentityProviderName)}
"""Names of the providers, whether they are configured or not."""


def _tenant_in_issuer(tenant: str) -> str:
    if tenant == "consumers":
        return _PERSONAL_TENANT
    return TENANT_PLACE if tenant in _SEVERAL_TENANTS else tenant


def _is_set_up(name: str, client_id: str, client_secret: str) -> bool:
    if bool(client_id) != bool(client_secret):
        missing = "CLIENT_SECRET" if client_id else "CLIENT_ID"
        raise InvalidSetting(f"{PREFIX}OAUTH_{name.upper()}_{missing} is missing")
    return bool(client_id)


def _url(setting: str, value: str) -> str:
    url = value.removesuffix("/")
    fault = "has a query" if "?" in url else key_url_fault(url)
    if fault:
        raise InvalidSetting(f"{PREFIX}OAUTH_{setting.upper()} {fault}")
    return url
