"""The OpenAPI document, written from what the endpoints declare about themselves."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct, structs
from msgspec.json import schema_components
from quart import Quart

from service.access.roles import Role
from service.core.errors import Refusal, Unauthenticated
from service.core.header_names import (
    ADMIN_TOKEN_HEADER,
    API_KEY_HEADER,
    CI_TOKEN_HEADER,
    SESSION_COOKIE,
)
from service.web.documentation import (
    JSON,
    CiTokenUse,
    Documentation,
    MediaTypes,
    Tag,
    documentation_of,
)

_PATH_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "slug": {"description": "The organisation.", "example": "acme"},
    "member_id": {
        "description": "Prefix `mem_`; or the member's address.",
        "example": "mem_7f3k9m2p4q8r1s5t",
    },
    "team_id": {
        "description": "Prefix `team_`; or the team's name.",
        "example": "team_7f3k9m2p4q8r1s5t",
    },
    "role": {
        "description": "The role's name.",
        "example": "auditor",
        "schema": {"type": "string", "enum": [role.value for role in Role]},
    },
    "binding_id": {"description": "Prefix `obind_`.", "example": "obind_7f3k9m2p4q8r1s5t"},
    "key_id": {"description": "Prefix `key_`.", "example": "key_7f3k9m2p4q8r1s5t"},
    "machine_token_id": {"description": "Prefix `mtok_`.", "example": "mtok_7f3k9m2p4q8r1s5t"},
    "stream_id": {"description": "Prefix `stream_`.", "example": "stream_7f3k9m2p4q8r1s5t"},
    "search_id": {"description": "Prefix `search_`.", "example": "search_7f3k9m2p4q8r1s5t"},
    "alert_rule_id": {"description": "Prefix `rule_`.", "example": "rule_7f3k9m2p4q8r1s5t"},
    "alert_id": {"description": "Prefix `alert_`.", "example": "alert_7f3k9m2p4q8r1s5t"},
    "exception_id": {"description": "Prefix `pexc_`.", "example": "pexc_7f3k9m2p4q8r1s5t"},
    "export_id": {"description": "Prefix `exp_`.", "example": "exp_7f3k9m2p4q8r1s5t"},
    "level": {"description": "0 for the leaves, 1 for groups of 256 of them.", "example": "1"},
    "number": {"description": "The tile's number on its level, from 0.", "example": "0"},
    "rule_id": {"description": "An advisory or deny rule.", "example": "MAL-2026-1"},
    "feed": {"description": "A feed of the blocklist.", "example": "osv"},
    "audit_id": {"description": "Prefix `aud_`.", "example": "aud_0000000000000000042"},
}
_CI_TOKENS: Final[Mapping[CiTokenUse, str]] = {
    CiTokenUse.OPTIONAL: (
        "A CI token, in addition to the credential. It neither grants nor denies access: if it is"
        " valid, the audit rows of the request name the CI job and its binding."
    ),
    CiTokenUse.REQUIRED: "A CI token of a job that a binding of the organisation trusts.",
}
_SECURITY_SCHEMES: Final = {
    "adminToken": {
        "type": "apiKey",
        "in": "header",
        "name": ADMIN_TOKEN_HEADER,
        "description": "The operator's token, good for every organisation.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "A member's session in a browser.",
    },
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A member's session on a command line.",
    },
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": API_KEY_HEADER,
        "description": "An organisation's key: it may do what its scopes name.",
    },
    "metricsToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of the metrics; not needed if the operator has opened them.",
    },
}
_TAGS: Final[Mapping[Tag, str]] = {
    Tag.BINDINGS: "Trust bindings: which CI identities an organisation trusts, and why one is not.",
    Tag.AUDIT: "The audit log: its rows, their counts, and the events that proxies send.",
    Tag.EVIDENCE: "Proofs that rows are in the log as they were signed, and that none is left out.",
    Tag.EXPORTS: "Files of audit rows, and the receipts that prove what was sent.",
    Tag.SEARCHES: "Searches of the audit log that an organisation saves.",
    Tag.ALERTS: "Rules over the audit log that speak up, and where they fired.",
    Tag.REPORTS: "Reports for audits.",
    Tag.STREAMS: "Rows sent to other systems.",
    Tag.POLICY: "The install policy, its revisions, and requests for exceptions.",
    Tag.INSTALLS: "Tokens with which CI jobs and machines of members install packages.",
    Tag.ORGANISATION: "An organisation's members, teams, projects and roles.",
    Tag.KEYS: "API keys: credentials of machines, with what each may do.",
    Tag.SESSIONS: "Sign-in of command lines, and whose a credential is.",
    Tag.OPERATOR: "What belongs to the operator of the service, and to no organisation.",
    Tag.SYSTEM: "Health and metrics of the service.",
}
_FILE: Final = {"type": "string", "format": "binary"}

_LIMITS: Final = ("maxLength", "minLength", "pattern")
"""Limits of texts, in order."""

_VARIABLE: Final = re.compile(r"<(?:\w+:)?(\w+)>")
_REFERENCE: Final = "#/components/schemas/{name}"
_REQUEST_ID: Final = {"x-request-id": "The server's id of this request."}


class Error(Struct, forbid_unknown_fields=True):
    """What went wrong."""

    error: str


@dataclass(frozen=True, slots=True)
class _Operation:
    """A documented endpoint: one path and one method."""

    path: str
    method: str
    path_parameters: tuple[str, ...]
    summary: str
    description: str
    declared: Documentation


def openapi_document(app: Quart, version: str) -> dict[str, Any]:
    """The document of every documented endpoint of `app`, as JSON values."""
    operations = sorted(_operations(app), key=lambda operation: operation.path)
    schemas = _Schemas(operation.declared for operation in operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _written(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Countersign",
            "version": version,
            "description": "Trust bindings for CI jobs, and the audit log of what they did.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that this document comes from."}],
        "tags": [{"name": tag.value, "description": _TAGS[tag]} for tag in Tag],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SECURITY_SCHEMES},
    }


class _Schemas:
    """The JSON schemas of all models, each by reference to a component with its name."""

    def __init__(self, declared: Iterable[Documentation]) -> None:
        models: dict[Any, None] = {Error: None}
        flat: set[type[Struct]] = set()
        """Models whose members become parameters, each with a schema of its own."""
        for each in declared:
            for media in (each.body, *each.media.values()):
                models |= dict.fromkeys(model for model in media.values() if model is not None)
            flat |= {
                model for model in (each.querystring, each.request_headers) if model is not None
            }
        models |= dict.fromkeys(flat)
        schemas, components = schema_components(models, ref_template=_REFERENCE)
        self._by_model = dict(zip(models, map(_readable, schemas), strict=True))
        self.components = {name: _readable(schema) for name, schema in sorted(components.items())}
        for component in self.components.values():
            if "description" in component:
                component["description"] = inspect.cleandoc(component["description"])
        self.members = {
            model: self.components.pop(_name(self._by_model[model]))["properties"] for model in flat
        }
        """The schema of each member of those, by name."""

    def of(self, model: Any) -> dict[str, Any]:  # noqa: ANN401 - any type
        """The schema of a body."""
        return dict(self._by_model[model])


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _readable(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """`schema` as generators of clients understand it.

    They ask for the type of enumerations, which msgspec leaves out; and they take any default for a
    member that is always there, also the null that says only that it may be missing.
    """
    if isinstance(schema, list):
        return [_readable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    readable = {key: _readable(value) for key, value in schema.items()}
    if readable.get("default", ...) is None:
        del readable["default"]
    for limit in _LIMITS:
        if limit in readable:  # behind the type, where msgspec writes its own
            readable[limit] = readable.pop(limit)
    values = schema.get("enum")
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        readable.setdefault("type", "string")
    return readable


def _operations(app: Quart) -> Iterator[_Operation]:
    for rule in app.url_map.iter_rules():
        endpoint = app.view_functions[rule.endpoint]
        declared = documentation_of(endpoint)
        if declared is not None:
            summary, _, description = (inspect.getdoc(endpoint) or "").partition("\n\n")
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield _Operation(
                    _VARIABLE.sub(r"{\1}", rule.rule),
                    method.lower(),
                    tuple(_VARIABLE.findall(rule.rule)),
                    " ".join(summary.split()),
                    description,
                    declared,
                )


def _written(operation: _Operation, schemas: _Schemas) -> dict[str, Any]:
    """The document's object of one operation."""
    declared = operation.declared
    written: dict[str, Any] = {
        "operationId": declared.operation,
        "tags": [declared.tag.value],
        "summary": operation.summary,
    }
    if operation.description:
        written["description"] = operation.description
    written["parameters"] = _parameters(operation, schemas)
    if declared.body:
        content = {
            name: written or {"schema": _FILE}
            for name, written in _content(declared.body, schemas).items()
        }
        if declared.request_example is not None:
            next(iter(content.values()))["example"] = declared.request_example
        written["requestBody"] = {"required": True, "content": content}
    written["responses"] = _responses(declared, schemas)
    written["security"] = [{name: []} for name in declared.credentials]
    if declared.capability is not None:
        written["x-capability"] = declared.capability
    return written


