"""The OpenAPI document is valid and complete: every endpoint, parameter, refusal and example."""

import json
import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import jsonschema_rs
import openapi_spec_validator
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.instants import parse_instant, parse_since, parse_until
from service.core.header_names import CI_TOKEN_HEADER
from service.core.text_rules import is_plain
from service.trust.bindings.bindings_api import PLAIN_PATTERN, REQUEST_EXAMPLE
from service.trust.refusals import CREATE_REFUSALS
from service.web.models import INSTANT_OR_DATE_PATTERN
from tests.conftest import World

PAGES = {"/", "/sign-in", "/sign-out", "/docs", "/device", "/device/decision"}
"""What people look at and send from there, besides all below /admin/ui/."""
PROXY = "/proxy/"
"""Protocols of PyPI and npm, which docs/install-proxy.md describes: clients know them already."""
ADMIN = ("/admin/", "/api/v1/admin/", "/api/v1/operator/")
_PATH_NAMES = (
    "slug",
    "binding_id",
    "key_id",
    "machine_token_id",
    "search_id",
    "stream_id",
    "exception_id",
    "alert_rule_id",
    "alert_id",
    "export_id",
    "audit_id",
    "feed",
    "rule_id",
    "member_id",
    "team_id",
    "role",
    "level",
    "number",
)
_VALUES = {"format": "csv", "compress": "gzip", "raw": "true", "q": "left-pad"}
EXPORT = "/admin/ui/orgs/{slug}/audit/export"
"""The one endpoint there that is for scripts, too."""


@pytest.fixture
async def document(world: World) -> dict[str, Any]:
    response = await world.client.get("/openapi.json")
    assert response.status_code == 200
    return await response.get_json()


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for inner in (
        node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    ):
        yield from _nodes(inner)


def _operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


async def test_the_document_is_valid(document: Any) -> None:
    openapi_spec_validator.validate(document)


async def test_every_reference_resolves_and_every_component_is_used(document: Any) -> None:
    """A model that only one of several content types names was left out once."""
    references = {node["$ref"] for node in _nodes(document) if "$ref" in node}

    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references == schemas


async def test_no_text_of_the_document_has_control_characters(world: World) -> None:
    """YAML readers refuse them, and JSON only has to escape those below U+0020."""
    text = await (await world.client.get("/openapi.json")).get_data(as_text=True)

    invisible = {
        character
        for value in re.findall(r'"(?:[^"\\]|\\.)*"', text)
        for character in json.loads(value)
        if unicodedata.category(character) in {"Cc", "Zl", "Zp"} and character != "\n"
    }

    assert invisible == set()


async def test_every_schema_says_what_it_is(document: Any) -> None:
    """Generators leave out what has no type, and lists of unknown items."""
    for node in _nodes(document["components"]["schemas"]):
        if isinstance(node.get("enum"), list):
            assert "type" in node, node
        if node.get("type") == "array":
            assert node["items"], node
    for path, _, operation in _operations(document):
        for parameter in operation["parameters"]:
            schema = parameter["schema"]
            assert {"type", "$ref"} & schema.keys(), (path, parameter)
            assert schema.get("enum") not in (["false", "true"], ["0", "1"]), (path, parameter)


async def test_every_operation_has_a_name_and_a_tag(document: Any) -> None:
    """They become the methods and modules of generated clients."""
    operations = [operation for _, _, operation in _operations(document)]
    names = [operation["operationId"] for operation in operations]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in names), names
    tags = {tag["name"] for tag in document["tags"]}
    assert {tag for operation in operations for tag in operation["tags"]} == tags
    assert all(tag["description"] for tag in document["tags"])
    assert all(re.fullmatch(r"[A-Za-z]+", name) for name in document["components"]["schemas"])


async def test_routes_accept_the_parameters_of_the_document_and_no_others(
    world: World, document: Any
) -> None:
    queries = {
        (path, method): {each["name"] for each in operation["parameters"] if each["in"] == "query"}
        for path, method, operation in _operations(document)
        if path.startswith(ADMIN) and {"adminToken": []} in operation["security"]
    }
    every = set().union(*queries.values(), {"no_such_name"})
    for (path, method), described in queries.items():
        answer = await world.client.open(
            path.format_map(dict.fromkeys(_PATH_NAMES, "none") | {"slug": "acme"}),
            method=method.upper(),
            headers=world.admin,
            query_string={name: _VALUES.get(name, "?") for name in every},
            json=None if method in {"get", "delete"} else {},
        )
        text = (await answer.get_json())["error"]
        unknown = text.removeprefix("unknown query parameter: ").split(", ")
        assert set(unknown) == every - described, (method, path, text)


async def test_every_endpoint_for_scripts_is_described(world: World, document: Any) -> None:
    """The list comes from the app's own routes, so a new endpoint cannot be forgotten."""
    routes = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in world.app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if not rule.rule.startswith("/static/")
    }
    described = {
        (path, method) for path, operations in document["paths"].items() for method in operations
    }

    expected = {
        route
        for route in routes
        if route[0] == EXPORT
        or not (route[0] in PAGES or route[0].startswith(("/admin/ui/", PROXY)))
    }
    assert described == expected - {("/openapi.json", "get")}
    assert len(described) >= 9


async def test_every_answer_is_described_down_to_its_errors(document: Any) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert "security" in operation, path
            assert {"500", "503"} <= operation["responses"].keys(), path
            for status, response in operation["responses"].items():
                assert "x-request-id" in response["headers"], (path, status)
                if int(status) >= 400:
                    content = response["content"]["application/json"]
                    assert content["schema"] == {"$ref": "#/components/schemas/Error"}
                    assert all(
                        example["value"]["error"] for example in content["examples"].values()
                    )


