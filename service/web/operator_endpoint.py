"""Declares the endpoints of the operator's resources, which belong to no organisation.

As `service.web.endpoint`, for the admin token alone: authenticate (401), refuse everyone but the
operator (403), refuse unknown parameters, read and parse query and body (400), open one transaction
for a change, call the handler, encode its answer. Audit rows of changes have the platform's id in
`actor_tenant_id`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import (
    Any,
    BinaryIO,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

from quart import Response, request
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Operator
from service.access.refusals import OPERATOR_ONLY
from service.store.store import UnitOfWork
from service.web.dependencies import BaseServices, group_of
from service.web.documentation import CiTokenUse, Documentation, Tag
from service.web.endpoint import (
    BaseCall,
    EndpointGroup,
    EndpointHandler,
    Options,
    Reads,
    ReadsOf,
    Taken,
    answered,
)
from service.web.models import Answer, Body, Parameters, Raw, Upload
from service.web.request_parsing import spooled

_CREDENTIALS: Final = ("adminToken",)

_S = TypeVar("_S", bound=BaseServices)
_S_co = TypeVar("_S_co", bound=BaseServices, covariant=True)
_Call = TypeVar("_Call")
_Parsed = TypeVar("_Parsed")
_Answer = TypeVar("_Answer", bound=Answer)
_Variables = ParamSpec("_Variables")
"""The variables of the path, each a text."""

ReadsFile: TypeAlias = Callable[
    Concatenate[_Call, _Parsed, BinaryIO, _Variables], Awaitable[_Answer | Response]
]
"""A handler that also receives what is sent, parsed, and the file that is the body."""


class OperatorOptions(Options, total=False):
    """Also of an endpoint of the operator."""

    status: int


@dataclass(frozen=True, slots=True)
class OperatorCall(BaseCall[_S_co]):
    """A call by the operator."""

    caller: Operator


@dataclass(frozen=True, slots=True)
class OperatorWriteCall(OperatorCall[_S_co]):
    """A call by the operator in its one write transaction."""

    work: UnitOfWork

    @property
    def session(self) -> AsyncSession:
        """The session of the transaction."""
        return self.work.session


class OperatorResource(EndpointGroup, Generic[_S]):
    """The endpoints below one path of the operator's; their handlers receive `services`.

    The handlers of `get`, `post_read` and those in steps open the transactions that they need:
    to read, or to change something in steps of which each is whole. All others run in one.
    """

    def __init__(self, name: str, path: str, services: type[_S]) -> None:
        super().__init__(name, f"/api/v1/operator{path}", Tag.OPERATOR)
        self.services = services
        self.get: _Endpoints[OperatorCall[_S]] = _Endpoints(self, "GET")
        self.post_read: _Endpoints[OperatorCall[_S]] = _Endpoints(self, "POST")
        self.post_in_steps: _Endpoints[OperatorCall[_S]] = _Endpoints(self, "POST")
        self.delete_in_steps: _Endpoints[OperatorCall[_S]] = _Endpoints(self, "DELETE")
        self.post: _Endpoints[OperatorWriteCall[_S]] = _Endpoints(self, "POST", is_change=True)
        self.put: _Endpoints[OperatorWriteCall[_S]] = _Endpoints(self, "PUT", is_change=True)
        self.patch: _Endpoints[OperatorWriteCall[_S]] = _Endpoints(self, "PATCH", is_change=True)
        self.delete: _Endpoints[OperatorWriteCall[_S]] = _Endpoints(self, "DELETE", is_change=True)


@dataclass(frozen=True, slots=True)
class _Endpoints(Generic[_Call]):
    """Registers handlers of one method, which receive a `_Call`; a change is one transaction."""

    resource: OperatorResource[Any]
    method: str
    is_change: bool = False

    # fmt: off
    @overload
    def __call__(
        self, operation: str, path: str = "", *, returns: type[_Answer],
        **options: Unpack[OperatorOptions],
    ) -> Callable[[Reads[_Call, _Variables, _Answer]], Reads[_Call, _Variables, _Answer]]: ...

    @overload
    def __call__(
        self, operation: str, path: str = "", *, returns: type[_Answer],
        query: Parameters[_Parsed] = ..., body: Body[_Parsed] = ...,
        example: Mapping[str, object] = ..., **options: Unpack[OperatorOptions],
    ) -> Callable[
        [ReadsOf[_Call, _Parsed, _Variables, _Answer]],
        ReadsOf[_Call, _Parsed, _Variables, _Answer],
    ]: ...

    @overload
    def __call__(
        self, operation: str, path: str = "", *, returns: type[_Answer], body: Raw,
        example: Mapping[str, object], **options: Unpack[OperatorOptions],
    ) -> Callable[
        [ReadsOf[_Call, bytes, _Variables, _Answer]], ReadsOf[_Call, bytes, _Variables, _Answer]
    ]: ...

    @overload
    def __call__(
        self, operation: str, path: str = "", *, returns: type[_Answer], query: Parameters[_Parsed],
        body: Upload, **options: Unpack[OperatorOptions],
    ) -> Callable[
        [ReadsFile[_Call, _Parsed, _Variables, _Answer]],
        ReadsFile[_Call, _Parsed, _Variables, _Answer],
    ]: ...
    # fmt: on

    def __call__(
        self,
        operation: str,
        path: str = "",
        *,
        returns: type[Answer],
        query: Parameters[Any] | None = None,
        body: Body[Any] | Raw | Upload | None = None,
        example: Mapping[str, object] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Callable[[EndpointHandler], EndpointHandler]:
        """Register a handler. It takes the variables of its path after what is sent."""
        status, takes = options.get("status", 200), Taken(query, body, example)
        group = self.resource.services

        def register(handler: EndpointHandler) -> EndpointHandler:
            async def route(**variables: str) -> Response:
                services = group_of(group)
                caller = await services.access.authorize_operator()
                async with AsyncExitStack() as stack:
                    sent = await takes.sent()
                    if isinstance(body, Upload):
                        file = spooled(
                            request, body.media, body.bytes_max, services.settings.temp_dir
                        )
                        sent += (await stack.enter_async_context(file),)
                    call = OperatorCall(services, caller)
                    if self.is_change:
                        work = await stack.enter_async_context(services.store.write())
                        call = OperatorWriteCall(services, caller, work)
                    answer = await handler(call, *sent, **variables)
                return answered(answer, status)

            declared = Documentation(
                operation,
                self.resource.tag,
                answers={status: returns},
                refusals=takes.refusals((OPERATOR_ONLY,), options.get("refuses", ())),
                credentials=_CREDENTIALS,
                headers=options.get("headers", {}),
                ci_token=CiTokenUse.IGNORED,
            )
            self.resource.add(self.method, path, handler, route, takes, declared)
            return handler

        return register
