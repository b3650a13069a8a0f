"""What an endpoint documents about itself, beyond its models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from msgspec import Struct
from quart_schema import (
    DataSource,
    document_headers,
    document_querystring,
    document_request,
    document_response,
)

from service.errors import Internal, Refusal, StorageFull, StoreUnavailable, Unauthenticated

DOCUMENTATION_ATTRIBUTE: Final = "_countersign_documentation"
_EVERYWHERE: Final = (Internal, StoreUnavailable, StorageFull)
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Documentation:
    """An endpoint's documentation beyond its models."""

    refusals: Sequence[type[Refusal]]
    media: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    credentials: Sequence[str] = ()
    takes_ci_token: bool = True
    requires_ci_token: bool = False
    request_example: Any = None


def documented(
    *,
    answers: Mapping[int, type[Struct]] | None = None,
    media: Mapping[str, Any] | None = None,
    request: Any = None,  # noqa: ANN401 - any type
    form: Any = None,  # noqa: ANN401 - any type
    request_headers: type[Struct] | None = None,
    querystring: type[Struct] | None = None,
    refusals: Sequence[type[Refusal]] = (),
    headers: Mapping[str, str] | None = None,
    credentials: Sequence[str] = ("adminToken", "session"),
    takes_ci_token: bool = True,
    requires_ci_token: bool = False,
    request_example: Any = None,  # noqa: ANN401 - any JSON
) -> Callable[[_Endpoint], _Endpoint]:
    """Describe an endpoint for the OpenAPI document.

    `answers` are JSON models by status; `media` the models by content type of a 200 with several;
    `request` is the model of a JSON body, `form` that of a form; `headers` those of the success
    response besides the request id; `credentials` the accepted security schemes.
    """

    def decorate(endpoint: _Endpoint) -> _Endpoint:
        for status, model in (answers or {}).items():
            endpoint = document_response(model, status)(endpoint)
        if request is not None:
            endpoint = document_request(request)(endpoint)
        if form is not None:
            endpoint = document_request(form, source=DataSource.FORM)(endpoint)
        if request_headers is not None:
            endpoint = document_headers(request_headers)(endpoint)
        if querystring is not None:
            endpoint = document_querystring(querystring)(endpoint)
        documentation = Documentation(
            refusals=(*refusals, *((Unauthenticated,) if credentials else ()), *_EVERYWHERE),
            media=media or {},
            headers=headers or {},
            credentials=credentials,
            takes_ci_token=takes_ci_token,
            requires_ci_token=requires_ci_token,
            request_example=request_example,
        )
        setattr(endpoint, DOCUMENTATION_ATTRIBUTE, documentation)
        return endpoint

    return decorate
