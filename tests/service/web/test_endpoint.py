"""What all declared endpoints do: rights, parameters, bodies, one transaction, the answer.

The endpoints are those of the example in docs/architecture.md, over the database of a world.
"""

import asyncio
import re
from types import ModuleType
from typing import Annotated, Any, Final, Literal

import pytest
from msgspec import Meta, field
from quart import Quart, Response, g
from quart.typing import TestClientProtocol as Client

from service.access.roles import Capability
from service.access.sessions import revoke_sessions
from service.app.application import answer_errors
from service.audit.services import AuditServices
from service.core.errors import Conflict, Invalid, parse_both
from service.core.settings import REPOSITORY
from service.orgs.api_keys import issue_api_key
from service.web.dependencies import provide
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, ParsedQuery, Request
from service.web.openapi import openapi_document
from tests.conftest import BY_OPERATOR, World, refused

TEAMS: Final = "/api/v1/admin/orgs/acme/teams"


def example() -> Resource[AuditServices]:
    """The resource that the example in the documentation declares."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    section = page.partition("### How an endpoint is declared")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    module = ModuleType("example")
    exec(compile(code, "docs/architecture.md", "exec"), module.__dict__)  # noqa: S102 - our own
    declared = module.__dict__["resource"]
    assert isinstance(declared, Resource)
    return declared


def served(world: World, resource: Resource[Any]) -> Quart:
    """An app of these endpoints alone, over the world's database."""
    app = Quart("service")
    provide(app, world.services.groups())
    app.register_blueprint(resource.blueprint)
    answer_errors(app)

    @app.before_request
    async def begin() -> None:
        g.request_id = f"req_{0:024x}"

    @app.after_request
    async def end(response: Response) -> Response:
        response.headers["x-request-id"] = g.request_id
        return response

    return app


@pytest.fixture
def client(world: World) -> Client:
    return served(world, example()).test_client()


async def test_the_example_creates_and_lists(world: World, client: Client):
    created = await client.post(TEAMS, headers=world.session("owner"), json={"name": "web"})
    listed = await client.get(TEAMS, headers=world.session("owner"))

    team = await created.get_json()
    assert (created.status_code, team["name"]) == (201, "web")
    assert team in (await listed.get_json())["teams"]
    (row, *_) = await world.audit(event="team_created")
    assert row["actor"].endswith(world.members["owner"].id)


async def test_what_is_wrong_is_said_in_this_order(world: World, client: Client):
    """Callers learn nothing of an organisation, or of a body, that they have no right to."""
    missing, wrong = TEAMS.replace("acme", "missing") + "?x=1", f"{TEAMS}?x=1"
    owner, member = world.session("owner"), world.session("member")
    answers = [
        await client.post(missing, data="{"),
        await client.post(missing, headers=owner, data="{"),
        await client.post(wrong, headers=member, data="{"),
        await client.post(wrong, headers=owner, data="{"),
        await client.post(TEAMS, headers=owner, data="{"),
        await client.post(TEAMS, headers=owner | {"content-type": "application/json"}, data="{"),
        await client.post(TEAMS, headers=owner, json={"name": 5}),
        await client.post(TEAMS, headers=owner, json={"name": world.team.name}),
    ]

    said = [await refused(answer) for answer in answers]
    assert said == [
        (401, "missing or invalid credentials"),
        (404, "Org not found"),
        (403, "missing capability: org:admin"),
        (400, "unknown query parameter: x"),
        (415, "content-type must be application/json"),
        (400, "request body must be a JSON object"),
        (400, "name is required (string)"),
        (409, f"team {world.team.name} already exists in acme"),
    ]


async def test_a_key_changes_nothing(world: World):
    resource = Resource("notes", "/notes", Tag.SYSTEM, AuditServices)

    @resource.post("add_note", needs=Capability.AUDIT_READ, returns=Said)
    async def add(call: WriteCall[AuditServices]) -> Said:
        """Add a note."""
        return Said(values=[call.by.actor])

    async with world.services.store.write() as work:
        _, secret = await issue_api_key(
            work, world.acme, "audit", None, BY_OPERATOR, scopes=["audit:r"]
        )
    client = served(world, resource).test_client()
    path = "/api/v1/admin/orgs/acme/notes"
    refusal = await refused(await client.post(path, headers={"x-service-api-key": secret}))
    good = await client.post(path, headers=world.session("auditor"))

    assert refusal == (
        403,
        "an API key reads, and changes nothing: use a session or the admin token",
    )
    assert good.status_code == 200


