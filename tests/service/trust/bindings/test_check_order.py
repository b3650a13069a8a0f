"""Which of two faults is reported: always the earlier one in the order of checks."""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import ISSUER, World, binding_body, bindings_path, grant, refused

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Fault:
    """What to change in a valid create, and the refusal that this alone brings about."""

    refusal: tuple[int, str]
    body: dict[str, Any] = field(default_factory=dict)
    caller: str | None = None
    slug: str | None = None
    query: dict[str, str] | None = None
    raw: bytes | None = None
    content_type: str | None = None


TEAM = "acme's team"
TAKEN_SUB = "repo:acme/taken:ref:refs/heads/main"

FAULTS = {
    "no credentials": Fault((401, "missing or invalid credentials"), caller="anonymous"),
    "unknown organisation": Fault((404, "Org not found"), slug="missing"),
    "no capability": Fault((403, "missing capability: oidc:w"), caller="auditor"),
    "query parameter": Fault((400, "unknown query parameter: dry_run"), query={"dry_run": "1"}),
    "content type": Fault(
        (415, "content-type must be application/json"), content_type="text/plain"
    ),
    "no object": Fault((400, "request body must be a JSON object"), raw=b"[]"),
    "issuer": Fault((400, "issuer is required (string)"), {"issuer": 7}),
    "sub_pattern": Fault((400, "sub_pattern is required (string)"), {"sub_pattern": 7}),
    "repository_id": Fault(
        (400, f"repository_id is required for issuer {ISSUER}"), {"repository_id": None}
    ),
    "event_names": Fault((400, "event_names must be an array of strings"), {"event_names": "*"}),
    "origin": Fault((400, "origin is required (string)"), {"origin": None}),
    "project_id": Fault((400, "project_id must be a string"), {"project_id": 7}),
    "team_id": Fault((400, "team_id must be a string"), {"team_id": 7}),
    "unknown key": Fault((400, "unknown field: event_name"), {"event_name": "push"}),
    "team rights": Fault(
        (403, "caller is not an admin of this team"),
        {"origin": "team_admin", "team_id": TEAM},
        caller="owner",
    ),
    "envelope": Fault(
        (
            400,
            "team_admin binding falls outside any active org_admin envelope"
            " — ask an org admin to expand the trust envelope first",
        ),
        {"origin": "team_admin", "team_id": TEAM},
        caller="team_admin",
    ),
}
"""Every check of a create but the last, in the order in which they are made."""

TAKEN = Fault(
    (409, "An active binding already exists for this (issuer, sub, repository_id)"),
    {"sub_pattern": TAKEN_SUB},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def order_world(shared_world: World) -> World:
    """With one active binding to collide with, and oidc:w for members."""
    await grant(shared_world, "member", "oidc:w")
    assert (await shared_world.create(sub_pattern=TAKEN_SUB)).status_code == 201
    return shared_world


async def send(world: World, *faults: Fault) -> tuple[int, str]:
    """What a create with all of `faults` answers; where two set the same, the first wins."""
    body = binding_body()
    for fault in reversed(faults):
        body |= fault.body
    if body.get("team_id") == TEAM:
        body["team_id"] = world.team.id
    caller = next((fault.caller for fault in faults if fault.caller), "admin token")
    headers = {
        "admin token": world.admin,
        "anonymous": {},
        **{name: world.session(name) for name in world.cookies},
    }[caller]
    raw = next((fault.raw for fault in faults if fault.raw), None)
    content_type = next((fault.content_type for fault in faults if fault.content_type), None)
    request: dict[str, Any] = {"json": body}
    if raw or content_type:
        request = {
            "data": raw or b"{}",
            "headers": {"content-type": content_type or "application/json"},
        }
    response = await world.client.post(
        bindings_path(next((fault.slug for fault in faults if fault.slug), "acme")),
        query_string=next((fault.query for fault in faults if fault.query), None),
        **request | {"headers": headers | request.get("headers", {})},
    )
    return await refused(response)


@pytest.mark.parametrize("name", [*FAULTS, "taken"])
async def test_each_fault_alone_is_reported(order_world: World, name: str):
    """The pairs below say something only if each half is a fault by itself."""
    fault = FAULTS.get(name, TAKEN)

    assert await send(order_world, fault) == fault.refusal


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        *combinations(FAULTS, 2),
        *((name, "taken") for name in FAULTS if name != "envelope"),
    ],
)
async def test_of_two_faults_the_earlier_check_answers(
    order_world: World, earlier: str, later: str
):
    """A caller without rights must learn nothing of what exists; answers must not vary."""
    first, second = FAULTS[earlier], FAULTS.get(later, TAKEN)

    assert await send(order_world, first, second) == first.refusal


async def test_a_lost_envelope_is_reported_before_a_taken_slot(order_world: World):
    """A team's row outlives its envelope; a second one is then outside, not in conflict."""
    world = order_world
    team = {"origin": "team_admin", "team_id": world.team.id}
    sub = {"sub_pattern": "repo:acme/lost:ref:refs/heads/main"}
    envelope = await (await world.create(**sub)).get_json()
    assert (await world.create(**sub, **team)).status_code == 201
    assert await refused(await world.create(**sub, **team)) == TAKEN.refusal

    await world.revoke(envelope["id"])

    assert await refused(await world.create(**sub, **team)) == FAULTS["envelope"].refusal


async def test_a_revokes_reason_is_checked_before_its_binding(order_world: World):
    """The same reason is refused whichever binding it is sent for."""
    answer = await order_world.client.delete(
        bindings_path("acme", "obind_0000000000000000"),
        headers=order_world.admin,
        query_string={"reason": "r" * 1025},
    )

    assert await refused(answer) == (
        400,
        "reason must be at most 1024 chars with no control characters",
    )
