"""What a verified token does to a request's audit rows, and when it ceases to."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from service.access.callers import cli_caller
from service.app.application import create_app
from service.app.composition import EXTENSION, Services
from service.core.header_names import CI_TOKEN_HEADER
from service.core.settings import REPOSITORY
from service.orgs.api_keys import issue_api_key
from service.orgs.projects import create_project
from service.orgs.teams import create_team
from service.store.store import SyncUnitOfWork, UnitOfWork
from service.store.tables import Binding, Organisation
from service.trust.bindings.changes import add_binding, revoke_binding
from tests.conftest import (
    BY_OPERATOR,
    PROXY_SCOPES,
    World,
    binding_body,
    bindings_path,
    settings_over,
)
from tests.polling import until
from tests.service.gates import TRUSTED, Gate, open_gate

INSTALL = {"event": "install_allowed", "packageName": "left-pad", "version": "1.3.0"}
UNBOUND = ("unbound_oidc_subject", None)


async def key_of(world: World, *, of_project: bool = False, slug: str = "acme") -> dict[str, str]:
    async with world.services.store.write() as work:
        org = await work.session.merge(world.acme if slug == "acme" else world.other)
        project = await work.session.merge(world.project) if of_project else None
        _, secret = await issue_api_key(work, org, "ci", project, BY_OPERATOR, scopes=PROXY_SCOPES)
    return {"x-service-api-key": secret}


async def ingest(
    world: World, headers: dict[str, str], token: str | None, slug: str = "acme"
) -> Any:
    """Send one install row, with a token if there is one; the response."""
    more = {} if token is None else {CI_TOKEN_HEADER: token}
    return await world.client.post(
        f"/api/v1/admin/orgs/{slug}/audit/events", headers=headers | more, json=[INSTALL]
    )


async def last_install(world: World) -> dict[str, Any]:
    return (await world.audit(event="install_allowed"))[0]


async def test_an_install_is_attributed_to_its_job(gate: Gate):
    key = await key_of(gate.world)
    assert (await ingest(gate.world, key, None)).status_code == 200
    assert (await ingest(gate.world, key, gate.issuer.sign())).status_code == 200

    (binding,) = await gate.world.bindings()
    (row,) = await gate.world.audit(oidc_binding_id=binding["id"])
    assert [row] == await gate.world.audit(actor_source="oidc_*")
    assert row["actor"].startswith("key_")
    assert row["actor_source"] == "oidc_github"
    assert row["subject"] == "repo:acme/payments:ref:refs/heads/main"
    assert row["decision_reason"] == "{}"
    assert row["payload"] == {
        "ci": {
            "sub": "repo:acme/payments:ref:refs/heads/main",
            "repository_id": "123456789",
            "event_name": "push",
            "run_id": "9876543210",
            "jti": "6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11",
        }
    }
    token_id = row["payload"]["ci"]["jti"]
    assert (row["repository_id"], row["run_id"]) == ("123456789", "9876543210")
    assert row["token_id"] == token_id
    for name in ("repository_id", "run_id", "token_id"):
        assert await gate.world.audit(**{name: row[name], "event": "install_allowed"}) == [row]
    bare = next(r for r in await gate.world.audit(event="install_allowed") if r["id"] != row["id"])
    assert bare["repository_id"] is bare["run_id"] is bare["token_id"] is None
    assert (bare["actor_source"], bare["oidc_binding_id"]) == ("api_key", None)
    assert (bare["subject"], bare["payload"]) == (None, {})


async def test_an_admin_change_is_attributed_too(gate: Gate):
    token = {CI_TOKEN_HEADER: gate.issuer.sign()}
    created = await gate.world.create(gate.world.admin | token, sub_pattern="repo:acme/docs:x")
    binding_id = (await created.get_json())["id"]

    (row,) = await gate.world.audit(actor_source="oidc_github")
    assert row["event"] == "oidc_binding_created"
    assert (row["actor"], row["subject"]) == ("system:admin-token", binding_id)
    assert row["payload"]["by_user_id"] == "system:admin-token"
    assert row["payload"]["ci"]["run_id"] == "9876543210"
    assert "ci" not in row["decision_reason"]


async def test_a_member_with_a_job_is_attributed(gate: Gate):
    token = {CI_TOKEN_HEADER: gate.issuer.sign()}
    headers = gate.world.session("owner") | token
    assert (await gate.world.create(headers, sub_pattern="repo:x:y")).status_code == 201
    (row,) = await gate.world.audit(actor_source="oidc_github")
    assert row["actor"] == f"github:{gate.world.members['owner'].id}"


async def test_a_rejected_token_refuses_nothing(gate: Gate):
    key = await key_of(gate.world)
    answered = await ingest(gate.world, key, gate.issuer.sign(aud="another service"))
    assert answered.status_code == 200
    row = await last_install(gate.world)
    assert (row["actor_source"], row["oidc_binding_id"], row["payload"]) == ("api_key", None, {})


async def test_a_trusted_token_grants_nothing(gate: Gate):
    token = gate.issuer.sign()
    assert (await ingest(gate.world, {}, token)).status_code == 401
    path = bindings_path()
    for name in ("member", "stranger"):
        headers = gate.world.session(name) | {CI_TOKEN_HEADER: token}
        assert (await gate.world.client.get(path, headers=headers)).status_code == 403


async def test_a_revoke_is_seen_by_the_next_request(gate: Gate):
    token = gate.issuer.sign()
    assert await gate.judge(token) is TRUSTED
    (binding,) = await gate.world.bindings()
    await gate.world.revoke(binding["id"])
    assert await gate.judge(token) == UNBOUND
    await gate.world.bind()
    assert await gate.judge(token) is TRUSTED


async def test_a_revoke_is_seen_in_every_process(gate: Gate):
    twin = create_app(gate.world.services.settings, gate.world.clock, gate.issuer.transport())
    second: Services = twin.extensions[EXTENSION]
    here = Gate(
        World(
            twin,
            twin.test_client(),
            second,
            gate.world.clock,
            gate.world.acme,
            gate.world.other,
            gate.world.project,
            gate.world.team,
        ),
        gate.issuer,
        gate.logs,
    )
    token = gate.issuer.sign()
    try:
        assert await here.judge(token) is TRUSTED
        (binding,) = await gate.world.bindings()
        await gate.world.revoke(binding["id"])
        assert await here.judge(token) == UNBOUND
        await gate.world.bind()
        assert await here.judge(token) is TRUSTED
    finally:
        await second.close()


async def test_another_organisations_binding_is_not_ours(gate: Gate):
    token = gate.issuer.sign()
    assert await gate.judge(token, slug="other") == UNBOUND
    assert await gate.judge(token) is TRUSTED


async def test_a_binding_of_a_project_is_for_its_keys(gate: Gate):
    world = gate.world
    sub = "repo:acme/limited:ref:refs/heads/main"
    limited = await gate.world.bind(sub_pattern=sub, project_id=world.project.id)
    token = gate.issuer.sign(sub=sub)

    await ingest(world, await key_of(world, of_project=True), token)
    assert (await last_install(world))["oidc_binding_id"] == limited
    for headers in (await key_of(world), world.admin):
        await ingest(world, headers, token)
        assert (await last_install(world))["oidc_binding_id"] is None
    assert await gate.judge(token) == UNBOUND
    assert await gate.judge(token, **world.session("owner")) == UNBOUND


async def team_binding(gate: Gate, **changes: Any) -> str:
    """A binding of acme's team within the usual one; its id."""
    team = {"origin": "team_admin", "team_id": gate.world.team.id}
    return await gate.world.bind(**team | changes)


