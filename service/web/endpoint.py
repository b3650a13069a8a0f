"""Declares the endpoints of an organisation's resources: what a caller needs, sends and receives.

What all of them have in common is done here, in this order: authenticate (401), find the
organisation (404), authorise (403), refuse unknown parameters, read and parse query and body (400),
open one transaction in which a change is authorised again, call the handler, encode its answer.

A handler that reads receives a `Call`, one that changes something a `WriteCall`. The latter becomes
an `Action`, which pages bind their forms to. What an endpoint declares about itself is its entry in
the OpenAPI document.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from quart import Blueprint, Response, request
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.rows import AuditContext, VerdictSource
from service.access.callers import ApiKeyPrincipal, Caller
from service.access.refusals import KEY_CANNOT_CHANGE, SignInAgain
from service.access.roles import KEY_SCOPES, Capability
from service.core.errors import BodyTooLarge, Forbidden, OrgNotFound, Refusal
from service.store.store import UnitOfWork
from service.store.tables import Organisation
from service.web.dependencies import BaseServices, group_of
from service.web.documentation import (
    JSON,
    MEMBERS,
    READERS,
    Documentation,
    MediaTypes,
    Tag,
)
from service.web.models import (
    OCTETS,
    Answer,
    Body,
    Parameters,
    Parsed,
    ParsedQuery,
    Precondition,
    Raw,
    RawBytes,
    SecretAnswer,
    Upload,
    model_of,
    parsed_body,
    query_model_of,
    refusals_of,
)
from service.web.refusals import (
    BODY_REFUSALS,
    NOT_AN_OBJECT,
    UNKNOWN_PARAMETER,
    WRONG_MEDIA_TYPE,
)
from service.web.request_parsing import (
    all_parameters,
    json_bytes,
    json_object,
    query_parameters,
)
from service.web.responses import json_answer

VARIABLE: Final = re.compile(r"<(?:\w+:)?(\w+)>")
_OF_ORG: Final = (Forbidden, OrgNotFound)


_S = TypeVar("_S", bound=BaseServices)
_S_co = TypeVar("_S_co", bound=BaseServices, covariant=True)
_Call = TypeVar("_Call")
_Parsed = TypeVar("_Parsed")
_Answer = TypeVar("_Answer", bound=Answer)
_Variables = ParamSpec("_Variables")
"""The variables of the path, each a text."""

EndpointHandler = Callable[..., Awaitable[Any]]
Route = Callable[..., Awaitable[Response]]
Before = Callable[[UnitOfWork, Caller], Awaitable[None]]
"""What is done in a change's transaction, once its caller is authorised, before its handler."""

Prepare = Callable[["Call[Any]", Any], Awaitable[Any]]
"""Receives the authorised call and what is parsed, and returns what the handler receives."""

Reads: TypeAlias = Callable[Concatenate[_Call, _Variables], Awaitable[_Answer | Response]]
ReadsOf: TypeAlias = Callable[
    Concatenate[_Call, _Parsed, _Variables], Awaitable[_Answer | Response]
]
"""A handler that also receives what is sent, parsed."""

Writes: TypeAlias = Callable[Concatenate[_Call, _Variables], Awaitable[_Answer]]
WritesOf: TypeAlias = Callable[Concatenate[_Call, _Parsed, _Variables], Awaitable[_Answer]]


class Options(TypedDict, total=False):
    """What an endpoint declares besides what it takes and answers.

    `refuses` is what it refuses besides what all do. `headers` are those of its answer, with their
    meanings.
    """

    refuses: Sequence[type[Refusal]]
    headers: Mapping[str, str]


class ReadOptions(Options, total=False):
    """Also of an endpoint that changes nothing.

    For callers with `needs`, or `alternative`. `media` are further types of the answer; a handler
    of such, or of header fields of its own, returns a Response in place of the model. Requests that
    a page repeats by itself do not keep a session alive (`keeps_alive`).
    """

    needs: Required[Capability]
    alternative: Capability
    media: MediaTypes
    keeps_alive: bool


class ChangeOptions(Options, total=False):
    """Also of an endpoint that changes something.

    For callers with `needs`; None: for every member. A change that `is_sensitive` gives access: it
    needs a recent sign-in. With `if_match`, the handler finds in `call.replaces` the revision that
    the caller has seen. `prepare` completes what is parsed before the transaction, whose handler
    must not read what takes long: others wait for it.
    """

    needs: Required[Capability | None]
    status: int
    is_sensitive: bool
    prepare: "Prepare"
    if_match: type[Precondition]


