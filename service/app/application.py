"""The app: its endpoints, and what happens before and after each request."""

import asyncio
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import httpx2
import structlog
from quart import Quart, Request, Response, g, request
from quart.globals import app_ctx, request_ctx
from quart.typing import ResponseTypes
from werkzeug.datastructures import ImmutableDict
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.routing import BaseConverter
from werkzeug.wrappers import Response as BaseResponse

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.model.filters import InvalidQuery
from analytics.storage.suspects import segments_in
from service.app import declarations, system
from service.app.background_jobs import all_jobs, own_jobs
from service.app.composition import EXTENSION, Services, build_services
from service.audit import export_api, ingest, query_api, saved_searches, sql_api
from service.audit.alerts import alerts_api
from service.audit.evidence import evidence_api, report
from service.audit.ingest import INGEST_PATH_END
from service.audit.maintenance import Maintenance
from service.audit.streams import streams_api
from service.core.clock import Clock, utc_now
from service.core.errors import (
    RETRY_AFTER_S,
    SEGMENT_DAMAGED,
    STORAGE_DAMAGED,
    UNAVAILABLE,
    BodyTooLarge,
    Internal,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Refusal,
    StoreUnavailable,
    Unauthenticated,
)
from service.core.ids import new_request_id
from service.core.request_context import source_ip
from service.core.settings import REPOSITORY, Settings
from service.orgs import (
    domains,
    key_api,
    members,
    operator_api,
    organisations,
    projects,
    roles,
    teams,
)
from service.packages.attestations import attestation_api
from service.packages.install_tokens import exchange, machine_tokens
from service.packages.npm import routes as npm_routes
from service.packages.npm.audit_queries import QUERY_BYTES_MAX
from service.packages.npm.routes import QUERY_PATH
from service.packages.policy import blocklist_api, exceptions, policy_api
from service.packages.proxy import artifacts, blocked
from service.packages.pypi import routes as pypi_routes
from service.packages.retro import affected_api
from service.pages import alerts as alert_pages
from service.pages import (
    audit_page,
    exports,
    find_page,
    investigate,
    live,
    overview,
    profile,
    proxy,
    reports,
    sql,
)
from service.pages import streams as stream_pages
from service.pages.people import keys as key_pages
from service.pages.people import members as member_pages
from service.pages.people import projects as project_pages
from service.pages.people import roles as role_pages
from service.pages.people import teams as team_pages
from service.pages.policy import affected_page, check_page, exceptions_page, policy_page
from service.pages.refusals import refusal_page, wants_page
from service.pages.sign_in import device, passkey_routes, session_routes
from service.pages.sign_in import routes as sign_in_routes
from service.pages.trust import (
    advice_page,
    binding_page,
    bindings_page,
    create_page,
    explain_page,
    map_page,
    rejected_page,
    repository_page,
)
from service.trust import advice, trust_map
from service.trust.bindings import bindings_api, sync_api
from service.trust.bindings import operator_api as operator_bindings_api
from service.trust.explain import explain_api
from service.trust.rejected import rejected_api
from service.trust.reports import access_api
from service.web.asgi import guarded, with_headers
from service.web.bodies import BodyReceiver, ObservedBody
from service.web.compression import compress_answers
from service.web.dependencies import provide
from service.web.documentation import documentation_of
from service.web.endpoint import VARIABLE
from service.web.responses import error_answer
from service.web.templates import TemplateEnvironment
from service.web.turns import credentials_of, in_turns

AnyResponse = BaseResponse | Response