async def test_who_signs_out_while_the_body_arrives_changes_nothing(world: World, client: Client):
    """The caller is authorised again in the transaction."""
    before = await world.audit()
    headers = world.session("owner") | {"content-type": "application/json"}
    connection = client.request(TEAMS, method="POST", headers=headers)
    async with connection:
        await connection.send(b'{"name"')
        await asyncio.sleep(0.2)  # long enough to be let in; if not, it is refused all the same
        async with world.services.store.write() as work:
            await revoke_sessions(work.session, world.members["owner"].id, work.now)
        await connection.send(b': "web"}')
        await connection.send_complete()
    answer = await connection.as_response()

    assert (await refused(answer))[0] == 401
    assert await world.audit() == before


class Said(Answer):
    """What a handler received."""

    values: list[str]


class Wanted(Request):
    """Parameters of each kind."""

    kind: Literal["a", "b"] | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] = 7
    names: list[str] = field(default_factory=list)
    text: str = ""


@pytest.fixture
def reader(world: World) -> Client:
    """A client of an endpoint that answers its parameters."""
    resource = Resource("wanted", "/wanted", Tag.SYSTEM, AuditServices)

    @resource.get("get_wanted", "/<first>", needs=Capability.AUDIT_READ, query=Wanted, returns=Said)
    async def get(call: Call[AuditServices], query: Wanted, first: str) -> Said:
        """Repeat what was asked."""
        return Said(values=[first, str(query.kind), str(query.limit), *query.names, query.text])

    return served(world, resource).test_client()


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("", ["x", "None", "7", ""]),
        ("kind=a&limit=007&text=9", ["x", "a", "7", "9"]),
        ("names=1&names=2", ["x", "None", "7", "1", "2", ""]),
    ],
)
async def test_parameters_have_the_types_of_their_model(
    world: World, reader: Client, query: str, values: list[str]
):
    answer = await reader.get(
        f"/api/v1/admin/orgs/acme/wanted/x?{query}", headers=world.session("auditor")
    )

    assert await answer.get_json() == {"values": values}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit must be an integer from 1 to 50"),
        ("limit=51", "limit must be an integer from 1 to 50"),
        ("limit=1.0", "limit must be an integer from 1 to 50"),
        ("limit=", "limit must be an integer from 1 to 50"),
        ("kind=c", "kind must be one of a, b"),
        ("kind=null", "kind must be one of a, b"),
        ("kind=a&kind=b", "kind may be given only once"),
        ("none=1", "unknown query parameter: none"),
    ],
)
async def test_a_wrong_parameter_is_named(world: World, reader: Client, query: str, said: str):
    answer = await reader.get(
        f"/api/v1/admin/orgs/acme/wanted/x?{query}", headers=world.session("auditor")
    )

    assert await refused(answer) == (400, said)


class Created(Said):
    """What was created."""

    @property
    def location(self) -> str:
        return f"/{self.values[0]}"


@pytest.fixture
def writer(world: World) -> Client:
    """A client of changes: one with parameters, one whose parameters are parsed by a function."""
    resource = Resource("wanted", "/wanted", Tag.SYSTEM, AuditServices)
    texts = ParsedQuery(Wanted, dict, checks_names=True)

    @resource.delete("delete", "/<first>", needs=Capability.OIDC_WRITE, query=Wanted, returns=Said)
    async def delete(call: WriteCall[AuditServices], query: Wanted, first: str) -> Said:
        """Repeat what was asked."""
        return Said(values=[first, str(query.kind), str(call.session.in_transaction())])

    @resource.post("create", needs=Capability.OIDC_WRITE, query=texts, returns=Created, status=201)
    async def create(call: WriteCall[AuditServices], query: dict[str, list[str]]) -> Created:
        """Create what was asked."""
        return Created(values=[*query, *query["names"]])

    return served(world, resource).test_client()


async def test_a_change_may_take_parameters(world: World, writer: Client):
    path, owner = "/api/v1/admin/orgs/acme/wanted/x", world.session("owner")

    good = await writer.delete(f"{path}?kind=a", headers=owner)
    said = [
        await refused(await writer.delete(f"{path}?{query}", headers=owner))
        for query in ("kind=c", "none=1", "kind=a&kind=a")
    ]

    assert await good.get_json() == {"values": ["x", "a", "True"]}
    assert said == [
        (400, "kind must be one of a, b"),
        (400, "unknown query parameter: none"),
        (400, "kind may be given only once"),
    ]