@dataclass(frozen=True, slots=True)
class BaseCall(Generic[_S_co]):
    """An authorised call of an endpoint, and by whom."""

    services: _S_co
    caller: Caller

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """One read transaction."""
        return self.services.store.read()

    @property
    def by(self) -> AuditContext:
        """The caller in audit rows."""
        return self.caller.audit_context


@dataclass(frozen=True, slots=True)
class Call(BaseCall[_S_co]):
    """An authorised call of an endpoint: by whom, in which organisation."""

    org: Organisation


@dataclass(frozen=True, slots=True)
class WriteCall(Call[_S_co]):
    """A call in its one write transaction; caller and organisation are as they are in it."""

    work: UnitOfWork
    replaces: int | None = None
    """The revision that the caller has seen, of what has revisions; None for any."""

    @property
    def session(self) -> AsyncSession:
        """The session of the transaction."""
        return self.work.session


@dataclass(frozen=True, slots=True)
class Action(Generic[_S, _Parsed, _Answer]):
    """A change with all that it needs: the API and pages run the same one.

    `needs` is the capability of its callers; None: every member may.
    """

    handler: Callable[..., Awaitable[_Answer]]
    services: type[_S]
    needs: Capability | None
    body: Body[_Parsed] | None
    is_sensitive: bool
    query: Parameters[_Parsed] | None = None
    prepare: Prepare | None = None

    async def run(
        self,
        caller: Caller,
        org: Organisation,
        given: dict[str, Any],
        variables: Mapping[str, str],
        before: Before | None = None,
    ) -> _Answer:
        """Parse `given`, and make the change in one transaction, with `caller` authorised in it.

        It is the body, or the texts of the query; without either, it is not looked at.
        """
        parsed: tuple[_Parsed, ...] = ()
        if self.body is not None:
            parsed = (await parsed_body(self.body, given),)
        elif self.query is not None:
            parsed = (self.query.parse_texts({name: [text] for name, text in given.items()}),)
        return await self.run_parsed(caller, org, parsed, variables, before)

    async def run_parsed(
        self,
        caller: Caller,
        org: Organisation,
        parsed: Sequence[_Parsed],
        variables: Mapping[str, str],
        before: Before | None = None,
        replaces: int | None = None,
    ) -> _Answer:
        """As `run`, with what is `parsed` already: one value, or none if the handler takes none."""
        services = group_of(self.services)
        if self.prepare is not None:
            parsed = [await self.prepare(Call(services, caller, org), *parsed)]
        async with self._transaction(services, caller, org) as (work, present, present_org):
            if before is not None:
                await before(work, present)
            call = WriteCall(services, present, present_org, work, replaces)
            return await self.handler(call, *parsed, **variables)

    def _transaction(
        self, services: _S, caller: Caller, org: Organisation
    ) -> AbstractAsyncContextManager[tuple[UnitOfWork, Caller, Organisation]]:
        if self.needs is None:
            return services.access.change_as_member(caller, org)
        return services.access.change(caller, org, self.needs, is_sensitive=self.is_sensitive)


@dataclass(frozen=True, slots=True)
class Taken:
    """What an endpoint takes of a request: parameters, a body (of which there is an `example`)."""

    query: Parameters[Any] | None
    body: Body[Any] | Raw | Upload | None = None
    example: Mapping[str, object] | None = None

    @property
    def bytes_max(self) -> int:
        """How many bytes a body may have, if that is more than any body may have; else 0."""
        return self.body.bytes_max if isinstance(self.body, Parsed | Raw | Upload) else 0

    def check(self, handler: EndpointHandler, path: str, further: int = 0) -> None:
        """Raise TypeError unless `handler` takes the variables of `path` after what is sent.

        `further` arguments stand between the two. A body of JSON needs an example.
        """
        if (self.example is None) != (self.body is None or isinstance(self.body, Upload)):
            raise TypeError(f"{handler.__name__} has a body without an example, or the reverse")
        arguments = 1 + (self.query is not None) + (self.body is not None) + further
        names = list(inspect.signature(handler).parameters)
        if set(names[arguments:]) != set(VARIABLE.findall(path)):
            raise TypeError(f"{handler.__name__} does not take the variables of its path: {path}")

    async def sent(self) -> tuple[Any, ...]:
        """What the current request sends, parsed. Raises as the two below."""
        return (*self.sent_query(), *await self.sent_body())

    def sent_query(self, others: Sequence[str] = ()) -> tuple[Any, ...]:
        """The current request's parameters apart from the `others`, if any are taken.

        Raises UNKNOWN_PARAMETER, InvalidQuery, Invalid.
        """
        query = self.query
        if isinstance(query, ParsedQuery) and query.checks_names:
            return (query.parse_texts(all_parameters(request)),)
        model = query_model_of(query)
        names = () if model is None else model.__struct_fields__
        given = query_parameters(request, (*names, *others))
        if query is None:
            return ()
        return (query.parse_texts({name: given[name] for name in names if name in given}),)

    async def sent_body(self) -> tuple[Any, ...]:
        """The current request's body, if one is taken that is JSON.

        Raises Invalid and BODY_REFUSALS.
        """
        if self.body is None or isinstance(self.body, Upload):
            return ()
        if isinstance(self.body, Raw):
            return (await json_bytes(request, self.bytes_max),)
        return (await parsed_body(self.body, await json_object(request, self.bytes_max)),)

    def refusals(
        self, of_callers: Sequence[type[Refusal]], own: Sequence[type[Refusal]]
    ) -> list[type[Refusal]]:
        """What is refused: input, callers, and what the endpoint refuses itself."""
        if isinstance(self.body, Upload):
            of_file = (BodyTooLarge, WRONG_MEDIA_TYPE)
            return [*refusals_of(self.query), UNKNOWN_PARAMETER, *of_callers, *own, *of_file]
        of_input = (*refusals_of(self.query), *refusals_of(self.body))
        if self.body is None:
            return [*of_input, UNKNOWN_PARAMETER, *of_callers, *own]
        return [*of_input, NOT_AN_OBJECT, UNKNOWN_PARAMETER, *of_callers, *own, *BODY_REFUSALS]


