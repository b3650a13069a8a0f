"""Endpoints about the service itself: health, readiness, metrics and the API's documentation."""

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct
from quart import Blueprint, Request, Response, current_app, request
from quart.typing import ResponseReturnValue

from analytics.export.compression import Compression, compressed
from service.app.scrapes import Scrapes
from service.audit.lake import Lake
from service.core.errors import StoreUnavailable, Unauthenticated, file_fault
from service.core.threads import in_thread
from service.core.version import service_version
from service.store.store import Store
from service.store.verification import count_damaged
from service.web.compression import content_coding
from service.web.dependencies import group_of
from service.web.documentation import CiTokenUse, Documentation, Tag
from service.web.openapi import openapi_document
from service.web.reference import (
    EXPORTS,
    FIND_CHARS_MAX,
    Operation,
    curl,
    matching,
    operations,
    refusals,
    rule,
    shared_parameters,
    shared_refusals,
)
from service.web.responses import JSON_TYPE, json_answer
from service.web.templates import render_template

_EXTENSION: Final = "countersign.static_responses"
_LOCK: Final = f"{_EXTENSION}.lock"
_DOCUMENT: Final = f"{_EXTENSION}.document"


class StaticResponse:
    """Static content with an ETag, unencoded and in each content coding."""

    def __init__(self, content: bytes, content_type: str) -> None:
        self._bodies = {coding: compressed(content, coding) for coding in (None, *Compression)}
        self._content_type = content_type
        self._etag = hashlib.sha256(content).hexdigest()[:32]

    async def to(self, request: Request) -> Response:
        """The response to `request`: 304 if its client has the content (RFC 9110, 13.1.2)."""
        coding = content_coding(request)
        response = Response(self._bodies[coding], content_type=self._content_type)
        if coding is not None:
            response.headers["content-encoding"] = coding.value
        response.vary.add("accept-encoding")
        response.cache_control.no_cache = True  # cacheable, but must be revalidated
        response.set_etag(f"{self._etag}-{coding or 'identity'}")
        return await response.make_conditional(request)


async def cached(name: str, make: Callable[[], Awaitable[StaticResponse]]) -> StaticResponse:
    """The response that this app caches under `name`; `make` creates it on first use."""
    cache: dict[str, StaticResponse] = current_app.extensions.setdefault(_EXTENSION, {})
    if name not in cache:
        # Made once, however many ask first: a flood would else occupy all threads for seconds.
        async with current_app.extensions.setdefault(_LOCK, asyncio.Lock()):
            if name not in cache:
                cache[name] = await make()
    return cache[name]


blueprint = Blueprint("system", __name__)

READY_WITHIN_S: Final = 2.0
"""Orchestrators' probes wait for one to a few seconds; a locked database is waited for longer."""


@dataclass(frozen=True, slots=True)
class SystemServices:
    """Services behind the readiness and metrics endpoints."""

    store: Store
    lake: Lake
    scrapes: Scrapes
    metrics_token: str | None
    """None: anyone may read the metrics."""
    circuits: Callable[[], dict[str, str]]
    """The state of the circuit of each public package registry, by ecosystem."""


class Ready(Struct, omit_defaults=True):
    """The service's status, and how much of what is stored is damaged: the rest can be read."""

    status: str
    damaged: int = 0


class Alive(Struct, omit_defaults=True):
    """The service's status, the version that runs, and the registries that are not asked."""

    status: str
    version: str
    registries: dict[str, str] = {}


@blueprint.get("/healthz")
@Documentation("get_health", Tag.SYSTEM, answers={200: Alive}, credentials=())
async def healthz() -> ResponseReturnValue:
    """Report that the process is responding, its version, and whether it asks each registry."""
    services = group_of(SystemServices)
    # Still "ok" without a registry: a restart would not bring it back, and end what goes on.
    registries = services.circuits()
    return json_answer(Alive(status="ok", version=service_version(), registries=registries))


@blueprint.get("/readyz")
@Documentation("get_readiness", Tag.SYSTEM, answers={200: Ready}, credentials=())
async def readyz() -> ResponseReturnValue:
    """Report whether requests can be served: the database and the data dir respond."""
    services = group_of(SystemServices)
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await services.store.ping()
            await services.lake.ping()
            damaged = await services.store.cached("damaged", count_damaged)
    except TimeoutError:
        raise StoreUnavailable from TimeoutError(f"no answer within {READY_WITHIN_S:g} s")
    except OSError as error:
        raise file_fault(error) from error
    return json_answer(Ready(status="ready", damaged=damaged))


@blueprint.get("/metrics")
@Documentation(
    "get_metrics",
    Tag.SYSTEM,
    answers={200: {"text/plain": str}},
    credentials=("metricsToken",),
    ci_token=CiTokenUse.IGNORED,
)
async def metrics() -> ResponseReturnValue:
    """Counters and gauges in Prometheus' text format."""
    services = group_of(SystemServices)
    if not _may_scrape(request, services.metrics_token):
        raise Unauthenticated
    return Response(await services.scrapes.get(), content_type="text/plain; version=0.0.4")


def _may_scrape(request: Request, token: str | None) -> bool:
    """True if the metrics are open, or if the request has the token in `Authorization: Bearer`."""
    if token is None:
        return True
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # In constant time: the duration must not tell how much of a guess is right. Without a token
    # nothing matches, not even an empty one.
    is_right = hmac.compare_digest(given.encode(errors="replace"), token.encode())
    return bool(token) and scheme.lower() == "bearer" and is_right


@blueprint.get("/openapi.json")
async def openapi() -> ResponseReturnValue:
    """Every endpoint, parameter, body, answer and error of this API."""
    return await (await cached("openapi", _openapi)).to(request)


@blueprint.get("/docs")
async def docs() -> ResponseReturnValue:
    """Show the API's documentation as a page, or the endpoints that `q` finds."""
    page = await cached("docs", _docs)
    text = " ".join(request.args.get("q", "").split())[:FIND_CHARS_MAX]
    if not text:
        return await page.to(request)
    document = current_app.extensions[_DOCUMENT]
    return await _reference(document, matching(document, text), q=text)


async def _openapi() -> StaticResponse:
    return await in_thread(lambda: StaticResponse(msgspec.json.encode(_document()), JSON_TYPE))


async def _docs() -> StaticResponse:
    document = current_app.extensions[_DOCUMENT] = await in_thread(_document)
    page = await _reference(document, list(operations(document)))
    return await in_thread(StaticResponse, page.encode(), "text/html; charset=utf-8")


async def _reference(document: dict[str, Any], shown: Sequence[Operation], q: str = "") -> str:
    """The page with the operations `shown`, those of the search `q` if it is not empty."""
    shared = {} if q else shared_parameters(document)
    return await render_template(
        "docs.html",
        document=document,
        operations=shown,
        q=q,
        find_chars_max=FIND_CHARS_MAX,
        shared=shared,
        errors={} if q else shared_refusals(document),
        exports=EXPORTS,
        curl=curl,
        refusals=refusals,
        rule=rule,
    )


def _document() -> dict[str, Any]:
    """The API's description, which takes 50 ms to make."""
    return openapi_document(current_app, service_version())
