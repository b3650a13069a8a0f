"""Replacing a binding: one step, with no moment without trust and none with two bindings."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from service.access.callers import cli_caller
from service.trust.bindings.changes import add_binding
from tests.conftest import ISSUER, World, binding_body, bindings_path, grant, refused
from tests.service.gates import TRUSTED, Gate

GONE = (404, "Binding not found for this org (or already revoked)")
TAKEN = (409, "An active binding already exists for this (issuer, sub, repository_id)")
BRANCH = "repo:acme/payments:ref:refs/heads/next"
ROUNDS = 12
CALLERS = 8


def replace_path(binding_id: str, slug: str = "acme") -> str:
    return f"{bindings_path(slug, binding_id)}/replace"


async def replace(
    world: World, binding_id: str, headers: dict[str, str] | None = None, **body: Any
) -> Any:
    """POST a replacement; the response."""
    return await world.client.post(
        replace_path(binding_id), headers=headers or world.admin, json=body
    )


async def one(world: World, binding_id: str) -> dict[str, Any]:
    """One of acme's bindings."""
    answer = await world.client.get(bindings_path("acme", binding_id), headers=world.admin)
    return await answer.get_json()


async def binding_rows(world: World) -> list[dict[str, Any]]:
    return await world.audit(event=["oidc_binding_created", "oidc_binding_revoked"])


async def test_a_successor_takes_over_what_is_not_given(world: World):
    """Only the subject changes: events and project stay as they were."""
    before = await world.bind(event_names=["push", "release"], project_id=world.project.id)
    world.clock.advance(seconds=5)

    answer = await replace(world, before, sub_pattern=BRANCH, reason="renamed")

    assert answer.status_code == 201
    body = await answer.get_json()
    after = body["id"]
    assert body.pop("replaces") == before
    assert answer.headers["location"] == bindings_path("acme", after)
    successor, predecessor = await one(world, after), await one(world, before)
    assert body == {name: successor[name] for name in body}
    kept = ("issuer", "repositoryId", "eventNames", "projectId", "teamId", "origin")
    assert [successor[name] for name in kept] == [predecessor[name] for name in kept]
    assert (successor["subPattern"], successor["revokedAt"]) == (BRANCH, None)
    assert predecessor["revokedAt"] == successor["addedAt"]
    assert predecessor["revokedReason"] == f"replaced by {after}: renamed"


async def test_each_of_the_two_changes_has_its_audit_row(world: World):
    before = await world.bind()

    answer = await replace(world, before, event_names=["release"])

    after = (await answer.get_json())["id"]
    creation, revocation, _ = await binding_rows(world)
    assert (revocation["event"], creation["event"]) == (
        "oidc_binding_revoked",
        "oidc_binding_created",
    )
    assert revocation["payload"] == {
        "binding_id": before,
        "revoked_reason": f"replaced by {after}",
        "by_user_id": "system:admin-token",
    }
    assert (creation["subject"], creation["payload"]["event_names"]) == (after, ["release"])
    assert {row["request_id"] for row in (creation, revocation)} == {answer.headers["x-request-id"]}


async def test_null_and_empty_mean_what_they_mean_in_a_create(world: World):
    before = await world.bind(project_id=world.project.id)

    after = (await (await replace(world, before, project_id=None, event_names=[])).get_json())["id"]

    successor = await one(world, after)
    assert (successor["projectId"], successor["eventNames"]) == (None, [])


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({"event_names": "push"}, (400, "event_names must be an array of strings")),
        ({"project_id": "prj_0"}, (400, "project_id not found for this org")),
        ({"issuer": None}, (400, "issuer is required (string)")),
        ({"events": []}, (400, "unknown field: events")),
        (
            {"reason": 1},
            (400, "reason must be at most 1024 chars with no control characters"),
        ),
        (
            {"reason": "a\nb"},
            (400, "reason must be at most 1024 chars with no control characters"),
        ),
        ({"origin": "team_admin"}, (400, "team_id is required for origin=team_admin")),
        (
            {"origin": "platform_admin"},
            (400, "origin must be 'org_admin' or 'team_admin' on this surface"),
        ),
    ],
)
async def test_a_refused_successor_leaves_the_binding_active(
    world: World, body: dict[str, Any], refusal: tuple[int, str]
):
    """The revocation comes first in the transaction, and goes with it."""
    before = await world.bind()

    assert await refused(await replace(world, before, **body)) == refusal

    assert [binding["id"] for binding in await world.bindings(state="active")] == [before]
    assert len(await binding_rows(world)) == 1


async def test_a_taken_slot_leaves_both_bindings_as_they_were(world: World):
    """The step between revoking and creating fails, and neither has happened."""
    before, other = await world.bind(), await world.bind(sub_pattern=BRANCH)

    assert await refused(await replace(world, before, sub_pattern=BRANCH)) == TAKEN

    active = await world.bindings(state="active")
    assert {binding["id"] for binding in active} == {before, other}
    assert len(await binding_rows(world)) == 2


