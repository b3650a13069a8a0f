"""The page about the install proxy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from quart import Blueprint, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.errors import StoreFault
from analytics.model.filters import only
from service.access.callers import Caller
from service.access.roles import Capability
from service.audit.tenant_log import open_log
from service.ci.providers import CiProvider
from service.core.errors import Invalid, StoreUnavailable
from service.packages.ecosystems import Ecosystem
from service.packages.proxy.answers import UpstreamHealth
from service.packages.proxy.circuit_breaker import CircuitState
from service.packages.proxy.clients import (
    PackageManager,
    ProxyAddress,
    Snippet,
    client_snippet,
    exchange_snippet,
    job_snippet,
    project_snippet,
)
from service.packages.proxy.disk_cache import Usage
from service.packages.proxy.upstream import Upstream
from service.pages.groups import ShownGroup, load_groups
from service.pages.labels import ago
from service.pages.navigation import may, page_context
from service.pages.policy.policy_page import ECOSYSTEM_WORDS
from service.pages.services import DashboardServices
from service.pages.state import State
from service.pages.streaming import Later, streamed
from service.pages.summary_panel import SummaryUnavailable
from service.store.tables import Organisation
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters

blueprint = Blueprint("dashboard_proxy", __name__, url_prefix="/admin/ui/orgs/<slug>/proxy")


@blueprint.get("")
@receives(DashboardServices)
async def proxy_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the proxy's registries, cache and installs, and how clients are set up."""
    caller, org = await services.authorize(slug, Capability.POLICY_READ)
    parameters = query_parameters(request, ("client", "provider"))
    view = await load_proxy_view(services, caller, org, parameters)
    return await streamed("proxy.html", page=view, **page_context(services.settings, caller, org))


WINDOW: Final = "24h"
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_UNIT: Final = 1024

CLIENT_WORDS: Final[dict[str, str]] = {
    "pip": "pip",
    "uv": "uv",
    "poetry": "Poetry",
    "pdm": "pdm",
    "npm": "npm",
    "pnpm": "pnpm",
    "yarn-1": "Yarn 1",
    "yarn": "Yarn 4",
    "bun": "bun",
}
"""The package managers as addresses and people name them."""

_CLIENTS: Final[dict[str, PackageManager]] = {
    client.replace(" ", "-"): client for client in PackageManager
}
_PROVIDERS: Final = {provider.facts.name: provider for provider in CiProvider}
_OTHER: Final = "Another provider"


@dataclass(frozen=True, slots=True)
class ShownUpstream:
    """One ecosystem's registry, without its credentials; `url` is None if none is configured."""

    words: str
    setting: str
    url: str | None = None
    has_credentials: bool = False
    file_origins: list[str] = field(default_factory=list)
    health: UpstreamHealth | None = None
    answered_ago: str | None = None
    failed_ago: str | None = None
    not_asked: list[str] = field(default_factory=list)
    """Origins that did not answer, and are asked again after a pause."""

    @property
    def state(self) -> str:
        """`none`, `unasked`, `answers`, `fails` or `paused`, by this process's last request."""
        if self.health is None:
            return "none"
        if self.not_asked:
            return "paused"
        answered_at, failed_at = self.health.answered_at, self.health.failed_at
        if failed_at is not None and (answered_at is None or failed_at > answered_at):
            return "fails"
        return "unasked" if answered_at is None else "answers"


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """What the cache holds, in words, and which part of its limit that is (percent)."""

    files: int
    documents: int
    size: str
    limit: str
    percent: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A client or provider to choose, with the link that shows its lines."""

    words: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class TitledSnippet:
    """Text to paste, and where it goes."""

    title: str
    snippet: Snippet


@dataclass(frozen=True, slots=True)
class SetUp:
    """The lines for one client and one provider, and the others to choose from."""

    clients: list[Choice]
    providers: list[Choice]
    with_command: list[TitledSnippet]
    without_command: list[TitledSnippet]


@dataclass(frozen=True, slots=True)
class ProxyView:
    """The page's data. `installs` is None for callers who may not read the audit log."""

    is_configured: bool
    pypi_url: str
    npm_url: str
    upstreams: list[ShownUpstream]
    cache: Later[CacheUsage | None]
    installs: Later[list[ShownGroup] | SummaryUnavailable] | None
    all_installs: State
    set_up: SetUp