DENIED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""The statuses of requests without the rights that they need; their log lines say why."""

_OF_HTTP: dict[int, type[Refusal]] = {
    refusal.status: refusal for refusal in (NotFound, MethodNotAllowed, BodyTooLarge)
}


def answer_errors(app: Quart) -> None:
    """Register handlers that turn every error raised in `app` into a response."""
    app.register_error_handler(Refusal, _refused)
    app.register_error_handler(InvalidQuery, _invalid_query)
    app.register_error_handler(StoreFault, _store_fault)
    app.register_error_handler(StoreUnreachable, _store_unreachable)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(OSError, _os_error)
    app.register_error_handler(Exception, _internal)


async def _answer(text: str, status: int) -> AnyResponse:
    if wants_page(request):
        return await refusal_page(text, status)
    return error_answer(text, status)


async def _answer_as(refusal: Refusal | type[Refusal]) -> AnyResponse:
    answer = await _answer(refusal.text, refusal.status)
    if refusal.retry_after_s is not None:
        answer.headers["retry-after"] = str(refusal.retry_after_s)
    return answer


async def _refused(refusal: Refusal) -> AnyResponse:
    if isinstance(refusal, StoreUnavailable):
        _log.error("store_unavailable", reason=refusal.reason)
    if refusal.status in DENIED:
        # Only these: the texts of other refusals repeat what a client sent, which may be a secret.
        structlog.contextvars.bind_contextvars(reason=refusal.text)
    answer = await _answer_as(refusal)
    if isinstance(refusal, Unauthenticated):
        answer.headers["www-authenticate"] = refusal.challenge
    return answer


async def _invalid_query(error: InvalidQuery) -> AnyResponse:
    return await _answer(str(error), Invalid.status)


async def _store_fault(error: StoreFault) -> AnyResponse:
    _log.error("store_fault", reason=str(error))
    segments = segments_in(error)
    return await _answer_as(SEGMENT_DAMAGED(value=segments[0]) if segments else STORAGE_DAMAGED)


async def _store_unreachable(error: StoreUnreachable) -> AnyResponse:
    _log.error("store_unreachable", reason=str(error))
    return await _answer_as(StoreUnavailable)


async def _http_error(error: HTTPException) -> AnyResponse:
    refusal = _OF_HTTP.get(error.code or 500)
    text = refusal.text if refusal else (error.name or Internal.text).lower()
    answer = await _answer(text, error.code or 500)
    if isinstance(error, WrongMethod) and error.valid_methods:
        answer.headers["allow"] = ", ".join(sorted(error.valid_methods))
    return answer


async def _os_error(error: OSError) -> AnyResponse:
    if request.endpoint == "static":  # the file system rejects the name, so there is no such file
        return error_answer(NotFound.text, NotFound.status)
    return await _internal(error)


async def _internal(error: Exception) -> AnyResponse:
    _log.exception("internal_error", exc_info=error)
    return await _answer(Internal.text, Internal.status)


_log = structlog.get_logger(__name__)
_TEMPLATES = REPOSITORY / "templates"
_HSTS_S = 365 * 24 * 3600
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Never a path or a query, which can hold a sign-in token; but not `no-referrer`, with which
    # browsers send `Origin: null` for our own forms.
    "referrer-policy": "strict-origin",
    # No window of another site has a handle on ours, and no page of another site loads a file.
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


_BLUEPRINTS: Final = (
    system.blueprint,
    bindings_api.resource.blueprint,
    explain_api.resource.blueprint,
    rejected_api.resource.blueprint,
    sync_api.resource.blueprint,
    operator_bindings_api.resource.blueprint,
    policy_api.resource.blueprint,
    exceptions.resource.blueprint,
    blocklist_api.resource.blueprint,
    affected_api.resource.blueprint,
    attestation_api.resource.blueprint,
    artifacts.resource.blueprint,
    declarations.resource.blueprint,
    saved_searches.resource.blueprint,
    alerts_api.resource.blueprint,
    query_api.resource.blueprint,
    evidence_api.resource.blueprint,
    report.resource.blueprint,
    export_api.blueprint,
    export_api.resource.blueprint,
    sql_api.resource.blueprint,
    streams_api.resource.blueprint,
    ingest.blueprint,
    exchange.blueprint,
    organisations.resource.blueprint,
    members.resource.blueprint,
    domains.resource.blueprint,
    teams.resource.blueprint,
    projects.resource.blueprint,
    roles.resource.blueprint,
    key_api.resource.blueprint,
    machine_tokens.resource.blueprint,
    operator_api.resource.blueprint,
    pypi_routes.blueprint,
    npm_routes.blueprint,
    blocked.blueprint,
    access_api.resource.blueprint,
    trust_map.resource.blueprint,
    advice.resource.blueprint,
    sign_in_routes.links,
    sign_in_routes.blueprint,
    device.blueprint,
    device.page_blueprint,
    session_routes.blueprint,
    passkey_routes.blueprint,
    profile.blueprint,
    overview.home,
    audit_page.blueprint,
    live.blueprint,
    alert_pages.blueprint,
    stream_pages.blueprint,
    investigate.blueprint,
    bindings_page.blueprint,
    binding_page.blueprint,
    create_page.blueprint,
    repository_page.blueprint,
    explain_page.blueprint,
    map_page.blueprint,
    advice_page.blueprint,
    rejected_page.blueprint,
    exports.blueprint,
    sql.blueprint,
    find_page.blueprint,
    reports.blueprint,
    member_pages.blueprint,
    team_pages.blueprint,
    project_pages.blueprint,
    key_pages.blueprint,
    role_pages.blueprint,
    policy_page.blueprint,
    check_page.blueprint,
    exceptions_page.blueprint,
    affected_page.blueprint,
    proxy.blueprint,
)


class RowName(BaseConverter):
    """An audit row's id: anything but the name of a sibling endpoint.

    Without this a GET of `…/audit/events` would look up a row of that name, and a wrong method
    would be answered with `Allow: GET`.
    """

    regex = r"(?!(?:events|reviews|searches)\Z)[^/]+"


class BindingName(BaseConverter):
    """A binding's id: anything but the name of a sibling endpoint."""

    regex = r"(?!(?:explain|rejected|revoke|sync)\Z)[^/]+"