def _parameters(operation: _Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    declared = operation.declared
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            **_PATH_PARAMETERS[name],
        }
        for name in operation.path_parameters
    ]
    parameters += _members("query", declared.querystring, schemas)
    parameters += _members("header", declared.request_headers, schemas)
    if declared.credentials and declared.ci_token in _CI_TOKENS:
        parameters.append(
            {
                "name": CI_TOKEN_HEADER,
                "in": "header",
                "required": declared.ci_token is CiTokenUse.REQUIRED,
                "description": _CI_TOKENS[declared.ci_token],
                "schema": {"type": "string"},
            }
        )
    return parameters


def _members(where: str, model: type[Struct] | None, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    """A parameter for each member of `model`."""
    if model is None:
        return
    required = {field.encode_name for field in structs.fields(model) if field.required}
    for name, schema in schemas.members[model].items():
        parameter: dict[str, Any] = {"name": name, "in": where, "required": name in required}
        schema = _without_null(schema)
        if "description" in schema:
            parameter["description"] = schema["description"]
        parameter["schema"] = {key: value for key, value in schema.items() if key != "description"}
        if schema.get("type") == "array":
            parameter |= {"style": "form", "explode": True}
        yield parameter


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` of a parameter: None in its model says that it is missing, no text is null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else schema


def _content(media: MediaTypes, schemas: _Schemas) -> dict[str, dict[str, Any]]:
    return {
        name: {} if model is None else {"schema": schemas.of(model)}
        for name, model in media.items()
    }


def _responses(declared: Documentation, schemas: _Schemas) -> dict[str, Any]:
    responses = {
        status: {
            "description": _meaning(media),
            "headers": _headers(declared.headers),
            "content": _content(media, schemas),
        }
        for status, media in declared.media.items()
    }
    for refusals in _by_status(declared.all_refusals):
        responses[refusals[0].status] = _refusal(refusals, schemas)
    return {str(status): responses[status] for status in sorted(responses)}


def _meaning(media: MediaTypes) -> str:
    """What a successful answer is."""
    models = list(media.values())
    if len(models) == 1 and isinstance(models[0], type) and issubclass(models[0], Struct):
        return inspect.getdoc(models[0]) or ""
    return "The complete response."


def _headers(named: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {"description": meaning, "required": True, "schema": {"type": "string"}}
        for name, meaning in (_REQUEST_ID | dict(named)).items()
    }


def _by_status(refusals: Sequence[type[Refusal]]) -> Iterator[list[type[Refusal]]]:
    for status in dict.fromkeys(refusal.status for refusal in refusals):
        yield [refusal for refusal in dict.fromkeys(refusals) if refusal.status == status]


def _refusal(refusals: Sequence[type[Refusal]], schemas: _Schemas) -> dict[str, Any]:
    """The answer with one status; each of `refusals`, which have it, is an example."""
    headers = {}
    if all(refusal.retry_after_s is not None for refusal in refusals):
        headers["retry-after"] = "Seconds to wait before trying again."
    if all(issubclass(refusal, Unauthenticated) for refusal in refusals):
        headers["www-authenticate"] = "The credentials that are accepted (RFC 9110, 11.6.1)."
    texts = [refusal.example_text() for refusal in refusals]
    examples = {_cause(text): {"value": {"error": text}} for text in texts}
    return {
        "description": HTTPStatus(refusals[0].status).phrase,
        "headers": _headers(headers),
        "content": {JSON: {"schema": schemas.of(Error), "examples": examples}},
    }


def _cause(text: str) -> str:
    """What went wrong, without the remedy: names the error among those with its status."""
    return text.partition(": ")[0]
