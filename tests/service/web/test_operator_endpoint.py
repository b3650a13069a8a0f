"""What all endpoints of the operator do: the admin token alone, one transaction, the answer."""

from typing import Annotated, Final

import pytest
from msgspec import Meta
from quart import Response
from quart.typing import TestClientProtocol as Client

from analytics.model.retention import Tier
from service.audit.services import AuditServices
from service.core.errors import Conflict
from service.orgs.organisations import create_org
from service.store.organisations import list_orgs
from service.web.models import Answer, Raw, Request
from service.web.openapi import openapi_document
from service.web.operator_endpoint import OperatorCall, OperatorResource, OperatorWriteCall
from tests.conftest import World, refused
from tests.service.web.test_endpoint import served

ORGS: Final = "/api/v1/operator/orgs"
RESERVED: Final = Conflict.of("{slug} is reserved: choose another slug", slug="new")


class Page(Request):
    """Which organisations."""

    limit: Annotated[int, Meta(ge=1, le=50)] = 50


class NewOrg(Request):
    """An organisation to create."""

    slug: str


class Slugs(Answer):
    """Organisations by slug."""

    slugs: list[str]


class Size(Answer):
    """How many bytes were sent."""

    bytes: int


def example() -> OperatorResource[AuditServices]:
    """Organisations, listed, created and counted."""
    resource = OperatorResource("orgs", "/orgs", AuditServices)

    @resource.get("list_orgs", query=Page, returns=Slugs)
    async def list_(call: OperatorCall[AuditServices], query: Page) -> Slugs:
        """List organisations."""
        async with call.read() as session:
            return Slugs(slugs=[org.slug for org in await list_orgs(session)][: query.limit])

    @resource.post(
        "create_org",
        body=NewOrg,
        example={"slug": "new"},
        returns=Slugs,
        status=201,
        refuses=[RESERVED],
    )
    async def create(call: OperatorWriteCall[AuditServices], body: NewOrg) -> Slugs:
        """Create an organisation."""
        org = await create_org(call.work, body.slug, Tier.TEAM, call.by)
        if body.slug == "reserved":
            raise RESERVED(slug=org.slug)
        return Slugs(slugs=[org.slug])

    @resource.post_read(
        "measure_org", "/<feed>/size", body=Raw(NewOrg, 100), example={}, returns=Size
    )
    async def measure(
        call: OperatorCall[AuditServices], content: bytes, feed: str
    ) -> Size | Response:
        """Measure what is sent."""
        return Response("", status=204) if feed == "nothing" else Size(bytes=len(content))

    return resource


@pytest.fixture
def client(world: World) -> Client:
    return served(world, example()).test_client()


async def test_the_operator_lists_and_creates(world: World, client: Client) -> None:
    created = await client.post(ORGS, headers=world.admin, json={"slug": "new"})
    listed = await client.get(f"{ORGS}?limit=50", headers=world.admin)

    assert created.status_code == 201
    assert "new" in (await listed.get_json())["slugs"]


async def test_rows_say_that_the_platform_did_it(world: World, client: Client) -> None:
    await client.post(ORGS, headers=world.admin, json={"slug": "new"})

    (row,) = await world.audit("new", event="org_created")
    assert (row["actor"], row["actor_source"], row["verdict_source"]) == (
        "system:admin-token",
        "admin_token",
        "admin_api",
    )
    assert row["actor_tenant_id"] == world.services.settings.platform_tenant_id


async def test_what_is_refused_changes_nothing(world: World, client: Client) -> None:
    answer = await client.post(ORGS, headers=world.admin, json={"slug": "reserved"})
    listed = await client.get(ORGS, headers=world.admin)

    assert await refused(answer) == (409, "reserved is reserved: choose another slug")
    assert "reserved" not in (await listed.get_json())["slugs"]


async def test_what_is_wrong_is_said_in_this_order(world: World, client: Client) -> None:
    wrong = f"{ORGS}?x=1"
    json = world.admin | {"content-type": "application/json"}
    answers = [
        await client.post(wrong, data="{"),
        await client.post(wrong, headers=world.session("owner"), data="{"),
        await client.post(wrong, headers=world.admin, data="{"),
        await client.post(ORGS, headers=world.admin, data="{"),
        await client.post(ORGS, headers=json, data="{"),
        await client.post(ORGS, headers=world.admin, json={"slug": "a", "b": 1}),
        await client.get(f"{ORGS}?limit=51", headers=world.admin),
    ]

    assert [await refused(answer) for answer in answers] == [
        (401, "missing or invalid credentials"),
        (403, "only the operator of this service may do this: send the admin token"),
        (400, "unknown query parameter: x"),
        (415, "content-type must be application/json"),
        (400, "request body must be a JSON object"),
        (400, "unknown field: b"),
        (400, "limit must be an integer from 1 to 50"),
    ]


async def test_a_raw_body_is_passed_on_up_to_its_limit(world: World, client: Client) -> None:
    path, headers = f"{ORGS}/new/size", world.admin | {"content-type": "application/json"}
    whole = await client.post(path, headers=headers, data="x" * 100)
    longer = await client.post(path, headers=headers, data="x" * 101)
    own = await client.post(f"{ORGS}/nothing/size", headers=headers, data="")

    assert await whole.get_json() == {"bytes": 100}
    assert await refused(longer) == (413, "request body is too large")
    assert own.status_code == 204


async def test_the_document_names_the_admin_token_alone(world: World) -> None:
    operation = openapi_document(served(world, example()), "1")["paths"][ORGS]["post"]

    assert operation["security"] == [{"adminToken": []}]
    assert operation["parameters"] == []
    examples = operation["responses"]["403"]["content"]["application/json"]["examples"]
    assert list(examples) == ["only the operator of this service may do this"]


async def test_a_handler_that_lacks_a_variable_of_its_path_does_not_start() -> None:
    resource = OperatorResource("wrong", "/wrong", AuditServices)

    with pytest.raises(TypeError, match="does not take the variables of its path"):

        @resource.delete("delete_wrong", "/<name>", returns=Slugs)
        async def delete(call: OperatorWriteCall[AuditServices]) -> Slugs:
            """Delete."""
            return Slugs(slugs=[])
