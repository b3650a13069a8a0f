"""Every change of a binding is one audit row, and nothing else is."""

import json
from typing import Any

import pytest

from service.access.callers import cli_caller
from service.trust.bindings.changes import add_binding, revoke_binding
from tests.conftest import ISSUER, World, binding_body, bindings_path, grant

CREATED_KEYS = {
    *("binding_id", "issuer", "sub_pattern", "repository_id", "event_names", "origin"),
    *("project_id", "team_id", "by_user_id"),
}


async def binding_rows(world: World) -> list[dict[str, Any]]:
    """Acme's audit rows about bindings, newest first."""
    return await world.audit(event=["oidc_binding_created", "oidc_binding_revoked"])


async def change(world: World, headers: dict[str, str], reason: str | None = None):
    """Create a binding and revoke it; its id and both responses."""
    created = await world.create(headers=headers)
    assert created.status_code == 201
    binding_id = (await created.get_json())["id"]
    world.clock.advance(seconds=1)
    revoked = await world.client.delete(
        bindings_path("acme", binding_id),
        headers=headers,
        query_string={"reason": reason} if reason else None,
    )
    assert revoked.status_code == 200
    return binding_id, created, revoked


async def test_a_create_writes_one_row_that_says_all_of_it(world: World):
    """What was trusted can be read from the log alone."""
    created = await world.create(project_id=world.project.id)
    binding_id = (await created.get_json())["id"]

    (row,) = await binding_rows(world)
    assert row["payload"] == {
        "binding_id": binding_id,
        "issuer": ISSUER,
        "sub_pattern": "repo:acme/payments:ref:refs/heads/main",
        "repository_id": "123456789",
        "event_names": ["push"],
        "origin": "org_admin",
        "project_id": world.project.id,
        "team_id": None,
        "by_user_id": "system:admin-token",
    }
    assert {
        key: value
        for key, value in row.items()
        if key not in {"id", "payload", "decision_reason", "source_ip"}
    } == {
        "created_at": "2026-03-04T12:00:00.123456Z",
        "received_at": "2026-03-04T12:00:00.123456Z",
        "event": "oidc_binding_created",
        "packageName": None,
        "version": None,
        "decision": None,
        "verdict_source": "admin_api",
        "tenant_id": world.acme.id,
        "actor_tenant_id": None,
        "actor": "system:admin-token",
        "actor_source": "admin_token",
        "subject": binding_id,
        "oidc_binding_id": None,
        "request_id": created.headers["x-request-id"],
        "ecosystem": None,
        "repository_id": None,
        "run_id": None,
        "token_id": None,
        "file_name": None,
        "file_sha256": None,
        "client": None,
    }


@pytest.mark.parametrize("reason", [None, "key leaked"])
async def test_a_revoke_writes_one_row_that_says_why(world: World, reason: str | None):
    """Null when no reason was given: the key is there all the same."""
    binding_id, _, revoked = await change(world, world.admin, reason)

    row = (await binding_rows(world))[0]
    assert row["event"] == "oidc_binding_revoked"
    assert row["payload"] == {
        "binding_id": binding_id,
        "revoked_reason": reason,
        "by_user_id": "system:admin-token",
    }
    assert row["subject"] == binding_id
    assert row["created_at"] == "2026-03-04T12:00:01.123456Z"
    assert row["request_id"] == revoked.headers["x-request-id"]


@pytest.mark.parametrize(
    ("caller", "actor_source"), [("admin token", "admin_token"), ("owner", "session")]
)
async def test_the_row_and_the_binding_name_the_same_actor(
    world: World, caller: str, actor_source: str
):
    """`by_user_id` is `addedBy` and `revokedBy`: the log and the list can be joined."""
    headers = world.admin if caller == "admin token" else world.session(caller)

    binding_id, created, revoked = await change(world, headers)

    (binding,) = await world.bindings()
    rows = await binding_rows(world)
    assert [row["event"] for row in rows] == ["oidc_binding_revoked", "oidc_binding_created"]
    names = [binding["revokedBy"], binding["addedBy"]]
    assert [row["payload"]["by_user_id"] for row in rows] == names
    assert [row["actor"] for row in rows] == names
    assert [row["actor_source"] for row in rows] == [actor_source] * 2
    assert [row["actor_tenant_id"] for row in rows] == [None, None]
    assert [row["subject"] for row in rows] == [binding_id] * 2
    assert [row["request_id"] for row in rows] == [
        revoked.headers["x-request-id"],
        created.headers["x-request-id"],
    ]


