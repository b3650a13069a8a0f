"""What an endpoint declares about itself for the OpenAPI document."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from service.core.errors import Internal, Refusal, StorageFull, StoreUnavailable, Unauthenticated

DOCUMENTATION_ATTRIBUTE: Final = "_countersign_documentation"

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"

MEMBERS: Final = ("adminToken", "session", "bearer")
"""The credentials of an endpoint that changes something: none of a key that reads."""

READERS: Final = (*MEMBERS, "apiKey")

_EVERYWHERE: Final = (Internal, StoreUnavailable, StorageFull)
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])

MediaTypes: TypeAlias = Mapping[str, Any]
"""A model for each content type; None for bytes, which have none."""


class CiTokenUse(Enum):
    """What an endpoint does with a CI token beside the credential."""

    IGNORED = auto()
    OPTIONAL = auto()
    REQUIRED = auto()


class Tag(StrEnum):
    """The groups of endpoints, in the order in which they are listed."""

    BINDINGS = "bindings"
    AUDIT = "audit"
    EVIDENCE = "evidence"
    EXPORTS = "exports"
    SEARCHES = "searches"
    ALERTS = "alerts"
    REPORTS = "reports"
    STREAMS = "streams"
    POLICY = "policy"
    INSTALLS = "installs"
    ORGANISATION = "organisation"
    KEYS = "keys"
    SESSIONS = "sessions"
    OPERATOR = "operator"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """An endpoint, apart from its path and method, which are the route's.

    `operation` is its name in generated clients. `answers` are the models by status and content
    type, `body` those of the request, of `body_bytes_max` bytes if that is more than any body may
    have. `headers` are those of the successful answer besides the request id. `credentials` are
    security schemes, any one of which is accepted; `capability` is what their callers need.
    """

    operation: str
    tag: Tag
    answers: Mapping[int, MediaTypes]
    body: MediaTypes
    body_example: Any
    body_bytes_max: int
    query: type[Struct] | None
    request_headers: type[Struct] | None
    refusals: Sequence[type[Refusal]]
    headers: Mapping[str, str]
    credentials: Sequence[str]
    ci_token: CiTokenUse
    capability: str | None


def documented(
    operation: str,
    tag: Tag,
    *,
    answers: Mapping[int, type[Struct] | MediaTypes],
    request: Any = None,  # noqa: ANN401 - any type
    request_example: Any = None,  # noqa: ANN401 - any JSON
    request_bytes_max: int = 0,
    request_headers: type[Struct] | None = None,
    querystring: type[Struct] | None = None,
    refusals: Sequence[type[Refusal]] = (),
    headers: Mapping[str, str] | None = None,
    credentials: Sequence[str] = READERS,
    ci_token: CiTokenUse = CiTokenUse.OPTIONAL,
    capability: str | None = None,
) -> Callable[[_Endpoint], _Endpoint]:
    """Describe an endpoint for the OpenAPI document: see Documentation.

    A model alone, as an answer or as the `request`, is JSON.
    """
    rejected = (Unauthenticated,) if credentials else ()
    documentation = Documentation(
        operation=operation,
        tag=tag,
        answers={status: _by_media_type(model) for status, model in answers.items()},
        body={} if request is None else _by_media_type(request),
        body_example=request_example,
        body_bytes_max=request_bytes_max,
        query=querystring,
        request_headers=request_headers,
        refusals=(*refusals, *rejected, *_EVERYWHERE),
        headers=headers or {},
        credentials=credentials,
        ci_token=ci_token if credentials else CiTokenUse.IGNORED,
        capability=capability,
    )

    def decorate(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, DOCUMENTATION_ATTRIBUTE, documentation)
        return endpoint

    return decorate


def documentation_of(endpoint: object) -> Documentation | None:
    """What an endpoint declared, if it is in the document."""
    return getattr(endpoint, DOCUMENTATION_ATTRIBUTE, None)


def _by_media_type(model: Any) -> MediaTypes:  # noqa: ANN401 - any type
    return model if isinstance(model, Mapping) else {JSON: model}