async def test_a_create_shows_every_text_it_can_refuse_with(document: Any) -> None:
    create = document["paths"]["/api/v1/admin/orgs/{slug}/oidc-bindings"]["post"]
    content = create["responses"]["400"]["content"]["application/json"]

    texts = [example["value"]["error"] for example in content["examples"].values()]

    assert texts[: len(CREATE_REFUSALS)] == [refusal.example_text() for refusal in CREATE_REFUSALS]


async def test_the_example_of_a_create_fits_its_schema_and_works(
    world: World, document: Any
) -> None:
    schema = {"$ref": "#/components/schemas/BindingRequest", "components": document["components"]}

    jsonschema_rs.validate(schema, REQUEST_EXAMPLE)
    response = await world.create(**REQUEST_EXAMPLE)

    assert response.status_code == 201


async def test_every_example_of_a_body_fits_its_schema(document: Any) -> None:
    checked = 0
    for node in _nodes(document["paths"]):
        examples = (
            [each["value"] for each in node.get("examples", {}).values()]
            if "schema" in node and isinstance(node.get("examples"), dict)
            else []
        )
        if "schema" in node and "example" in node:
            examples.append(node["example"])
        for example in examples:
            schema = {"allOf": [node["schema"]], "components": document["components"]}
            jsonschema_rs.validate(schema, example)
            checked += 1

    assert checked > 200


def _described(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every schema that has an example, with each of its examples."""
    if isinstance(node, dict):
        schema = node.get("schema", node)
        examples = [*schema.get("examples", [])] if isinstance(schema, dict) else []
        if "example" in node and "schema" in node:
            examples.append(node["example"])
        yield from ((schema, example) for example in examples)
        for inner in node.values():
            yield from _described(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _described(inner)


async def test_every_example_fits_its_schema(document: Any) -> None:
    """Examples are copied before anything is read."""
    described = [
        (schema, example)
        for schema, example in _described(document["paths"] | document["components"]["schemas"])
        if isinstance(schema, dict) and "type" in schema
    ]
    assert len(described) > 20

    for schema, example in described:
        jsonschema_rs.validate({**schema, "components": document["components"]}, example)


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30, 23)),  # noqa: DTZ001
    st.sampled_from(["", "Z", "z", "+00:00", "-23:59", "+23:59", "+12:45", " 05:30"]),
    st.sampled_from(["T", "t", " "]),
    st.integers(0, 6),
)
def test_every_instant_that_is_accepted_fits_the_schema(
    at: datetime, zone: str, separator: str, digits: int
) -> None:
    """A generated client checks before it sends: also the 31st, and offsets over 12 hours."""
    fraction = f".{at.microsecond:06}"[: digits + 1] if digits else ""
    text = f"{at:%H:%M:%S}{fraction}{zone}"
    instant = f"{at.year:04}-{at:%m-%d}{separator}{text}"

    assert parse_instant(instant)
    assert re.search(INSTANT_OR_DATE_PATTERN, instant)
    assert re.search(INSTANT_OR_DATE_PATTERN, instant[:10])


@given(st.from_regex(INSTANT_OR_DATE_PATTERN, fullmatch=True))
def test_every_instant_that_fits_the_schema_is_accepted(text: str) -> None:
    assert parse_since(text.rstrip("\n"))
    assert parse_until(text.rstrip("\n"))


def test_the_pattern_of_plain_text_says_what_the_rule_says() -> None:
    pattern = re.compile(PLAIN_PATTERN)

    disagreeing = [
        hex(point)
        for point in range(0x110000)
        if not 0xD800 <= point <= 0xDFFF  # lone surrogates are no text at all
        and is_plain(chr(point)) != (pattern.fullmatch(chr(point)) is not None)
    ]

    assert disagreeing == []


QUESTIONS = (
    "/explain",
    "/sync/plan",
    "/policy/check",
    "/policy/preview",
    "/audit/sql",
    "/alerts/backtest",
)
"""Asked by POST, and changing nothing."""


OF_ADMINS = re.compile(
    r"/\{slug\}(/(api-keys|machine-tokens|members|members/\{member_id\}/sessions|domains|teams|projects"
    r"|roles|streams))?$"
)
"""Read by members alone, most of it with org:admin; no key has a scope for streams."""


async def test_the_document_names_the_ways_in(document: Any) -> None:
    """On every endpoint that wants credentials, beside which a CI token is looked at.

    Rows are sent with a key and not by session; what changes nothing is open to keys with scopes,
    but for the keys themselves.
    """
    schemes = document["components"]["securitySchemes"]
    assert schemes.keys() == {"adminToken", "session", "bearer", "apiKey", "metricsToken"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "/orgs/" in path and not path.startswith("/api/v1/operator/"):
                is_read = method == "get" and OF_ADMINS.search(path) is None
                is_read = is_read or path.endswith(QUESTIONS)
                expected = ["adminToken", "session", "bearer", *["apiKey"] * is_read]
                if path.endswith("/audit/events"):
                    expected = ["adminToken", "apiKey"]
                elif path.endswith("/install-tokens"):
                    expected = ["apiKey"]
                elif path.startswith("/admin/ui/"):
                    expected = ["adminToken", "session"]
                assert operation["security"] == [{name: []} for name in expected]
                assert "401" in operation["responses"]
            names = {parameter["name"] for parameter in operation["parameters"]}
            assert (CI_TOKEN_HEADER in names) == (
                "/orgs/" in path and not path.startswith("/api/v1/operator/")
            )
