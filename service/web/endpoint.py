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
from dataclasses import dataclass
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from quart import Blueprint, Response, request
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.rows import AuditContext, VerdictSource
from service.access.authorization import Authorizer
from service.access.callers import ApiKeyPrincipal, Caller
from service.access.refusals import KEY_CANNOT_CHANGE, SignInAgain
from service.access.roles import KEY_SCOPES, Capability
from service.core.errors import Forbidden, OrgNotFound, Refusal
from service.store.store import Store, UnitOfWork
from service.store.tables import Organisation
from service.web.dependencies import group_of
from service.web.documentation import JSON, MEMBERS, READERS, MediaTypes, Tag, documented
from service.web.models import (
    Answer,
    Body,
    ParsedQuery,
    Precondition,
    Query,
    model_of,
    parsed_body,
    query_model_of,
    refusals_of,
)
from service.web.refusals import BODY_REFUSALS, NOT_AN_OBJECT, UNKNOWN_PARAMETER
from service.web.request_parsing import all_parameters, json_object, query_parameters
from service.web.responses import json_answer

_VARIABLE: Final = re.compile(r"<(?:\w+:)?(\w+)>")


class Services(Protocol):
    """What the services of each resource have among others."""

    @property
    def access(self) -> Authorizer:
        """Authorises requests."""

    @property
    def store(self) -> Store:
        """The database."""


_S = TypeVar("_S", bound=Services)
_S_co = TypeVar("_S_co", bound=Services, covariant=True)
_Parsed = TypeVar("_Parsed")
_Answer = TypeVar("_Answer", bound=Answer)
_Variables = ParamSpec("_Variables")
"""The variables of the path, each a text."""

Handler = Callable[..., Awaitable[Any]]
Route = Callable[..., Awaitable[Response]]
Before = Callable[[UnitOfWork, Caller], Awaitable[None]]
"""What is done in a change's transaction, once its caller is authorised, before its handler."""


@dataclass(frozen=True, slots=True)
class Call(Generic[_S_co]):
    """An authorised call of an endpoint: by whom, in which organisation."""

    services: _S_co
    caller: Caller
    org: Organisation

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """One read transaction."""
        return self.services.store.read()

    @property
    def by(self) -> AuditContext:
        """The caller in audit rows."""
        return self.caller.audit_context


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
    query: Query[_Parsed] | None = None

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


class Resource(Generic[_S]):
    """The endpoints below one path of an organisation; their handlers receive `services`."""

    def __init__(self, name: str, path: str, tag: Tag, services: type[_S]) -> None:
        self.blueprint = Blueprint(name, __name__, url_prefix=f"/api/v1/admin/orgs/<slug>{path}")
        self._path = path
        self.tag = tag
        self.services = services
        self.get = _Reads(self, "GET")
        self.post_read = _Reads(self, "POST")
        self.post = _Changes(self, "POST")
        self.put = _Changes(self, "PUT")
        self.delete = _Changes(self, "DELETE")

    def address(self, slug: str) -> str:
        """The path of the resource in an organisation."""
        return f"{request.root_path}/api/v1/admin/orgs/{slug}{self._path}"

    def add(self, path: str, method: str, handler: Handler, route: Route) -> None:
        """Register `route` under the name of `handler`, whose docstring documents it."""
        route.__name__, route.__doc__ = handler.__name__, handler.__doc__
        self.blueprint.add_url_rule(path, handler.__name__, route, methods=[method])