class EndpointGroup:
    """Registers handlers below one path."""

    def __init__(self, name: str, path: str, tag: Tag) -> None:
        self.blueprint = Blueprint(name, __name__, url_prefix=path)
        self.tag = tag

    def add(
        self,
        method: str,
        path: str,
        handler: EndpointHandler,
        route: Route,
        takes: Taken,
        declared: Documentation,
    ) -> None:
        """Register `route` under the name of `handler`, whose docstring documents it.

        What it `takes` is added to what is `declared`. Raises TypeError unless `handler` takes the
        variables of `path` after what is sent.
        """
        takes.check(handler, path)
        route.__name__, route.__doc__ = handler.__name__, handler.__doc__
        describe = replace(
            declared,
            request=None if takes.body is None else model_of(takes.body),
            request_example=takes.example,
            request_bytes_max=takes.bytes_max,
            querystring=query_model_of(takes.query),
        )
        self.blueprint.add_url_rule(path, handler.__name__, describe(route), methods=[method])


class Resource(EndpointGroup, Generic[_S]):
    """The endpoints below one path of an organisation; their handlers receive `services`."""

    def __init__(self, name: str, path: str, tag: Tag, services: type[_S]) -> None:
        super().__init__(name, f"/api/v1/admin/orgs/<slug>{path}", tag)
        self._path = path
        self.services = services
        self.get = _Reads(self, "GET")
        self.post_read = _Reads(self, "POST")
        self.post = _Changes(self, "POST")
        self.put = _Changes(self, "PUT")
        self.delete = _Changes(self, "DELETE")

    def address(self, slug: str) -> str:
        """The path of the resource in an organisation."""
        return f"{request.root_path}/api/v1/admin/orgs/{slug}{self._path}"


@dataclass(frozen=True, slots=True)
class _Reads(Generic[_S]):
    """Registers handlers that change nothing. What is asked may be the body of a POST."""

    resource: Resource[_S]
    method: str

    # fmt: off
    @overload
    def __call__(
        self, operation: str, path: str = "", *, returns: type[_Answer],
        **options: Unpack[ReadOptions],
    ) -> Callable[
        [Reads[Call[_S], _Variables, _Answer]], Reads[Call[_S], _Variables, _Answer]
    ]: ...

    @overload
    def __call__(
        self, operation: str, path: str = "", *, returns: type[_Answer],
        query: Parameters[_Parsed] = ..., body: Body[_Parsed] = ...,
        example: Mapping[str, object] = ..., **options: Unpack[ReadOptions],
    ) -> Callable[
        [ReadsOf[Call[_S], _Parsed, _Variables, _Answer]],
        ReadsOf[Call[_S], _Parsed, _Variables, _Answer],
    ]: ...
    # fmt: on

    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        returns: type[Answer],
        query: Parameters[Any] | None = None,
        body: Body[Any] | None = None,
        example: Mapping[str, object] | None = None,
        **options: Unpack[ReadOptions],
    ) -> Callable[[EndpointHandler], EndpointHandler]:
        """Register a handler: see ReadOptions and the module."""
        needs, takes, group = options["needs"], Taken(query, body, example), self.resource.services
        body_type: MediaTypes = {OCTETS: None} if returns is RawBytes else {JSON: returns}

        def register(handler: EndpointHandler) -> EndpointHandler:
            async def route(slug: str, **variables: str) -> Response:
                services = group_of(group)
                caller, org = await services.access.authorize(
                    slug,
                    needs,
                    alternative=options.get("alternative"),
                    keeps_alive=options.get("keeps_alive", True),
                )
                sent = await takes.sent()
                return answered(await handler(Call(services, caller, org), *sent, **variables), 200)

            declared = Documentation(
                operation,
                self.resource.tag,
                answers={200: {**body_type, **options.get("media", {})}},
                refusals=takes.refusals(_OF_ORG, options.get("refuses", ())),
                credentials=READERS if needs in KEY_SCOPES else MEMBERS,
                headers=options.get("headers", {}),
                capability=needs,
            )
            self.resource.add(self.method, path, handler, route, takes, declared)
            return handler

        return register


