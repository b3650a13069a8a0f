"""Endpoints about the service itself: is it there, is it well, what does it offer."""

import asyncio
import hmac
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct
from quart import Blueprint, Request, Response, current_app, render_template, request
from quart.typing import ResponseReturnValue

from service.errors import StoreUnavailable, Unauthenticated
from service.lake import Lake, file_fault
from service.metrics import Metrics
from service.store.storage_stats import storage_stats_by_tenant
from service.store.store import Store
from service.web.dependencies import receives
from service.web.openapi import documented, openapi_document
from service.web.responses import JSON_TYPE, json_answer
from service.web.static_responses import FixedAnswer, fixed_answer

blueprint = Blueprint("system", __name__)

READY_WITHIN_S: Final = 2.0
"""An orchestrator's probe waits a second or a few; a locked database is waited for longer."""


@dataclass(frozen=True, slots=True)
class SystemServices:
    """What tells how the service is."""

    store: Store
    lake: Lake
    metrics: Metrics
    metrics_token: str


class Health(Struct):
    """The service's own word on how it is."""

    status: str


@blueprint.get("/healthz")
@documented(answers={200: Health}, credentials=())
async def healthz() -> ResponseReturnValue:
    """Say whether the process answers at all."""
    return json_answer(Health(status="ok"))


@blueprint.get("/readyz")
@documented(answers={200: Health}, credentials=())
@receives(SystemServices)
async def readyz(services: SystemServices) -> ResponseReturnValue:
    """Say whether requests can be served: the database and the data dir answer."""
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await services.store.ping()
            await services.lake.ping()
    except TimeoutError:
        raise StoreUnavailable from TimeoutError(f"no answer within {READY_WITHIN_S:g} s")
    except OSError as error:
        raise file_fault(error) from error
    return json_answer(Health(status="ready"))


@blueprint.get("/metrics")
@documented(media={"text/plain": str}, credentials=(), refusals=[Unauthenticated])
@receives(SystemServices)
async def metrics(services: SystemServices) -> ResponseReturnValue:
    """Counters and gauges in Prometheus' text format."""
    if not _may_scrape(request, services.metrics_token):
        raise Unauthenticated
    async with services.store.read() as session:
        stored = await storage_stats_by_tenant(session)
    services.metrics.stored(stored)
    return Response(services.metrics.exposition(), content_type="text/plain; version=0.0.4")


def _may_scrape(request: Request, token: str) -> bool:
    """True without a token of its own; else with `Authorization: Bearer` and the token."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    is_right = hmac.compare_digest(given.encode(errors="replace"), token.encode())
    return not token or (scheme.lower() == "bearer" and is_right)


@blueprint.get("/openapi.json")
async def openapi() -> ResponseReturnValue:
    """Every endpoint, parameter, body, answer and error of this API."""
    return await (await fixed_answer("openapi", _openapi)).to(request)


@blueprint.get("/docs")
async def docs() -> ResponseReturnValue:
    """Show the API to a person."""
    return await (await fixed_answer("docs", _docs)).to(request)


async def _openapi() -> FixedAnswer:
    return FixedAnswer(msgspec.json.encode(openapi_document(current_app)), JSON_TYPE)


async def _docs() -> FixedAnswer:
    page = await render_template("docs.html", document=openapi_document(current_app))
    return FixedAnswer(page.encode(), "text/html; charset=utf-8")