class App(Quart):
    """Quart with the defaults this service needs before the first route is added."""

    asgi_http_class = BodyReceiver

    default_config = ImmutableDict(
        {
            **Quart.default_config,
            "PROPAGATE_EXCEPTIONS": False,
            "PROVIDE_AUTOMATIC_OPTIONS": False,
            # Seconds: after an upgrade a browser must not show new pages with an old stylesheet.
            "SEND_FILE_MAX_AGE_DEFAULT": 300,
        }
    )

    async def handle_request(self, request: Request) -> ResponseTypes:
        """The answer to `request`, whose organisation takes the event loop in fair turns."""
        services: Services = self.extensions[EXTENSION]
        address = source_ip(request, services.settings.trusted_proxies)
        return await in_turns(
            services.loop_turns,
            address,
            super().handle_request(request),
            credentials_of(request),
        )


def _bounded_requests(app: Quart, settings: Settings) -> type[Request]:
    """Requests whose bodies are bounded from their first byte, as the endpoints declare it."""

    class BoundedRequest(Request):
        body_class = ObservedBody
        long_bodies = _long_bodies(app)

        def __init__(
            self,
            method: str,
            scheme: str,
            path: str,
            *rest: Any,  # noqa: ANN401 - as declared by Quart
            **named: Any,  # noqa: ANN401
        ) -> None:
            # By the path, because the limit applies to bytes that arrive before the request is
            # routed.
            if path.endswith(INGEST_PATH_END):
                named["max_content_length"] = settings.ingest_bytes_max
            elif path.startswith("/proxy/") and QUERY_PATH in path:
                named["max_content_length"] = QUERY_BYTES_MAX
            else:
                for declared, bytes_max in self.long_bodies.items():
                    if declared.fullmatch(path):
                        named["max_content_length"] = bytes_max
            super().__init__(method, scheme, path, *rest, **named)

    return BoundedRequest


def _long_bodies(app: Quart) -> dict[re.Pattern[str], int]:
    """The paths to which bodies are sent that are longer than any other, and their bytes."""
    return {
        re.compile(VARIABLE.sub("[^/]+", rule.rule)): declared.request_bytes_max
        for rule in app.url_map.iter_rules()
        if (declared := documentation_of(app.view_functions[rule.endpoint])) is not None
        and declared.request_bytes_max > 0
    }


def create_app(
    settings: Settings,
    clock: Clock = utc_now,
    transport: httpx2.AsyncBaseTransport | None = None,
    *,
    jobs: Callable[[Services], list[Maintenance]] = all_jobs,
) -> Quart:
    """The app for a data dir that `service.app.bootstrap.prepare` has prepared.

    Issuers are asked for their keys through `transport`; None is the network. `jobs` are those of
    the data dir that this process does itself, beside those of each process.
    """
    app = app_of(build_services(settings, clock, transport))
    _run_in_background(app, jobs)
    return app


