"""What the page of the API makes of the OpenAPI document: curl lines, and what is shown once."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from service.core.header_names import CI_TOKEN_HEADER
from service.web.documentation import FORM
from service.web.models import (
    FILTER_PATTERN,
    INSTANT_OR_DATE_PATTERN,
    INSTANT_PATTERN,
    SHA256_PATTERN,
    TIMESTAMP_MS_PATTERN,
    TIMESTAMP_US_PATTERN,
)

Document = Mapping[str, Any]
Operation = tuple[str, str, dict[str, Any]]
"""Method, path and object of an operation."""

SHARED_BY: Final = 8
"""A parameter or refusal of as many endpoints is described once for all of them."""

FIND_CHARS_MAX: Final = 100

_CREDENTIALS: Final = {
    "adminToken": "x-service-admin-token: $TOKEN",
    "apiKey": "x-service-api-key: $KEY",
    "bearer": "authorization: Bearer $SESSION",
    "metricsToken": "authorization: Bearer $METRICS_TOKEN",
}
"""The header with each credential, the one to paste first."""

EXPORTS: Final = (
    "export URL=http://127.0.0.1:8080",
    "export ORG=acme",
    "export TOKEN=…  # the admin token",
    "export KEY=…  # an API key, where the line sends one",
)
"""What lines to paste take from the shell."""

_RULES: Final = {
    INSTANT_OR_DATE_PATTERN: "an instant or a date (RFC 3339); UTC unless it says otherwise",
    f"^{INSTANT_PATTERN}$": "an instant (RFC 3339); UTC unless it says otherwise",
    TIMESTAMP_MS_PATTERN: "an instant in UTC with milliseconds",
    TIMESTAMP_US_PATTERN: "an instant in UTC with microseconds",
    SHA256_PATTERN: "a SHA-256 digest: 64 hexadecimal digits",
    FILTER_PATTERN: "`!` before it leaves the value out",
}
"""Patterns that many schemas have, in words."""

_VALUES: Final = re.compile(r"\^(!\?)?\(([^()\\]+\|[^()]+)\)\$")
_SHORT_CHARS: Final = 40
_VARIABLES: Final = {"slug": "$ORG", CI_TOKEN_HEADER: "$CI_TOKEN"}


def operations(document: Document) -> Iterator[Operation]:
    """Each operation, by path."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def curl(method: str, path: str, operation: Mapping[str, Any], schemas: Document) -> str:
    """A request to paste into a shell that has `$URL`, `$ORG` and the credential.

    What differs from one organisation to another is a variable too, such as `$BINDING_ID`.
    """
    flags = "" if method == "GET" else f" -X {method}"
    parts = [f'curl -s{flags} "$URL{_target(path, operation, schemas)}"']
    accepted = {name for choice in operation["security"] for name in choice}
    parts += [f'-H "{line}"' for name, line in _CREDENTIALS.items() if name in accepted][:1]
    parts += [
        f'-H "{parameter["name"]}: {_variable(parameter["name"])}"'
        for parameter in operation["parameters"]
        if parameter["in"] == "header" and parameter["required"]
    ]
    return " \\\n  ".join([*parts, *_body(operation)])


def _target(path: str, operation: Mapping[str, Any], schemas: Document) -> str:
    query = []
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            is_own = name == "slug" or name.endswith("_id")
            path = path.replace(f"{{{name}}}", _variable(name) if is_own else parameter["example"])
        elif parameter["in"] == "query" and parameter["required"]:
            query.append(f"{name}={_example(name, parameter['schema'], schemas)}")
    return f"{path}?{'&'.join(query)}" if query else path


def _variable(name: str) -> str:
    return _VARIABLES.get(name) or f"${name.upper().replace('-', '_')}"


def _example(name: str, schema: Mapping[str, Any], schemas: Document) -> str:
    """A value of a parameter that must be there; a variable if only the reader knows one."""
    schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    for value in (*schema.get("examples", ()), *schema.get("enum", ())):
        return quote(str(value[0] if isinstance(value, list) else value), safe="")
    return _variable(name)


def _body(operation: Mapping[str, Any]) -> list[str]:
    for media, body in operation.get("requestBody", {}).get("content", {}).items():
        example = body.get("example")
        if media == FORM:
            return [f"-d {shlex.quote(f'{name}={value}')}" for name, value in example.items()]
        kind = f"-H 'content-type: {media}'"
        if example is None:
            return [kind, '--data-binary "@$FILE"']
        return [kind, f"-d {shlex.quote(json.dumps(example, indent=2, ensure_ascii=False))}"]
    return []


def rule(pattern: str) -> str:
    """A pattern in words, or itself if it is short; empty if only programs can read it."""
    if pattern in _RULES:
        return _RULES[pattern]
    values = _VALUES.fullmatch(pattern)
    if values is not None:
        named = ", ".join(f"`{value}`" for value in values[2].split("|") if "\\" not in value)
        return f"one of {named}" + (f"; {_RULES[FILTER_PATTERN]}" if values[1] else "")
    return f"pattern `{pattern}`" if 0 < len(pattern) <= _SHORT_CHARS else ""


def shared_parameters(document: Document) -> dict[str, dict[str, Any]]:
    """The parameters that many endpoints take, in their order: the same name means the same."""
    return _shared(
        (parameter["name"], parameter)
        for _, _, operation in operations(document)
        for parameter in operation["parameters"]
    )


def shared_refusals(document: Document) -> dict[str, list[str]]:
    """The texts that many endpoints refuse with, by status."""
    texts = _shared(
        (f"{status} {text}", (status, text))
        for _, _, operation in operations(document)
        for status, response in operation["responses"].items()
        for text in refusals(response)
    )
    by_status: dict[str, list[str]] = {}
    for status, text in sorted(texts.values(), key=lambda each: each[0]):
        by_status.setdefault(status, []).append(text)
    return by_status


def refusals(response: Mapping[str, Any]) -> list[str]:
    """The texts of an error; none of another response."""
    examples = response.get("content", {}).get("application/json", {}).get("examples", {})
    return [example["value"]["error"] for example in examples.values()]


def _shared(named: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """What many have under the same name."""
    values: dict[str, list[Any]] = {}
    for name, value in named:
        values.setdefault(name, []).append(value)
    frequent = {name: max(same, key=same.count) for name, same in values.items()}
    return {
        name: value for name, value in frequent.items() if values[name].count(value) >= SHARED_BY
    }


def matching(document: Document, text: str) -> list[Operation]:
    """The operations that have every word of `text` in their method, path, name or texts."""
    words = text[:FIND_CHARS_MAX].casefold().split()
    return [each for each in operations(document) if all(word in _words(each) for word in words)]


def _words(operation: Operation) -> str:
    method, path, declared = operation
    parts = (
        method,
        path,
        *map(declared.get, ("operationId", "summary", "description", "x-capability")),
    )
    return " ".join(filter(None, (*parts, *declared["tags"]))).casefold()