async def test_what_is_not_an_active_binding_of_the_organisation_is_not_replaced(world: World):
    before = await world.bind()
    assert (await replace(world, before)).status_code == 201

    assert await refused(await replace(world, before)) == GONE
    assert await refused(await replace(world, "obind_0000000000000000")) == GONE
    (active,) = await world.bindings(state="active")
    theirs = await world.client.post(
        replace_path(active["id"], "other"), headers=world.admin, json={}
    )
    assert await refused(theirs) == GONE


async def test_rights_are_those_of_a_revoke_and_a_create(world: World):
    before = await world.bind()
    await grant(world, "member", "oidc:w")

    assert (await refused(await replace(world, before, world.session("auditor"))))[0] == 403
    assert (await refused(await replace(world, before, world.session("team_admin")))) == (
        403,
        "organisation-level bindings are changed by owners and admins only",
    )
    team = {"origin": "team_admin", "team_id": world.team.id}
    own = await world.bind(headers=world.session("team_admin"), **team)
    answer = await replace(world, own, world.session("team_admin"), event_names=["push"])
    assert answer.status_code == 201
    successor = await one(world, (await answer.get_json())["id"])
    assert (successor["teamId"], successor["effective"]) == (world.team.id, True)
    owners = await replace(world, successor["id"], world.session("owner"), event_names=[])
    assert await refused(owners) == (403, "caller is not an admin of this team")


async def test_an_envelope_that_is_replaced_keeps_its_teams_bindings_effective(world: World):
    envelope = await world.bind()
    team = await world.bind(origin="team_admin", team_id=world.team.id)

    assert (await replace(world, envelope, event_names=["push", "release"])).status_code == 201

    assert (await one(world, team))["effective"] is True


async def test_a_platform_binding_is_replaced_over_http_by_the_organisations_own(world: World):
    """Its origin cannot be taken over on this surface: who vouches has to be said."""
    async with world.services.store.write() as work:
        platform = await add_binding(
            work,
            world.acme,
            binding_body(origin="platform_admin"),
            cli_caller("org_platform"),
            world.services.issuers,
        )

    refusal = await refused(await replace(world, platform.id))
    assert refusal == (400, "origin must be 'org_admin' or 'team_admin' on this surface")
    assert (await replace(world, platform.id, origin="org_admin")).status_code == 201


async def test_of_many_replaces_of_one_binding_one_succeeds(world: World):
    before = await world.bind()
    path = bindings_path("acme", before)

    answers = await asyncio.gather(
        *(replace(world, before, event_names=[f"event-{n}"]) for n in range(CALLERS)),
        *(world.client.delete(path, headers=world.admin) for _ in range(2)),
        *(world.create() for _ in range(CALLERS)),
    )

    statuses = Counter(answer.status_code for answer in answers[: CALLERS + 2])
    assert statuses in ({201: 1, 404: CALLERS + 1}, {200: 1, 404: CALLERS + 1})
    active = await world.bindings(state="active")
    assert len(active) == (1 if statuses[201] else sum(a.status_code == 201 for a in answers))
    rows, bindings = await binding_rows(world), await world.bindings()
    events = Counter(row["event"] for row in rows)
    assert events["oidc_binding_created"] == len(bindings)
    assert events["oidc_binding_revoked"] == len(bindings) - len(active)


async def test_a_job_is_trusted_at_every_moment_of_its_bindings_replacements(gate: Gate):
    """Verifiers and readers that run meanwhile find exactly one active binding, always."""
    world = gate.world
    (active,) = await world.bindings()
    done = asyncio.Event()
    counts: list[int] = []
    verdicts: list[object] = []

    async def keep_reading() -> None:
        while not done.is_set():
            counts.append(len(await world.bindings(state="active", issuer=ISSUER)))

    async def keep_verifying() -> None:
        while not done.is_set():
            verdicts.append(await gate.judge(gate.issuer.sign()))

    async def keep_replacing() -> None:
        binding_id = active["id"]
        for number in range(ROUNDS):
            answer = await replace(world, binding_id, event_names=["push", f"event-{number}"])
            binding_id = (await answer.get_json())["id"]
        done.set()

    await asyncio.gather(keep_reading(), keep_verifying(), keep_verifying(), keep_replacing())

    assert set(counts) == {1}
    assert len(counts) >= ROUNDS / 2
    assert set(verdicts) == {TRUSTED}
    assert len(verdicts) >= ROUNDS / 2
    # The history agrees: at each instant exactly one of them was active.
    for binding in await world.bindings():
        then = await world.bindings(asOf=binding["addedAt"])
        assert len(then) == 1