def app_of(
    services: Services,
    answer: Callable[[Quart], None] = answer_errors,
    requests: type[Request] | None = None,
) -> Quart:
    """The app over `services`, without background jobs; `answer` says what becomes of errors.

    Its `requests` are those that bound their bodies, unless others are given.
    """
    settings = services.settings
    app = App(
        "service",
        template_folder=str(_TEMPLATES),
        static_folder=str(_TEMPLATES / "static"),
        static_url_path="/static",
    )
    app.jinja_environment = TemplateEnvironment  # type: ignore[assignment] # an async one there
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True}
    app.config["MAX_CONTENT_LENGTH"] = settings.body_bytes_max
    app.url_map.converters["binding"] = BindingName
    app.url_map.converters["row"] = RowName
    app.url_map.merge_slashes = False  # a path is what was sent, not what was meant
    app.extensions[EXTENSION] = services
    provide(app, services.groups())
    for blueprint in _BLUEPRINTS:
        app.register_blueprint(blueprint)
    app.request_class = requests or _bounded_requests(app, settings)
    answer(app)
    _frame_requests(app)
    compress_answers(app)
    # Quart's own way to put something in front of an app.
    headers = _headers(settings)
    app.asgi_app = with_headers(guarded(app.asgi_app), headers)  # type: ignore[assignment, method-assign]
    return app


def _frame_requests(app: Quart) -> None:
    """Give each request its id, and each answer that id, its log line and metrics."""
    services: Services = app.extensions[EXTENSION]

    @app.before_request
    async def begin() -> None:
        g.request_id = new_request_id()
        g.began_at = time.monotonic()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=g.request_id)
        if request.scope["path"].startswith("//"):
            raise NotFound  # routing would serve it as if one slash had been sent

    @app.after_request
    async def end(response: Response) -> Response:
        # Quart's proxies resolve the context at every access, which takes longer than the access.
        answered, context = request_ctx.request, app_ctx.g
        seconds = time.monotonic() - context.began_at
        route = answered.url_rule.rule if answered.url_rule else "none"
        response.headers["x-request-id"] = context.request_id
        if response.status_code == UNAVAILABLE:  # also a page or the proxy's own, not a refusal
            response.headers.setdefault("retry-after", str(RETRY_AFTER_S))
        if _has_unread_body(answered):
            response.headers["connection"] = "close"
        services.metrics.answered(answered.method, route, response.status_code, seconds)
        if response.status_code < HTTPStatus.BAD_REQUEST and "caller" in context:
            endpoint = answered.endpoint or ""
            services.audit_reads.record(endpoint, *context.caller, at=services.clock())
        # The path without its query: a query can carry a sign-in token.
        _log.info(
            "request",
            method=answered.method,
            path=answered.path,
            status=response.status_code,
            ms=round(seconds * 1000, 2),
            **_denied_to(answered, response, services.settings),
        )
        return response


def _denied_to(request: Request, response: Response, settings: Settings) -> dict[str, str | None]:
    """For the log line of a denied request: the address that it came from."""
    if response.status_code not in DENIED:
        return {}
    return {"source_ip": source_ip(request, settings.trusted_proxies)}


def _headers(settings: Settings) -> dict[str, str]:
    """What every answer carries."""
    if not settings.public_url.startswith("https:"):
        return _HEADERS  # browsers ignore the promise below over http (RFC 6797, 8.1)
    return _HEADERS | {"strict-transport-security": f"max-age={_HSTS_S}"}


def _has_unread_body(request: Request) -> bool:
    """True if the response is sent before the whole body: the server then closes the connection.

    The client must be told (RFC 9112, 9.6), or it sends its next request into a closed connection.
    """
    if isinstance(request.body, ObservedBody) and request.body.is_complete:
        return False
    headers = request.headers
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return request.http_version == "1.1" and has_body


def _run_in_background(app: Quart, jobs: Callable[[Services], list[Maintenance]]) -> None:
    """Run background jobs while the app serves; close everything after the last request."""
    services: Services = app.extensions[EXTENSION]
    stop = asyncio.Event()

    @app.before_serving
    async def start() -> None:
        running = [loop.run(stop) for loop in own_jobs(services) + jobs(services)]
        warming = (services.keys.warm_up(), services.lake.queries.warm_up())
        app.extensions["background"] = asyncio.gather(*warming, *running, return_exceptions=True)

    @app.after_serving
    async def finish() -> None:
        stop.set()
        services.scrubber.stop()
        services.checkpointer.stop()
        services.live.end()
        await services.keys.close()  # requests that wait for an issuer get the cached keys
        await services.sign_in.close()
        await services.proxy.close()  # so do background jobs that wait for a registry
        # Before the background jobs end: a merge may take longer than the server waits for us.
        await services.flush()
        for ended in await app.extensions["background"]:
            if isinstance(ended, Exception):  # a loop logs its own: this one never began
                _log.error("background_failed", exc_info=ended)
        await services.close()