@dataclass(frozen=True, slots=True)
class _Changes(Generic[_S]):
    """Registers handlers that change something, each in one transaction."""

    resource: Resource[_S]
    method: str

    # fmt: off
    @overload
    def __call__(
        self, operation: str, path: str = "", *, returns: type[_Answer],
        **options: Unpack[ChangeOptions],
    ) -> Callable[
        [Writes[WriteCall[_S], _Variables, _Answer]], Action[_S, None, _Answer]
    ]: ...

    @overload
    def __call__(
        self, operation: str, path: str = "", *, returns: type[_Answer],
        query: Parameters[_Parsed] = ..., body: Body[_Parsed] = ...,
        example: Mapping[str, object] = ..., **options: Unpack[ChangeOptions],
    ) -> Callable[
        [WritesOf[WriteCall[_S], _Parsed, _Variables, _Answer]], Action[_S, _Parsed, _Answer]
    ]: ...
    # fmt: on

    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        returns: type[Answer],
        query: Parameters[Any] | None = None,
        body: Body[Any] | None = None,
        example: Mapping[str, object] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Callable[[EndpointHandler], Action[_S, Any, Any]]:
        """Register a handler: see ChangeOptions and the module."""
        needs, is_sensitive = options["needs"], options.get("is_sensitive", False)
        if is_sensitive and needs is None:
            raise TypeError("a sensitive change needs a capability")
        takes, if_match = Taken(query, body, example), options.get("if_match")
        status, prepare = options.get("status", 200), options.get("prepare")
        of_callers = (*_OF_ORG, SignInAgain) if is_sensitive else _OF_ORG
        refusals = takes.refusals(of_callers, options.get("refuses", ()))

        def register(handler: EndpointHandler) -> Action[_S, Any, Any]:
            action = Action(
                handler, self.resource.services, needs, body, is_sensitive, query, prepare
            )

            async def route(slug: str, **variables: str) -> Response:
                caller, org = await _authorized(group_of(action.services), slug, needs)
                asked = takes.sent_query()
                sent = request.headers.getlist("if-match")
                replaces = None if if_match is None else if_match.replaced(sent)
                parsed = (*asked, *await takes.sent_body())
                answer = await action.run_parsed(caller, org, parsed, variables, replaces=replaces)
                response = answered(answer, status)
                if answer.location is not None:
                    response.headers["location"] = self.resource.address(slug) + answer.location
                return response

            declared = Documentation(
                operation,
                self.resource.tag,
                answers={status: returns},
                request_headers=if_match,
                refusals=refusals if if_match is None else [*refusals, if_match.missing],
                credentials=MEMBERS,
                headers=options.get("headers", {}),
                capability=needs,
            )
            self.resource.add(self.method, path, handler, route, takes, declared)
            return action

        return register


async def _authorized(
    services: BaseServices, slug: str, needs: Capability | None
) -> tuple[Caller, Organisation]:
    """Who may make the change. Raises Unauthenticated, OrgNotFound, Forbidden, in this order."""
    if needs is None:
        caller, org = await services.access.authorize_member(slug, VerdictSource.ADMIN_API)
    else:
        caller, org = await services.access.authorize(slug, needs)
    if isinstance(caller, ApiKeyPrincipal):
        raise KEY_CANNOT_CHANGE
    return caller, org


def answered(answer: Answer | Response, status: int) -> Response:
    """What a handler returned, as the response."""
    if isinstance(answer, Response):
        return answer
    response = json_answer(answer, status)
    if answer.etag is not None:
        response.set_etag(answer.etag)
    if isinstance(answer, SecretAnswer):
        response.headers["cache-control"] = "no-store"
    return response
