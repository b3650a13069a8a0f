"""The page about the install proxy."""

from collections.abc import Mapping
from typing import Any, Final

from quart import Blueprint, url_for

from analytics.model.errors import StoreFault
from service.access.roles import Capability
from service.audit.tenant_log import open_log
from service.ci.providers import CiProvider
from service.core.errors import Invalid, StoreUnavailable
from service.packages.clients import (
    ProxyAddress,
    Snippet,
    client_snippet,
    exchange_snippet,
    job_snippet,
    laptop_snippet,
)
from service.packages.ecosystem import EcosystemFacts
from service.packages.ecosystems import CLIENTS, ECOSYSTEMS
from service.packages.proxy.answers import UpstreamHealth
from service.packages.proxy.circuit_breaker import CircuitState
from service.packages.proxy.disk_cache import Usage
from service.packages.proxy.registries import PackageCaches, PackageRegistry
from service.packages.proxy.services import ProxyServices
from service.pages.navigation import may
from service.pages.page import Page, PageCall, View
from service.pages.services import DashboardServices
from service.pages.state import PageState
from service.pages.streaming import Later
from service.pages.summary_panel import load_groups
from service.store.tables import Organisation
from service.web.dependencies import group_of
from service.web.models import Request

blueprint = Blueprint("dashboard_proxy", __name__, url_prefix="/admin/ui/orgs/<slug>/proxy")


WINDOW: Final = "24h"
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_UNIT: Final = 1024

_PROVIDERS: Final = {provider.facts.name: provider for provider in CiProvider}
_OTHER: Final = "Another provider"


class ProxyQuery(Request):
    """Whose lines the page shows; empty: the first's."""

    client: str = ""
    provider: str = ""


@Page(
    blueprint,
    "",
    "proxy.html",
    needs=Capability.POLICY_READ,
    query=ProxyQuery,
    is_streamed=True,
)
async def proxy_page(call: PageCall, query: ProxyQuery) -> View:
    """The proxy's registries, cache and installs, and how clients are set up. Raises Invalid."""
    services, org, now = call.services, call.org, call.services.clock()
    address = ProxyAddress(services.settings.public_url, org.slug)
    client = _chosen("client", query.client, CLIENTS)
    provider = _chosen("provider", query.provider, _PROVIDERS)
    state = _installs_of(org)
    installs = None
    if may(call.caller, Capability.AUDIT_READ, org):
        log = await open_log(services.store, services.audit.lake, org, now)
        installs = Later(lambda: load_groups(services.store, log, state, ["ecosystem"], now))
    registries = group_of(ProxyServices).registries
    upstreams = [
        _upstream(facts, address, registries[ecosystem].public)
        for ecosystem, facts in ECOSYSTEMS.items()
    ]
    return {
        "is_configured": any(upstream["url"] for upstream in upstreams),
        "upstreams": upstreams,
        "cache": Later(lambda: _cache_usage(services)),
        "installs": installs,  # None for callers who may not read the audit log
        "all_installs": state,
        "set_up": _set_up(address, services.settings.audience, client, provider),
    }


def _installs_of(org: Organisation) -> PageState:
    """The audit page with the installs of the last day."""
    path = url_for("dashboard.audit_page", slug=org.slug)
    return PageState({"last": (WINDOW,), "decision": ("ALLOWED", "BLOCKED")}, path)


def _upstream(
    facts: EcosystemFacts[Any],
    address: ProxyAddress,
    public: PackageRegistry[Any] | None,
) -> View:
    """One ecosystem's registry, without its credentials; `url` is None if none is configured."""
    named = {
        "words": facts.label,
        "address": facts.address(address),
        "setting": f"COUNTERSIGN_PROXY_{facts.ecosystem.upper()}_UPSTREAM",
    }
    if public is None:
        return named | {"url": None, "state": "none"}
    upstream = public.upstream
    registry, health = upstream.registry, upstream.health
    not_asked = [
        str(origin)
        for origin, circuit in upstream.circuits.items()
        if circuit.state is not CircuitState.CLOSED
    ]
    return named | {
        "url": registry.url,
        "has_credentials": registry.authorization is not None,
        "file_origins": sorted(map(str, registry.file_origins)),
        "health": health,
        "not_asked": not_asked,  # they did not answer, and are asked again after a pause
        "state": "paused" if not_asked else _state(health),
    }


def _state(health: UpstreamHealth) -> str:
    """`unasked`, `answers` or `fails`, by this process's last request."""
    answered_at, failed_at = health.answered_at, health.failed_at
    if failed_at is not None and (answered_at is None or failed_at > answered_at):
        return "fails"
    return "unasked" if answered_at is None else "answers"


async def _cache_usage(services: DashboardServices) -> View | None:
    """What the cache holds, in words and in percent of its limit; None if that cannot be read."""
    caches = group_of(PackageCaches)
    try:
        files = await caches.files.usage()
    except (OSError, StoreFault, StoreUnavailable):
        return None
    documents: Usage = await caches.documents.usage()
    size, limit = files.bytes + documents.bytes, services.settings.proxy_cache_bytes_max
    return {
        "files": files.files,
        "documents": documents.files,
        "size": in_units(size),
        "limit": in_units(limit),
        "percent": min(100, round(100 * size / limit)),
    }


def in_units(size: int) -> str:
    """`size` in bytes as people read it: `640.0 MiB`."""
    amount, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if amount < _UNIT or unit == _UNITS[-1]:
            break
        amount /= _UNIT
    return f"{size} {unit}" if unit == _UNITS[0] else f"{amount:.1f} {unit}"


def _chosen(name: str, text: str, known: Mapping[str, object]) -> str:
    chosen = text or next(iter(known))
    if chosen not in known:
        raise Invalid(f"{name} must be one of {', '.join(known)}", field=name)
    return chosen


def _set_up(address: ProxyAddress, audience: str, client_name: str, provider_name: str) -> View:
    """The lines for one client and one provider, and the others to choose from."""
    client, provider = CLIENTS[client_name], _PROVIDERS[provider_name]
    once = []
    if client.project is not None:
        once = [_snippet("In the project’s pyproject.toml", client.project(address))]
    product = f", {provider.facts.product}" if provider is not CiProvider.OTHER else ""
    job = _snippet(f"The job{product}", job_snippet(client, provider, address, audience))

    def choice(words: str, client: str, provider: str, *, is_current: bool) -> View:
        path = url_for("dashboard_proxy.proxy_page", slug=address.org)
        href = f"{path}?client={client}&provider={provider}#set-up"
        return {"words": words, "href": href, "is_current": is_current}

    return {
        "clients": [
            choice(each.label, name, provider_name, is_current=each is client)
            for name, each in CLIENTS.items()
        ],
        "providers": [
            choice(
                _OTHER if each is CiProvider.OTHER else each.facts.product,
                client_name,
                name,
                is_current=name == provider_name,
            )
            for name, each in _PROVIDERS.items()
        ],
        "with_command": [
            *once,
            job,
            _snippet("On a member’s own machine", laptop_snippet(client, address)),
        ],
        "without_command": [
            _snippet("Get the job’s token", exchange_snippet(provider, address, audience)),
            _snippet(f"Install with {client.label}", client_snippet(client, address)),
        ],
    }


def _snippet(title: str, snippet: Snippet) -> View:
    """Text to paste, and where it goes."""
    return {"title": title, "snippet": snippet}
