"""Revoking all bindings of a repository at once, as in an incident."""

from typing import Any

import pytest
from sqlalchemy import event

from tests.budgets import sample
from tests.conftest import ISSUER, World, bindings_path, grant, refused

PATH = f"{bindings_path()}/revoke"
REPOSITORY = {"issuer": ISSUER, "repository_id": "42"}


async def created(world: World, sub: str, repository_id: str = "42", **changes: Any) -> str:
    answer = await world.create(sub_pattern=sub, repository_id=repository_id, **changes)
    return (await answer.get_json())["id"]


async def revoke_all(world: World, headers: dict[str, str] | None = None, **body: Any) -> Any:
    """POST the revocation of repository 42 with `body`; the response."""
    return await world.client.post(
        PATH, headers=headers or world.admin, json={**REPOSITORY, **body}
    )


async def active(world: World) -> set[str]:
    return {binding["id"] for binding in await world.bindings(state="active")}


async def test_all_active_bindings_of_the_repository_are_revoked_with_a_row_each(world: World):
    ours = {await created(world, sub) for sub in ("repo:acme/a", "repo:acme/b", "repo:acme/c")}
    other = await created(world, "repo:acme/a", repository_id="43")

    answer = await revoke_all(world, repository_id="0042", reason="key leaked")

    assert answer.status_code == 200
    body = await answer.get_json()
    assert (body["count"], set(body["revoked"])) == (3, ours)
    assert await active(world) == {other}
    rows = await world.audit(event="oidc_binding_revoked")
    assert {row["subject"] for row in rows} == ours
    assert {row["payload"]["revoked_reason"] for row in rows} == {"key leaked"}
    assert {row["request_id"] for row in rows} == {answer.headers["x-request-id"]}


async def test_another_organisations_bindings_of_the_repository_stay(world: World):
    """The path names the organisation; the number is not enough to reach across."""
    await created(world, "repo:acme/a")
    theirs = await world.client.post(
        bindings_path("other"),
        headers=world.admin,
        json={
            "issuer": ISSUER,
            "sub_pattern": "repo:other/a",
            "repository_id": "42",
            "origin": "org_admin",
        },
    )
    assert theirs.status_code == 201

    assert (await revoke_all(world)).status_code == 200

    listed = await world.client.get(
        bindings_path("other"), headers=world.admin, query_string={"active": "true"}
    )
    assert (await listed.get_json())["count"] == 1
    assert await refused(await revoke_all(world)) == (
        404,
        f"no active binding of repository 42 of {ISSUER} for this org",
    )


@sample(6)
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"issuer": None}, "issuer is required (string)"),
        ({"issuer": "\ud800"}, "issuer is not on the allowlist: \ud800"),
        ({"repository_id": None}, f"repository_id is required for issuer {ISSUER}"),
        ({"repository_id": "x"}, "repository_id must be a positive integer string"),
        ({"repository_id": 1.5}, "repository_id must be a positive integer or its string form"),
        ({"reason": []}, "reason must be at most 1024 chars with no control characters"),
        ({"binding_ids": "all"}, "binding_ids must be an array of strings"),
        ({"sub": "repo:acme/a"}, "unknown field: sub"),
    ],
)
async def test_what_is_to_be_revoked_is_said_in_full(world: World, body: dict, text: str):
    """A request that leaves something open revokes nothing."""
    await created(world, "repo:acme/a")

    assert await refused(await revoke_all(world, **body)) == (400, text)
    assert len(await active(world)) == 1


async def test_a_list_that_is_out_of_date_revokes_nothing(world: World):
    """The caller confirmed another set of bindings than there is now."""
    shown = await created(world, "repo:acme/a")
    added = await created(world, "repo:acme/b")

    answer = await revoke_all(world, binding_ids=[shown])

    text = "the bindings of this repository were changed concurrently: list them again"
    assert await refused(answer) == (409, text)
    assert await active(world) == {shown, added}
    assert await world.audit(event="oidc_binding_revoked") == []
    assert (await revoke_all(world, binding_ids=[shown, added])).status_code == 200


async def test_a_list_of_what_cannot_be_ids_revokes_nothing(world: World):
    """JSON can escape lone surrogates, which have no bytes to compare."""
    shown = await created(world, "repo:acme/a")

    answer = await revoke_all(world, binding_ids=["\ud800"])

    assert (await refused(answer))[0] == 409
    assert await active(world) == {shown}


async def test_all_or_none_for_a_caller_who_may_revoke_only_some(world: World):
    envelope = await created(world, "repo:acme/a")
    await grant(world, "member", "oidc:w")
    team = {"origin": "team_admin", "team_id": world.team.id}
    own = await created(world, "repo:acme/a", **team)

    answer = await revoke_all(world, world.session("team_admin"))

    assert (await refused(answer))[0] == 403
    assert await active(world) == {envelope, own}
    assert (await revoke_all(world, world.session("owner"))).status_code == 200
    assert await active(world) == set()


async def test_many_bindings_are_revoked_by_one_statement(world: World):
    """One for each, compared with all of them, kept all other writes out for ten seconds."""
    said: list[str] = []
    writer = world.services.store._engines.writer.sync_engine
    ours = {await created(world, f"repo:acme/{each}") for each in range(12)}
    event.listen(writer, "before_cursor_execute", lambda *call: said.append(call[2]))

    answer = await revoke_all(world)

    assert set((await answer.get_json())["revoked"]) == ours
    assert sum("UPDATE bindings" in statement for statement in said) == 1