async def binding_of(gate: Gate, token: str) -> str | None:
    """The binding that an install sent with `token` is attributed by."""
    await ingest(gate.world, gate.world.admin, token)
    return (await last_install(gate.world))["oidc_binding_id"]


async def test_a_teams_binding_goes_before_its_envelope(gate: Gate):
    (envelope,) = await gate.world.bindings()
    assert await binding_of(gate, gate.issuer.sign()) == envelope["id"]
    team = await team_binding(gate)
    assert await binding_of(gate, gate.issuer.sign()) == team
    await gate.world.revoke(team)
    assert await binding_of(gate, gate.issuer.sign()) == envelope["id"]


async def test_a_teams_binding_ends_with_its_envelope(gate: Gate):
    (envelope,) = await gate.world.bindings()
    team = await team_binding(gate)
    await gate.world.revoke(envelope["id"])
    assert await gate.judge(gate.issuer.sign()) == UNBOUND
    await gate.world.bind()
    assert await binding_of(gate, gate.issuer.sign()) == team


async def test_a_teams_binding_never_allows_more_events(gate: Gate):
    event = ("unbound_oidc_subject", "event_name_not_allowed")
    team = await team_binding(gate, event_names=["push", "schedule"])
    assert await gate.judge(gate.issuer.sign(event_name="schedule")) == event
    assert await binding_of(gate, gate.issuer.sign()) == team
    await gate.world.revoke(team)
    await team_binding(gate, event_names=[])
    assert await gate.judge(gate.issuer.sign(event_name="schedule")) == event


async def test_a_team_that_does_not_list_an_event_leaves_it_to_the_envelope(gate: Gate):
    (envelope,) = await gate.world.bindings()
    await team_binding(gate, event_names=["schedule"])
    assert await binding_of(gate, gate.issuer.sign()) == envelope["id"]