@dataclass(frozen=True, slots=True)
class _Reads(Generic[_S]):
    """Registers handlers that change nothing."""

    resource: Resource[_S]
    method: str

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        needs: Capability,
        returns: type[_Answer],
        alternative: Capability | None = None,
        media: MediaTypes | None = None,
        headers: Mapping[str, str] | None = None,
        refuses: Sequence[type[Refusal]] = (),
        keeps_alive: bool = True,
    ) -> Callable[
        [Callable[Concatenate[Call[_S], _Variables], Awaitable[_Answer | Response]]],
        Callable[Concatenate[Call[_S], _Variables], Awaitable[_Answer | Response]],
    ]: ...

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        needs: Capability,
        returns: type[_Answer],
        query: Query[_Parsed],
        alternative: Capability | None = None,
        media: MediaTypes | None = None,
        headers: Mapping[str, str] | None = None,
        refuses: Sequence[type[Refusal]] = (),
        keeps_alive: bool = True,
    ) -> Callable[
        [Callable[Concatenate[Call[_S], _Parsed, _Variables], Awaitable[_Answer | Response]]],
        Callable[Concatenate[Call[_S], _Parsed, _Variables], Awaitable[_Answer | Response]],
    ]: ...

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        needs: Capability,
        returns: type[_Answer],
        body: Body[_Parsed],
        example: Mapping[str, object],
        alternative: Capability | None = None,
        media: MediaTypes | None = None,
        headers: Mapping[str, str] | None = None,
        refuses: Sequence[type[Refusal]] = (),
        keeps_alive: bool = True,
    ) -> Callable[
        [Callable[Concatenate[Call[_S], _Parsed, _Variables], Awaitable[_Answer | Response]]],
        Callable[Concatenate[Call[_S], _Parsed, _Variables], Awaitable[_Answer | Response]],
    ]: ...

    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        needs: Capability,
        returns: type[Answer],
        query: Query[Any] | None = None,
        body: Body[Any] | None = None,
        example: Mapping[str, object] | None = None,
        alternative: Capability | None = None,
        media: MediaTypes | None = None,
        headers: Mapping[str, str] | None = None,
        refuses: Sequence[type[Refusal]] = (),
        keeps_alive: bool = True,
    ) -> Callable[[Handler], Handler]:
        """Register a handler for callers with `needs`, or `alternative`. See the module.

        It takes a `query`, or what is asked is the `body` of a POST. `media` are further types of
        the answer; a handler of such, or of header fields of its own (`headers`, with their
        meanings), returns a Response in place of the model. Requests that a page repeats by itself
        do not keep a session alive (`keeps_alive`).
        """

        def register(handler: Handler) -> Handler:
            check_signature(handler, path, 1 + (query is not None) + (body is not None))
            group = self.resource.services

            async def route(slug: str, **variables: str) -> Response:
                services = group_of(group)
                caller, org = await services.access.authorize(
                    slug, needs, alternative=alternative, keeps_alive=keeps_alive
                )
                asked = sent_query(query)
                if body is not None:
                    asked += await sent_body(body)
                call = Call(services, caller, org)
                return answered(await handler(call, *asked, **variables), 200)

            describe = documented(
                operation,
                self.resource.tag,
                answers={200: {JSON: returns, **media} if media else returns},
                request=None if body is None else model_of(body),
                request_example=example,
                querystring=query_model_of(query),
                refusals=_refusals(refuses, query, body),
                headers=headers,
                credentials=READERS if needs in KEY_SCOPES else MEMBERS,
            )
            self.resource.add(path, self.method, handler, describe(route))
            return handler

        return register


@dataclass(frozen=True, slots=True)
class _Changes(Generic[_S]):
    """Registers handlers that change something, each in one transaction."""

    resource: Resource[_S]
    method: str

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        needs: Capability | None,
        returns: type[_Answer],
        status: int = 200,
        is_sensitive: bool = False,
        is_secret: bool = False,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[
        [Callable[Concatenate[WriteCall[_S], _Variables], Awaitable[_Answer]]],
        Action[_S, None, _Answer],
    ]: ...

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        needs: Capability | None,
        returns: type[_Answer],
        query: Query[_Parsed],
        status: int = 200,
        is_sensitive: bool = False,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[
        [Callable[Concatenate[WriteCall[_S], _Parsed, _Variables], Awaitable[_Answer]]],
        Action[_S, _Parsed, _Answer],
    ]: ...

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        needs: Capability | None,
        returns: type[_Answer],
        body: Body[_Parsed],
        example: Mapping[str, object],
        status: int = 200,
        is_sensitive: bool = False,
        is_secret: bool = False,
        if_match: type[Precondition] | None = None,
        headers: Mapping[str, str] | None = None,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[
        [Callable[Concatenate[WriteCall[_S], _Parsed, _Variables], Awaitable[_Answer]]],
        Action[_S, _Parsed, _Answer],
    ]: ...

    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        needs: Capability | None,
        returns: type[Answer],
        query: Query[Any] | None = None,
        body: Body[Any] | None = None,
        example: Mapping[str, object] | None = None,
        status: int = 200,
        is_sensitive: bool = False,
        is_secret: bool = False,
        if_match: type[Precondition] | None = None,
        headers: Mapping[str, str] | None = None,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[[Handler], Action[_S, Any, Any]]:
        """Register a handler for callers with `needs`; None: for every member. See the module.

        A change that `is_sensitive` gives access: it needs a recent sign-in. An answer that
        `is_secret` is stored by no cache. With `if_match`, the handler finds in `call.replaces` the
        revision that the caller has seen. `headers` are those of the answer, with their meanings.
        """
        if is_sensitive and needs is None:
            raise TypeError("a sensitive change needs a capability")

        def register(handler: Handler) -> Action[_S, Any, Any]:
            check_signature(handler, path, 1 + (query is not None) + (body is not None))
            own = (*((SignInAgain,) if is_sensitive else ()), *refuses)
            action = Action(handler, self.resource.services, needs, body, is_sensitive, query)

            async def route(slug: str, **variables: str) -> Response:
                caller, org = await _authorized(group_of(action.services), slug, needs)
                asked = sent_query(query)
                replaces = _replaced(if_match)
                parsed = (*asked, *await sent_body(body))
                answer = await action.run_parsed(caller, org, parsed, variables, replaces=replaces)
                response = answered(answer, status)
                if answer.location is not None:
                    response.headers["location"] = self.resource.address(slug) + answer.location
                if is_secret:
                    response.headers["cache-control"] = "no-store"
                return response

            describe = documented(
                operation,
                self.resource.tag,
                answers={status: returns},
                request=None if body is None else model_of(body),
                request_example=example,
                request_headers=if_match,
                querystring=query_model_of(query),
                refusals=[
                    *_refusals(own, query, body),
                    *(() if if_match is None else (if_match.missing,)),
                ],
                headers=headers,
                credentials=MEMBERS,
            )
            self.resource.add(path, self.method, handler, describe(route))
            return action

        return register


