"""What an endpoint declares about itself for the OpenAPI document."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
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


@dataclass(frozen=True, slots=True)
class Documentation:
    """What the endpoint that it decorates is, apart from path and method, which are the route's.

    `operation` is its name in generated clients. `answers` are the models by status and content
    type, `request` those of the body, of `request_bytes_max` bytes if that is more than any body
    may have; a model alone is JSON. `headers` are those of the successful answer besides the
    request id. `credentials` are security schemes, any one of which is accepted; `capability` is
    what their callers need.
    """

    operation: str
    tag: Tag
    _: KW_ONLY
    answers: Mapping[int, type[Struct] | MediaTypes]
    request: Any = None
    request_example: Any = None
    request_bytes_max: int = 0
    request_headers: type[Struct] | None = None
    querystring: type[Struct] | None = None
    refusals: Sequence[type[Refusal]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    credentials: Sequence[str] = READERS
    ci_token: CiTokenUse = CiTokenUse.OPTIONAL
    capability: str | None = None

    def __call__(self, endpoint: _Endpoint) -> _Endpoint:
        """Describe `endpoint` for the OpenAPI document."""
        setattr(endpoint, DOCUMENTATION_ATTRIBUTE, self)
        return endpoint

    @property
    def body(self) -> MediaTypes:
        """The models of the body by content type; empty without a body."""
        return {} if self.request is None else _by_media_type(self.request)

    @property
    def media(self) -> Mapping[int, MediaTypes]:
        """The models of the answers by status and content type."""
        return {status: _by_media_type(model) for status, model in self.answers.items()}

    @property
    def all_refusals(self) -> Sequence[type[Refusal]]:
        """Also those that are common to all endpoints."""
        rejected = (Unauthenticated,) if self.credentials else ()
        return (*self.refusals, *rejected, *_EVERYWHERE)


def documentation_of(endpoint: object) -> Documentation | None:
    """What an endpoint declared, if it is in the document."""
    return getattr(endpoint, DOCUMENTATION_ATTRIBUTE, None)


def _by_media_type(model: Any) -> MediaTypes:  # noqa: ANN401 - any type
    return model if isinstance(model, Mapping) else {JSON: model}