async def load_proxy_view(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    parameters: Mapping[str, list[str]],
) -> ProxyView:
    """The page, with the lines for the `client` and `provider` in `parameters`.

    Raises Invalid for unknown ones, StoreUnavailable.
    """
    now = services.clock()
    address = ProxyAddress(services.settings.public_url, org.slug)
    set_up = _set_up(
        address,
        services.settings.audience,
        _chosen(parameters, "client", _CLIENTS),
        _chosen(parameters, "provider", _PROVIDERS),
    )
    state = _installs_of(org)
    installs = None
    if may(caller, Capability.AUDIT_READ, org):
        log = await open_log(services.store, services.audit.lake, org, now)
        installs = Later(lambda: load_groups(services.store, log, state, ["ecosystem"], now))
    pypi, npm = services.proxy.pypi.public, services.proxy.npm.public
    upstreams = [
        _shown(Ecosystem.PYPI, None if pypi is None else pypi.upstream, now),
        _shown(Ecosystem.NPM, None if npm is None else npm.upstream, now),
    ]
    return ProxyView(
        is_configured=pypi is not None or npm is not None,
        pypi_url=address.pypi,
        npm_url=address.npm,
        upstreams=upstreams,
        cache=Later(lambda: _cache_usage(services)),
        installs=installs,
        all_installs=state,
        set_up=set_up,
    )


def _installs_of(org: Organisation) -> State:
    """The audit page with the installs of the last day."""
    path = url_for("dashboard.audit_page", slug=org.slug)
    return State({"last": (WINDOW,), "decision": ("ALLOWED", "BLOCKED")}, path)


def _shown(ecosystem: Ecosystem, upstream: Upstream | None, now: datetime) -> ShownUpstream:
    words = ECOSYSTEM_WORDS[ecosystem]
    setting = f"COUNTERSIGN_PROXY_{ecosystem.upper()}_UPSTREAM"
    if upstream is None:
        return ShownUpstream(words, setting)
    registry, health = upstream.registry, upstream.health
    return ShownUpstream(
        words,
        setting,
        url=registry.url,
        has_credentials=registry.authorization is not None,
        file_origins=sorted(map(str, registry.file_origins)),
        health=health,
        answered_ago=_ago(health.answered_at, now),
        failed_ago=_ago(health.failed_at, now),
        not_asked=[
            str(origin)
            for origin, circuit in upstream.circuits.items()
            if circuit.state is not CircuitState.CLOSED
        ],
    )


def _ago(at: datetime | None, now: datetime) -> str | None:
    if at is None:
        return None
    words = ago(max(now - at, timedelta()))
    return "just now" if words == "now" else f"{words} ago"


async def _cache_usage(services: DashboardServices) -> CacheUsage | None:
    """What the cache holds; None if that cannot be read."""
    try:
        files = await services.packages.files.usage()
    except (OSError, StoreFault, StoreUnavailable):
        return None
    documents: Usage = await services.packages.documents.usage()
    size = files.bytes + documents.bytes
    limit = services.settings.proxy_cache_bytes_max
    return CacheUsage(
        files.files,
        documents.files,
        in_units(size),
        in_units(limit),
        min(100, round(100 * size / limit)),
    )


def in_units(size: int) -> str:
    """`size` in bytes as people read it: `640.0 MiB`."""
    amount, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if amount < _UNIT or unit == _UNITS[-1]:
            break
        amount /= _UNIT
    return f"{size} {unit}" if unit == _UNITS[0] else f"{amount:.1f} {unit}"


def _chosen(parameters: Mapping[str, list[str]], name: str, known: Mapping[str, object]) -> str:
    text = only(parameters, name) or next(iter(known))
    if text not in known:
        raise Invalid(f"{name} must be one of {', '.join(known)}", field=name)
    return text


def _set_up(address: ProxyAddress, audience: str, client_name: str, provider_name: str) -> SetUp:
    client, provider = _CLIENTS[client_name], _PROVIDERS[provider_name]
    project = project_snippet(client, address)
    once = [] if project is None else [TitledSnippet("In the project’s pyproject.toml", project)]

    def href(client: str, provider: str) -> str:
        path = url_for("dashboard_proxy.proxy_page", slug=address.org)
        return f"{path}?client={client}&provider={provider}#set-up"

    job = TitledSnippet(
        f"The job, {provider.facts.product}" if provider is not CiProvider.OTHER else "The job",
        job_snippet(client, provider, address, audience),
    )
    return SetUp(
        clients=[
            Choice(words, href(name, provider_name), name == client_name)
            for name, words in CLIENT_WORDS.items()
        ],
        providers=[
            Choice(
                _OTHER if one is CiProvider.OTHER else one.facts.product,
                href(client_name, name),
                name == provider_name,
            )
            for name, one in _PROVIDERS.items()
        ],
        with_command=[*once, job],
        without_command=[
            TitledSnippet("Get the job’s token", exchange_snippet(provider, address, audience)),
            TitledSnippet(
                f"Install with {CLIENT_WORDS[client_name]}", client_snippet(client, address)
            ),
        ],
    )