async def test_a_team_in_a_projects_envelope_goes_before_it(gate: Gate):
    world = gate.world
    sub = "repo:acme/limited:ref:refs/heads/main"
    await gate.world.bind(sub_pattern=sub, project_id=world.project.id)
    team = await team_binding(gate, sub_pattern=sub)
    await ingest(world, await key_of(world, of_project=True), gate.issuer.sign(sub=sub))
    assert (await last_install(world))["oidc_binding_id"] == team
    assert await gate.judge(gate.issuer.sign(sub=sub)) == UNBOUND


async def test_a_narrower_envelope_narrows_the_teams_binding(gate: Gate):
    (envelope,) = await gate.world.bindings()
    team = await team_binding(gate)
    await gate.world.revoke(envelope["id"])
    await gate.world.bind(project_id=gate.world.project.id)
    assert await gate.judge(gate.issuer.sign()) == UNBOUND
    await ingest(gate.world, await key_of(gate.world, of_project=True), gate.issuer.sign())
    assert (await last_install(gate.world))["oidc_binding_id"] == team


async def test_a_teams_binding_never_reaches_another_project(gate: Gate):
    (envelope,) = await gate.world.bindings()
    await team_binding(gate, project_id=gate.world.project.id)
    await gate.world.revoke(envelope["id"])
    async with gate.world.services.store.write() as work:
        acme = await work.session.merge(gate.world.acme)
        second = await create_project(work, acme, "second", BY_OPERATOR)
    await gate.world.bind(project_id=second.id)
    await ingest(gate.world, await key_of(gate.world, of_project=True), gate.issuer.sign())
    assert (await last_install(gate.world))["oidc_binding_id"] is None


async def test_two_teams_are_ambiguous(gate: Gate):
    """Neither goes before the other: nothing is attributed until a member decides."""
    async with gate.world.services.store.write() as work:
        acme = await work.session.merge(gate.world.acme)
        second = await create_team(work, acme, "security", BY_OPERATOR)
    first = await team_binding(gate)
    await team_binding(gate, team_id=second.id)
    ambiguous = ("unbound_oidc_subject", "binding_ambiguous")
    assert await gate.judge(gate.issuer.sign()) == ambiguous
    await gate.world.revoke(first)
    assert await gate.judge(gate.issuer.sign()) is TRUSTED


async def send_slowly(gate: Gate, path: str, body: object) -> int:
    """POST `body` with a token whose binding is revoked when half of it has come; the status."""
    world = gate.world
    (binding,) = await world.bindings()
    headers = world.admin | {
        CI_TOKEN_HEADER: gate.issuer.sign(),
        "content-type": "application/json",
    }
    raw = json.dumps(body).encode()
    async with world.client.request(path, method="POST", headers=headers) as request:
        await request.send(raw[:10])
        await until(
            lambda: (
                b'attributed_total{provider="github"} 1.0' in world.services.metrics.exposition()
            )
        )
        await gate.world.revoke(binding["id"])
        await request.send(raw[10:])
        await request.send_complete()
    return (await request.as_response()).status_code


async def test_a_slow_body_does_not_outlast_a_revoke(gate: Gate):
    assert await send_slowly(gate, "/api/v1/admin/orgs/acme/audit/events", [INSTALL]) == 200
    row = await last_install(gate.world)
    assert (row["actor_source"], row["oidc_binding_id"]) == ("admin_token", None)


async def while_rows_wait(
    gate: Gate, change: Callable[[UnitOfWork, Organisation], Awaitable[Any]]
) -> Any:
    """Send a row with a token, and commit `change` when the row is about to be; the row."""
    here = gate.world.services
    async with here.store.write() as work:
        token = {CI_TOKEN_HEADER: gate.issuer.sign()}
        sending = asyncio.create_task(ingest(gate.world, gate.world.admin | token, None))
        await until(lambda: here.group_commit._worker is not None)
        await change(work, await work.session.get_one(Organisation, gate.world.acme.id))
    assert (await sending).status_code == 200
    (row,) = await gate.world.audit(event="install_allowed")
    return row


async def test_rows_that_wait_for_their_commit_do_not_outlast_a_revoke(gate: Gate):
    (binding,) = await gate.world.bindings()
    caller = cli_caller("org_platform")

    async def revoked(work: UnitOfWork, org: Organisation) -> None:
        await revoke_binding(work, org, binding["id"], None, caller)

    row = await while_rows_wait(gate, revoked)
    assert (row["actor_source"], row["oidc_binding_id"]) == ("admin_token", None)
    assert (row["subject"], row["payload"]) == (None, {})


