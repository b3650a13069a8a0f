"""The OpenAPI document: each endpoint's own documentation, and what all endpoints share.

quart-schema turns the endpoints' models into schemas; this module adds what it leaves out:
errors with their exact texts, body types other than JSON, and response headers.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from msgspec import structs
from msgspec.json import schema_components
from quart import Quart
from quart_schema import (
    DataSource,
    Info,
    OpenAPIProvider,
    QuartSchema,
)
from werkzeug.routing.rules import Rule

from service.errors import Refusal
from service.web.documentation import DOCUMENTATION_ATTRIBUTE, Documentation
from service.web.header_names import (
    ADMIN_TOKEN_HEADER,
    API_KEY_HEADER,
    CI_TOKEN_HEADER,
    SESSION_COOKIE,
)

_API: Final = "/api/v1/"
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
PATH_PARAMETERS: Final[dict[str, dict[str, str]]] = {
    "slug": {"description": "The organisation.", "example": "acme"},
    "binding_id": {"description": "Prefix `obind_`.", "example": "obind_7f3k9m2p4q8r1s5t"},
    "search_id": {"description": "Prefix `search_`.", "example": "search_7f3k9m2p4q8r1s5t"},
    "exception_id": {"description": "Prefix `pexc_`.", "example": "pexc_7f3k9m2p4q8r1s5t"},
    "export_id": {"description": "Prefix `exp_`.", "example": "exp_7f3k9m2p4q8r1s5t"},
    "audit_id": {"description": "Prefix `aud_`.", "example": "aud_0000000000000000042"},
}


_CI_TOKEN: Final[Mapping[str, Any]] = {
    "name": CI_TOKEN_HEADER,
    "in": "header",
    "required": False,
    "description": (
        "A CI token, in addition to the credential. It neither grants nor denies access: if it is"
        " valid, the audit rows of the request name the CI job and its binding."
    ),
    "schema": {"type": "string"},
}


_REQUIRED_CI_TOKEN: Final[Mapping[str, Any]] = {
    **_CI_TOKEN,
    "required": True,
    "description": "A CI token of a job that a binding of the organisation trusts.",
}


_VARIABLE: Final = re.compile(r"<(?:\w+:)?(\w+)>")


class _Provider(OpenAPIProvider):
    """quart-schema's document, completed."""

    def generate_rules(self) -> Any:  # noqa: ANN401 - as declared by quart-schema
        """Every documented endpoint, by path."""
        rules = [
            rule
            for rule in super().generate_rules()
            if hasattr(self._app.view_functions[rule.endpoint], DOCUMENTATION_ATTRIBUTE)
        ]
        return sorted(rules, key=lambda rule: rule.rule)

    def operation_id(self, method: str, path: str, func: Callable[..., Any]) -> str | None:
        """Module and function: unique, and stable when paths move."""
        return f"{func.__module__.split('.')[-2]}_{func.__name__.rstrip('_')}"

    def build_querystring_parameters(
        self,
        model: Any,  # noqa: ANN401 - as declared by quart-schema
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """quart-schema's parameters, and which of them are required."""
        parameters, components = super().build_querystring_parameters(model)
        required = {field.encode_name for field in structs.fields(model) if field.required}
        for parameter in parameters:
            parameter["required"] = parameter["name"] in required
        return parameters, components

    def build_headers_parameters(
        self,
        model: Any,  # noqa: ANN401 - as declared by quart-schema
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """quart-schema's parameters, and which of them are required."""
        parameters, components = super().build_headers_parameters(model)
        names = {field.encode_name for field in structs.fields(model) if field.required}
        required = {name.replace("_", "-") for name in names}
        for parameter in parameters:
            parameter["required"] = parameter["name"] in required
        return parameters, components

    def build_request_body(
        self,
        model: Any,  # noqa: ANN401 - as declared by quart-schema
        source: Any,  # noqa: ANN401 - as declared by quart-schema
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A JSON body, or a form, by reference to its model."""
        reference, components = _by_reference(model)
        media = _FORM if source is DataSource.FORM else _JSON
        return {"required": True, "content": {media: {"schema": reference}}}, components

    def build_response_object(
        self,
        model: Any,  # noqa: ANN401 - as declared by quart-schema
        headers_model: Any,  # noqa: ANN401 - as declared by quart-schema
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A JSON answer by reference to its model, nested models included."""
        reference, components = _by_reference(model)
        content = {"application/json": {"schema": reference}}
        return {"description": inspect.getdoc(model), "content": content}, components

    def build_paths(self, rule: Rule) -> tuple[dict[str, Any], dict[str, Any]]:
        """quart-schema's path object with refusals, headers and descriptions added."""
        paths, components = super().build_paths(rule)
        own: Documentation = getattr(
            self._app.view_functions[rule.endpoint], DOCUMENTATION_ATTRIBUTE
        )
        (operations,) = paths.values()
        if _is_read(rule) and "session" in own.credentials:
            own = replace(own, credentials=(*own.credentials, "bearer", "apiKey"))
        elif rule.rule.startswith(_API) and "session" in own.credentials:
            own = replace(own, credentials=(*own.credentials, "bearer"))
        for operation in operations.values():
            _complete(operation, own)
        # quart-schema's own pattern takes everything up to the last converter as the name.
        path = _VARIABLE.sub(r"{\1}", rule.rule)
        return {path: operations}, components


_QUESTIONS: Final = ("/explain", "/policy/check", "/policy/preview")
"""Endpoints that take a POST, but change nothing."""


def _is_read(rule: Rule) -> bool:
    """True if the endpoint accepts API keys with scopes, which change nothing."""
    is_safe = "GET" in (rule.methods or ()) or rule.rule.endswith(_QUESTIONS)
    return is_safe and rule.rule.startswith(_API)


def _by_reference(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - any type
    (reference,), components = schema_components(
        [model], ref_template="#/components/schemas/{name}"
    )
    return reference, components


def _complete(operation: dict[str, Any], own: Documentation) -> None:
    """Add the endpoint's `own` documentation to its JSON operation object."""
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            parameter |= PATH_PARAMETERS[parameter["name"]]
        elif parameter["schema"].get("type") == "array":
            parameter |= {"style": "form", "explode": True}
    responses = operation["responses"]
    if own.media:
        responses[200] = {
            "description": "The complete response.",
            "content": {
                media: {"schema": _by_reference(model)[0]} for media, model in own.media.items()
            },
        }
    headers = {min(responses): dict(own.headers)}
    for status, refusals in _by_status(own.refusals).items():
        responses[status] = _refusal_response(status, refusals)
        if all(refusal.retry_after_s is not None for refusal in refusals):
            headers[status] = {"retry-after": "Seconds to wait before trying again."}
    for status, response in responses.items():
        named = headers.get(status, {})
        response["headers"] = {
            name: {"description": meaning, "required": True, "schema": {"type": "string"}}
            for name, meaning in {
                "x-request-id": "The server's id of this request.",
                **named,
            }.items()
        }
    operation["responses"] = {str(status): responses[status] for status in sorted(responses)}
    if own.request_example is not None:
        (body,) = operation["requestBody"]["content"].values()
        body["example"] = own.request_example
    if own.credentials:
        _secure(operation, own)


def _secure(operation: dict[str, Any], own: Documentation) -> None:
    operation["security"] = [{name: []} for name in own.credentials]
    if own.takes_ci_token:
        token = _REQUIRED_CI_TOKEN if own.requires_ci_token else _CI_TOKEN
        operation["parameters"].append(token)


def _by_status(refusals: Sequence[type[Refusal]]) -> dict[int, list[type[Refusal]]]:
    by_status: dict[int, list[type[Refusal]]] = {}
    for refusal in refusals:
        by_status.setdefault(refusal.status, []).append(refusal)
    return by_status


def _refusal_response(status: int, refusals: Sequence[type[Refusal]]) -> dict[str, Any]:
    return {
        "description": HTTPStatus(status).phrase,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/Error"},
                "examples": {
                    refusal.__name__: {
                        "summary": inspect.getdoc(refusal),
                        "value": {"error": refusal.text},
                    }
                    for refusal in refusals
                },
            }
        },
    }


def add_openapi(app: Quart, version: str) -> QuartSchema:
    """Let `app` generate its document, which the routes in `service.web.system` serve."""
    make_response = app.make_response
    schema = QuartSchema(
        app,
        info=Info(
            title="Countersign",
            version=version,
            description="Trust bindings for CI jobs, and the audit log of what they did.",
        ),
        openapi_path=None,
        swagger_ui_path=None,
        redoc_ui_path=None,
        scalar_ui_path=None,
        conversion_preference="msgspec",
        security_schemes={
            "adminToken": {"type": "apiKey", "in_": "header", "name": ADMIN_TOKEN_HEADER},
            "session": {"type": "apiKey", "in_": "cookie", "name": SESSION_COOKIE},
            "bearer": {"type": "http", "scheme": "bearer"},
            "apiKey": {"type": "apiKey", "in_": "header", "name": API_KEY_HEADER},
        },
        openapi_provider_class=_Provider,
    )
    # QuartSchema would convert models to responses; routes here return responses already.
    app.make_response = make_response  # type: ignore[method-assign]
    return schema


def openapi_document(app: Quart) -> dict[str, Any]:
    """The whole document, as JSON values."""
    provider: OpenAPIProvider = app.extensions["QUART_SCHEMA"].openapi_provider
    document = provider.schema()
    document["components"]["schemas"]["Error"] = {
        "type": "object",
        "description": "What went wrong.",
        "properties": {"error": {"type": "string"}},
        "required": ["error"],
        "additionalProperties": False,
    }
    return document
