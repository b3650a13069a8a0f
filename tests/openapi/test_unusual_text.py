"""Text that UTF-8 or a database cannot hold, in every place of every JSON body: 400, never 500."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.budgets import only_full
from tests.conftest import World

SURROGATE, NUL = "\ud800", "\0"
"""Half of a pair, which JSON can escape and UTF-8 cannot encode; and what PostgreSQL refuses."""

ANSWERS = {200, 201, 400, 404, 409}


def changed(body: Any, text: str) -> Iterator[Any]:
    """`body` with `text` added to one string or member's name, for each that there is."""
    if isinstance(body, str):
        yield body + text
    elif isinstance(body, list):
        for number, item in enumerate(body):
            for other in changed(item, text):
                yield [*body[:number], other, *body[number + 1 :]]
    elif isinstance(body, dict):
        for name, value in body.items():
            yield {key + text * (key == name): kept for key, kept in body.items()}
            for other in changed(value, text):
                yield body | {name: other}


async def json_bodies(world: World, text: str) -> list[tuple[str, Any]]:
    """Each JSON body of the document with `text` in one place, and the method and path of acme.

    They are its example, and the example with a member that only the schema has.
    """
    document = await (await world.client.get("/openapi.json")).get_json()
    bodies: list[tuple[str, Any]] = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is not None:
                place = path.format(
                    slug="acme",
                    binding_id="b" * 26,
                    exception_id="e",
                    stream_id="s",
                    alert_rule_id="r",
                    alert_id="a",
                    key_id="k",
                    member_id=world.members["auditor"].id,
                    team_id=world.team.id,
                    role="auditor",
                )
                example, members = content["example"], members_of(content["schema"], document)
                others = [example | {name: text} for name in members if name not in example]
                bodies += [
                    (f"{method} {place}", body) for body in [*changed(example, text), *others]
                ]
    return bodies


def members_of(schema: Any, document: Any) -> list[str]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return list(document["components"]["schemas"][name]["properties"]) if name else []


async def send(world: World, place: str, body: Any) -> Any:
    """The answer to an owner, and to the operator where only services or the operator may."""
    method, path = place.split()
    is_operators = path.endswith("/events") or "/operator/" in path
    who = world.admin if is_operators else world.session("owner")
    return await world.client.open(
        path,
        method=method.upper(),
        headers=who | {"content-type": "application/json", "if-match": "*"},
        data=json.dumps(body),
    )


@pytest.mark.parametrize(
    "text", [SURROGATE, pytest.param(NUL, marks=only_full)], ids=["surrogate", "NUL"]
)
async def test_no_text_in_a_body_is_an_error_of_ours(world: World, text: str) -> None:
    bodies = await json_bodies(world, text)
    assert len({place for place, _ in bodies}) >= 11
    wrong: list[str] = []
    for place, body in bodies:
        answer = await send(world, place, body)
        if answer.status_code not in ANSWERS:
            wrong.append(f"{answer.status_code} to {place}: {json.dumps(body)}")

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"mode": f"enforce{SURROGATE}"}, "mode"),
        ({f"mode{SURROGATE}": "enforce"}, f"mode{SURROGATE}"),
        ({"deny": [{"ecosystem": f"npm{SURROGATE}", "package": "a"}]}, "deny[0].ecosystem"),
        ({"deny": [{"ecosystem": "npm", "package": "a", "id": SURROGATE}]}, "deny[0].id"),
        ({"deny": [{"ecosystem": "npm", "package": "a", "reason": f"a{NUL}"}]}, "deny[0].reason"),
        ({"allow": [{"ecosystem": "npm", "package": f"a{SURROGATE}"}]}, "allow[0].package"),
    ],
    ids=["mode", "name of a member", "ecosystem", "id", "reason", "package"],
)
async def test_a_policy_names_the_field(world: World, body: Any, field: str) -> None:
    answer = await send(world, "put /api/v1/admin/orgs/acme/policy", body)

    assert answer.status_code == 400
    assert (await answer.get_json())["error"].startswith(f"{field}: ")