async def test_rows_that_wait_for_their_commit_are_of_what_then_matches(gate: Gate):
    caller = cli_caller("org_platform")
    body = binding_body(origin="team_admin", team_id=gate.world.team.id)
    added: list[Binding] = []

    async def bound(work: UnitOfWork, org: Organisation) -> None:
        added.append(await add_binding(work, org, body, caller, gate.world.services.issuers))

    row = await while_rows_wait(gate, bound)
    assert row["oidc_binding_id"] == added[0].id
    assert row["payload"]["ci"]["run_id"] == "9876543210"


async def test_trust_that_keeps_changing_holds_up_no_row(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    here = gate.world.services
    body = binding_body(sub_pattern="repo:acme/docs:x")
    caller = cli_caller("org_platform")
    commit, changes = here.group_commit.commit, 0

    async def commit_after_a_change(
        change: Callable[[SyncUnitOfWork], bytes | None],
    ) -> bytes | None:
        nonlocal changes
        changes += 1
        async with here.store.write() as work:
            org = await work.session.get_one(Organisation, gate.world.acme.id)
            binding = await add_binding(work, org, body, caller, here.issuers)
            await revoke_binding(work, org, binding.id, None, caller)
        return await commit(change)

    monkeypatch.setattr(here.group_commit, "commit", commit_after_a_change)
    await ingest(gate.world, gate.world.admin, gate.issuer.sign())
    row = await last_install(gate.world)
    assert changes > 1
    assert (row["actor_source"], row["oidc_binding_id"]) == ("admin_token", None)


async def test_a_slow_change_does_not_outlast_a_revoke(gate: Gate):
    assert await send_slowly(gate, bindings_path(), binding_body(sub_pattern="repo:x:y")) == 201
    row = (await gate.world.audit(event="oidc_binding_created"))[0]
    assert row["payload"]["sub_pattern"] == "repo:x:y"
    assert (row["actor_source"], row["oidc_binding_id"]) == ("admin_token", None)


async def test_a_token_beside_a_foreign_credential_is_not_looked_at(gate: Gate):
    """A caller without access must not leave traces or cause work here."""
    foreign = await key_of(gate.world, slug="other")
    bad = gate.issuer.sign(aud="evil")
    before = gate.world.services.metrics.exposition()
    for headers in (foreign, {}, {"x-service-admin-token": "wrong"}, {"x-service-api-key": "cs_x"}):
        assert (await ingest(gate.world, headers, bad)).status_code in {401, 403}
    after = gate.world.services.metrics.exposition()
    wanted = b'auth_failures_total{code="bad_audience"} 0.0'
    assert wanted in before
    assert wanted in after


@pytest.mark.parametrize("name", ["member", "auditor"])
async def test_a_member_who_may_not_is_refused_on_record(gate: Gate, name: str):
    headers = gate.world.session(name) | {CI_TOKEN_HEADER: gate.issuer.sign(aud="evil")}
    await gate.world.client.get(bindings_path(), headers=headers)
    counted = gate.world.services.metrics.exposition()
    assert b'auth_failures_total{code="bad_audience"} 1.0' in counted


async def test_the_token_id_is_the_claim_that_the_issuers_entry_names(tmp_path: Path):
    """A provider may identify its tokens by another claim than `jti`."""
    shipped = (REPOSITORY / "data" / "issuers.toml").read_text()
    file = tmp_path / "issuers.toml"
    file.write_text(shipped.replace('token_id_claim = "jti"', 'token_id_claim = "token"'))
    settings = replace(settings_over(tmp_path), issuers_file=file)
    async with open_gate(settings) as gate:
        key = await key_of(gate.world)
        for token in (gate.issuer.sign(), gate.issuer.sign(token="t-1")):
            for _ in range(2):  # judged again, then known by its hash
                assert (await ingest(gate.world, key, token)).status_code == 200

        rows = await gate.world.audit(event="install_allowed")
        assert [row["token_id"] for row in rows] == ["t-1", "t-1", None, None]
        assert [row["payload"]["ci"].get("jti") for row in rows] == ["t-1", "t-1", None, None]
        assert await gate.world.audit(token_id="t-1") == rows[:2]


async def test_long_claims_are_cut_in_rows(gate: Gate):
    token = gate.issuer.sign(run_id=17, jti="j" * 5_000)
    await ingest(gate.world, await key_of(gate.world), token)
    said = (await last_install(gate.world))["payload"]["ci"]
    assert said["run_id"] == "17"
    assert said["jti"] == "j" * 255 + "…"


async def test_uses_are_counted(gate: Gate):
    for _ in range(3):
        await gate.judge(gate.issuer.sign())
    await gate.judge(gate.issuer.sign(aud="evil"))
    await gate.world.services.binding_use.flush()
    (binding,) = await gate.world.bindings()
    assert (binding["useCount"], binding["lastUsedAt"]) == (3, "2026-03-04T12:00:00.123Z")