async def test_a_function_may_take_parameters_of_any_name(world: World, writer: Client):
    path, owner = "/api/v1/admin/orgs/acme/wanted", world.session("owner")

    answer = await writer.post(f"{path}?names=1&none=2&names=3", headers=owner)

    assert await answer.get_json() == {"values": ["names", "none", "1", "3"]}


async def test_a_creation_says_where_its_result_is_read(world: World, writer: Client):
    path, owner = "/api/v1/admin/orgs/acme/wanted", world.session("owner")

    answer = await writer.post(f"{path}?names=1", headers=owner)

    assert answer.status_code == 201
    assert answer.headers["location"] == f"{path}/names"


class Named(Request):
    """A body with fields of each kind."""

    name: str
    kind: Literal["b", "a"]
    note: str | None = None


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, {"name": "name is required (string)", "kind": "kind must be one of b, a"}),
        ({"name": None, "kind": "a"}, {"name": "name is required (string)"}),
        ({"name": "x", "kind": "c"}, {"kind": "kind must be one of b, a"}),
        ({"name": "x", "kind": "a\ud800"}, {"kind": "kind must be one of b, a"}),
        ({"name": "x", "kind": "a", "note": 5}, {"note": "note must be a string"}),
        ({"name": "x", "kind": "a", "more": 1}, {"more": "unknown field: more"}),
        ({"x" * 65: 1, "name": "x", "kind": "a"}, {"x" * 64: f"unknown field: {'x' * 64}"}),
    ],
)
def test_all_faults_of_a_body_are_found_at_once(body: dict[str, object], faults: dict[str, str]):
    with pytest.raises(Invalid) as refusal:
        Named.parse(body)

    assert by_field(refusal.value) == faults


def by_field(refusal: Invalid) -> dict[str | None, str]:
    """The texts of all faults."""
    return {fault.field: fault.text for fault in (refusal, *refusal.further)}


def _fails(field: str) -> str:
    raise Invalid(f"{field} is wrong", field=field)


def test_both_halves_of_a_body_are_parsed():
    with pytest.raises(Invalid) as refusal:
        parse_both(lambda: _fails("first"), lambda: _fails("second"))

    assert refusal.value.text == "first is wrong"
    assert by_field(refusal.value) == {"first": "first is wrong", "second": "second is wrong"}
    assert parse_both(lambda: 1, lambda: "x") == (1, "x")


def test_a_handler_must_take_the_variables_of_its_path():
    resource = Resource("wrong", "/wrong", Tag.SYSTEM, AuditServices)

    async def show(call: Call[AuditServices], other: str) -> Said:
        """Show nothing."""
        return Said(values=[other])

    with pytest.raises(TypeError, match="variables of its path: /<one>"):
        resource.get("show", "/<one>", needs=Capability.AUDIT_READ, returns=Said)(show)


def test_a_body_has_an_example():
    """The document shows it, and it is sent by the tests of the document."""
    resource = Resource("wrong", "/wrong", Tag.SYSTEM, AuditServices)

    async def ask(call: Call[AuditServices], body: Named) -> Said:
        """Say nothing."""
        return Said(values=[body.name])

    with pytest.raises(TypeError, match="a body without an example"):
        resource.post_read("ask", needs=Capability.AUDIT_READ, returns=Said, body=Named)(ask)


def test_a_change_for_every_member_cannot_be_sensitive():
    """Nothing would ask for the sign-in."""
    resource = Resource("wrong", "/wrong", Tag.SYSTEM, AuditServices)

    with pytest.raises(TypeError, match="needs a capability"):
        resource.post("change", needs=None, is_sensitive=True, returns=Said)


def test_a_refusal_without_a_class_says_its_values():
    too_many = Conflict.of("limit of {limit} teams reached: delete one first", field="name")

    refusal = too_many(limit=5)

    assert isinstance(refusal, Conflict)
    assert (refusal.status, refusal.field) == (409, "name")
    assert refusal.text == "limit of 5 teams reached: delete one first"


def test_the_document_is_made_of_what_is_declared(world: World):
    resource = example()
    document = openapi_document(served(world, resource), "1")

    operation = document["paths"]["/api/v1/admin/orgs/{slug}/teams"]["post"]
    assert operation["operationId"] == "create_team"
    assert operation["summary"] == "Create a team."
    assert set(operation["responses"]) >= {"201", "400", "401", "403", "404", "409", "413", "415"}
    assert {"apiKey": []} not in operation["security"]
