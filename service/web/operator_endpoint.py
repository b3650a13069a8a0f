"""Declares the endpoints of the operator's resources, which belong to no organisation.

As `service.web.endpoint`, for the admin token alone: authenticate (401), refuse everyone but the
operator (403), refuse unknown parameters, read and parse query and body (400), open one transaction
for a change, call the handler, encode its answer. Audit rows of changes have the platform's id in
`actor_tenant_id`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from quart import Blueprint, Response, request
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.rows import AuditContext
from service.access.callers import Operator
from service.access.refusals import OPERATOR_ONLY
from service.core.errors import Invalid, Refusal
from service.store.store import UnitOfWork
from service.web.dependencies import group_of
from service.web.documentation import CiToken, Tag, documented
from service.web.endpoint import (
    Handler,
    Route,
    Services,
    answered,
    check_signature,
    sent_body,
    sent_query,
)
from service.web.models import Answer, Body, Query, Raw, model_of, query_model_of
from service.web.refusals import BODY_REFUSALS, NOT_AN_OBJECT, UNKNOWN_PARAMETER
from service.web.request_parsing import json_bytes

_CREDENTIALS: Final = ("adminToken",)

_S = TypeVar("_S", bound=Services)
_S_co = TypeVar("_S_co", bound=Services, covariant=True)
_Call = TypeVar("_Call")
_Parsed = TypeVar("_Parsed")
_Answer = TypeVar("_Answer", bound=Answer)
_Variables = ParamSpec("_Variables")
"""The variables of the path, each a text."""


@dataclass(frozen=True, slots=True)
class OperatorCall(Generic[_S_co]):
    """A call by the operator."""

    services: _S_co
    caller: Operator

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """One read transaction."""
        return self.services.store.read()

    @property
    def by(self) -> AuditContext:
        """The operator in audit rows."""
        return self.caller.audit_context


@dataclass(frozen=True, slots=True)
class OperatorWriteCall(OperatorCall[_S_co]):
    """A call by the operator in its one write transaction."""

    work: UnitOfWork

    @property
    def session(self) -> AsyncSession:
        """The session of the transaction."""
        return self.work.session


class OperatorResource(Generic[_S]):
    """The endpoints below one path of the operator's; their handlers receive `services`.

    The handlers of `get`, `post_read` and `delete_in_steps` open the transactions that they need:
    to read, or to change something in steps of which each is whole. All others run in one.
    """

    def __init__(self, name: str, path: str, tag: Tag, services: type[_S]) -> None:
        self.blueprint = Blueprint(name, __name__, url_prefix=f"/api/v1/operator{path}")
        self.tag = tag
        self.services = services
        calls = self._called
        changes = self._changed
        self.get: _Endpoints[OperatorCall[_S]] = _Endpoints(self, "GET", calls)
        self.post_read: _Endpoints[OperatorCall[_S]] = _Endpoints(self, "POST", calls)
        self.delete_in_steps: _Endpoints[OperatorCall[_S]] = _Endpoints(self, "DELETE", calls)
        self.post: _Endpoints[OperatorWriteCall[_S]] = _Endpoints(self, "POST", changes)
        self.put: _Endpoints[OperatorWriteCall[_S]] = _Endpoints(self, "PUT", changes)
        self.patch: _Endpoints[OperatorWriteCall[_S]] = _Endpoints(self, "PATCH", changes)
        self.delete: _Endpoints[OperatorWriteCall[_S]] = _Endpoints(self, "DELETE", changes)

    def add(self, path: str, method: str, handler: Handler, route: Route) -> None:
        """Register `route` under the name of `handler`, whose docstring documents it."""
        route.__name__, route.__doc__ = handler.__name__, handler.__doc__
        self.blueprint.add_url_rule(path, handler.__name__, route, methods=[method])

    async def _called(
        self, caller: Operator, handler: Handler, given: Sequence[Any], variables: Mapping[str, str]
    ) -> Any:  # noqa: ANN401 - each handler has its own answer
        call = OperatorCall(group_of(self.services), caller)
        return await handler(call, *given, **variables)

    async def _changed(
        self, caller: Operator, handler: Handler, given: Sequence[Any], variables: Mapping[str, str]
    ) -> Any:  # noqa: ANN401 - each handler has its own answer
        services = group_of(self.services)
        async with services.store.write() as work:
            call = OperatorWriteCall(services, caller, work)
            return await handler(call, *given, **variables)


_Run = Callable[[Operator, Handler, Sequence[Any], Mapping[str, str]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class _Endpoints(Generic[_Call]):
    """Registers handlers of one method, which receive a `_Call`."""

    resource: OperatorResource[Any]
    method: str
    run: _Run

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        returns: type[_Answer],
        status: int = 200,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[
        [Callable[Concatenate[_Call, _Variables], Awaitable[_Answer | Response]]],
        Callable[Concatenate[_Call, _Variables], Awaitable[_Answer | Response]],
    ]: ...

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        returns: type[_Answer],
        query: Query[_Parsed],
        status: int = 200,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[
        [Callable[Concatenate[_Call, _Parsed, _Variables], Awaitable[_Answer | Response]]],
        Callable[Concatenate[_Call, _Parsed, _Variables], Awaitable[_Answer | Response]],
    ]: ...

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        returns: type[_Answer],
        body: Body[_Parsed],
        example: Mapping[str, object],
        status: int = 200,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[
        [Callable[Concatenate[_Call, _Parsed, _Variables], Awaitable[_Answer | Response]]],
        Callable[Concatenate[_Call, _Parsed, _Variables], Awaitable[_Answer | Response]],
    ]: ...

    @overload
    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        returns: type[_Answer],
        body: Raw,
        example: Mapping[str, object],
        status: int = 200,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[
        [Callable[Concatenate[_Call, bytes, _Variables], Awaitable[_Answer | Response]]],
        Callable[Concatenate[_Call, bytes, _Variables], Awaitable[_Answer | Response]],
    ]: ...

    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        returns: type[Answer],
        query: Query[Any] | None = None,
        body: Body[Any] | Raw | None = None,
        example: Mapping[str, object] | None = None,
        status: int = 200,
        refuses: Sequence[type[Refusal]] = (),
    ) -> Callable[[Handler], Handler]:
        """Register a handler. It takes the variables of its path after what is sent."""

        def register(handler: Handler) -> Handler:
            check_signature(handler, path, 1 + (query is not None) + (body is not None))
            group = self.resource.services

            async def route(**variables: str) -> Response:
                caller = await group_of(group).access.authorize_operator()
                given = await _given(query, body)
                return answered(await self.run(caller, handler, given, variables), status)

            describe = documented(
                operation,
                self.resource.tag,
                answers={status: returns},
                request=None if body is None else model_of(body),
                request_example=example,
                querystring=query_model_of(query),
                refusals=[*_common(query, body), *refuses],
                credentials=_CREDENTIALS,
                ci_token=CiToken.IGNORED,
            )
            self.resource.add(path, self.method, handler, describe(route))
            return handler

        return register


async def _given(query: Query[Any] | None, body: Body[Any] | Raw | None) -> tuple[Any, ...]:
    """What the current request sends: its parameters as `query`, its JSON as `body`, if any."""
    asked = sent_query(query)
    if isinstance(body, Raw):
        return (*asked, await json_bytes(request, body.bytes_max))
    return (*asked, *await sent_body(body))


def _common(query: Query[Any] | None, body: Body[Any] | Raw | None) -> list[type[Refusal]]:
    """What every endpoint that takes these refuses."""
    of_input: list[type[Refusal]] = [] if query is None and body is None else [Invalid]
    of_body: list[type[Refusal]] = [] if body is None else [NOT_AN_OBJECT, *BODY_REFUSALS]
    return [*of_input, UNKNOWN_PARAMETER, OPERATOR_ONLY, *of_body]