async def _authorized(
    services: Services, slug: str, needs: Capability | None
) -> tuple[Caller, Organisation]:
    """Who may make the change. Raises Unauthenticated, OrgNotFound, Forbidden, in this order."""
    if needs is None:
        caller, org = await services.access.authorize_member(slug, VerdictSource.ADMIN_API)
    else:
        caller, org = await services.access.authorize(slug, needs)
    if isinstance(caller, ApiKeyPrincipal):
        raise KEY_CANNOT_CHANGE
    return caller, org


def sent_query(query: Query[Any] | None) -> tuple[Any, ...]:
    """The current request's parameters as `query`, if it takes any.

    Raises UNKNOWN_PARAMETER, InvalidQuery, Invalid.
    """
    if isinstance(query, ParsedQuery) and query.checks_names:
        return (query.parse_texts(all_parameters(request)),)
    model = query_model_of(query)
    parameters = query_parameters(request, () if model is None else model.__struct_fields__)
    return () if query is None else (query.parse_texts(parameters),)


async def sent_body(body: Body[Any] | None) -> tuple[Any, ...]:
    """The current request's body as `body`, if it takes one. Raises Invalid and BODY_REFUSALS."""
    return () if body is None else (await parsed_body(body, await json_object(request)),)


def _replaced(if_match: type[Precondition] | None) -> int | None:
    """The revision that the current request replaces; None for any. Raises Invalid."""
    return None if if_match is None else if_match.replaced(request.headers.getlist("if-match"))


def answered(answer: Answer | Response, status: int) -> Response:
    """What a handler returned, as the response."""
    if isinstance(answer, Response):
        return answer
    response = json_answer(answer, status)
    if answer.etag is not None:
        response.set_etag(answer.etag)
    return response


def _refusals(
    own: Sequence[type[Refusal]], query: Query[Any] | None, body: Body[Any] | None
) -> list[type[Refusal]]:
    """What the endpoint refuses: what the recipe does, and its `own`."""
    of_input = (*refusals_of(query), *refusals_of(body))
    of_body: tuple[type[Refusal], ...] = () if body is None else (NOT_AN_OBJECT,)
    common = (*of_input, *of_body, UNKNOWN_PARAMETER, Forbidden, OrgNotFound)
    return [*common, *own, *(() if body is None else BODY_REFUSALS)]


def check_signature(handler: Handler, path: str, arguments: int) -> None:
    """Raise TypeError unless `handler` takes the variables of `path` after its `arguments`."""
    names = list(inspect.signature(handler).parameters)
    if set(names[arguments:]) != set(_VARIABLE.findall(path)):
        raise TypeError(f"{handler.__name__} does not take the variables of its path: {path}")