async def test_a_team_admins_row_names_team_and_inherited_project(world: World):
    await grant(world, "member", "oidc:w")
    assert (await world.create(project_id=world.project.id)).status_code == 201

    created = await world.create(
        headers=world.session("team_admin"), origin="team_admin", team_id=world.team.id
    )

    assert created.status_code == 201
    payload = (await binding_rows(world))[0]["payload"]
    assert payload["origin"] == "team_admin"
    assert payload["team_id"] == world.team.id
    assert payload["project_id"] == world.project.id
    assert payload["by_user_id"] == f"github:{world.members['team_admin'].id}"


async def test_the_operator_at_the_command_line_is_the_platform_acting_across_tenants(
    world: World,
):
    """`actor_tenant_id` sets such rows apart from the organisation's own."""
    operator = cli_caller("org_platform")
    async with world.services.store.write() as work:
        binding = await add_binding(
            work,
            world.acme,
            binding_body(origin="platform_admin"),
            operator,
            world.services.issuers,
        )
    async with world.services.store.write() as work:
        await revoke_binding(work, world.acme, binding.id, "incident 7", operator)

    (listed,) = await world.bindings()
    assert (listed["origin"], listed["addedBy"]) == ("platform_admin", "system:cli")
    rows = await binding_rows(world)
    assert [row["payload"]["by_user_id"] for row in rows] == ["system:cli"] * 2
    for row in rows:
        assert row["tenant_id"] == world.acme.id
        assert row["actor_tenant_id"] == "org_platform"
        assert (row["actor"], row["actor_source"]) == ("system:cli", "system")
        assert row["verdict_source"] == "cli"
        assert (row["request_id"], row["source_ip"]) == (None, None)


async def test_a_short_envelope_is_its_own_decision_reason(world: World):
    await change(world, world.admin, "key leaked")

    revoked = (await binding_rows(world))[0]
    assert json.loads(revoked["decision_reason"]) == revoked["payload"]


@pytest.mark.parametrize("character", ["s", "🦊", '"', "\\"])
async def test_an_envelope_that_does_not_fit_is_shortened_and_says_so(world: World, character: str):
    """256 code points of valid JSON with every key; the payload stays whole."""
    sub = character * 1024
    names = [f"{character * 60}{number:02}" for number in range(64)]
    assert (await world.create(sub_pattern=sub, event_names=names)).status_code == 201

    (row,) = await binding_rows(world)
    reason = json.loads(row["decision_reason"])
    assert len(row["decision_reason"]) <= 256
    assert reason["truncated"] is True
    assert set(reason) == {*CREATED_KEYS, "truncated"}
    assert row["payload"]["sub_pattern"] == sub
    assert row["payload"]["event_names"] == names
    assert "truncated" not in row["payload"]


async def test_a_refused_request_writes_no_row(world: World):
    """The log says what happened, not what was tried; refusals are in the service's log."""
    created = await (await world.create()).get_json()
    before = await world.audit()
    path = bindings_path("acme", created["id"])
    client = world.client

    answers = [
        await world.create(),
        await world.create(sub_pattern=""),
        await world.create(origin="team_admin", team_id=world.team.id, repository_id="5"),
        await world.create(headers={"cookie": "admin_session=wrong"}),
        await world.create(headers=world.session("auditor"), repository_id="5"),
        await client.post(bindings_path("missing"), headers=world.admin, json=binding_body()),
        await client.post(bindings_path(), headers=world.admin, data=b"[]"),
        await client.delete(path),
        await client.delete(path, headers=world.session("auditor")),
        await client.delete(f"{path}?reason=%00", headers=world.admin),
        await client.delete(bindings_path("other", created["id"]), headers=world.admin),
        await client.delete(bindings_path("acme", "obind_0"), headers=world.admin),
        await client.put(path, headers=world.admin),
    ]

    assert [answer.status_code for answer in answers] == [
        409, 400, 400, 401, 403, 404, 415, 401, 403, 400, 404, 404, 405,
    ]  # fmt: skip
    assert await world.audit() == before
    assert await world.audit("other", event="oidc_binding_revoked") == []


async def test_reading_writes_no_row(world: World):
    await world.create()
    before = await world.audit()

    await world.bindings()
    await world.bindings(state="active")

    assert await world.audit() == before
