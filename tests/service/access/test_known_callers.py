"""Callers are known from memory while nothing changes: each change is seen by the next request."""

from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import update

from service.access.sessions import revoke_sessions
from service.orgs.api_keys import issue_api_key, revoke_api_key
from service.orgs.members import remove_member, set_role
from service.orgs.organisations import set_tier
from service.orgs.roles import set_role_override
from service.store.organisations import get_member, get_org
from service.store.store import UnitOfWork
from service.store.tables import ApiKey, Organisation
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, World, running_world
from tests.service.audit.conftest import start_worker

AUDIT = "/api/v1/admin/orgs/acme/audit"


async def ended(work: UnitOfWork, world: World) -> None:
    await revoke_sessions(work.session, world.members["auditor"].id, work.now)


async def demoted(work: UnitOfWork, world: World) -> None:
    acme = await get_org(work.session, "acme")
    auditor = await get_member(work.session, acme, world.members["auditor"].id)
    await set_role(work, acme, auditor, "member", BY_OPERATOR)


async def removed(work: UnitOfWork, world: World) -> None:
    acme = await get_org(work.session, "acme")
    auditor = await get_member(work.session, acme, world.members["auditor"].id)
    await remove_member(work, acme, auditor, BY_OPERATOR)


async def renamed(work: UnitOfWork, world: World) -> None:
    await work.session.execute(
        update(Organisation).where(Organisation.slug == "acme").values(slug="acme-2")
    )


@pytest.mark.parametrize(
    ("change", "status"), [(ended, 401), (demoted, 403), (removed, 401), (renamed, 404)]
)
async def test_what_another_worker_changes_the_next_request_meets(
    world: World, change: Callable[[UnitOfWork, World], Awaitable[None]], status: int
) -> None:
    """In every process, however often the caller was let in before."""
    auditor = world.session("auditor")
    for _ in range(2):
        assert (await world.client.get(AUDIT, headers=auditor)).status_code == 200
    worker = start_worker(world.services.settings, world.clock)
    try:
        async with worker.store.write() as work:
            await change(work, world)
    finally:
        await worker.close()

    assert (await world.client.get(AUDIT, headers=auditor)).status_code == status


async def test_a_key_that_another_worker_revokes_is_none_for_the_next_request(world: World) -> None:
    async with world.services.store.write() as work:
        key, secret = await issue_api_key(
            work, world.acme, "proxy", None, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    sent = {"headers": {"x-service-api-key": secret}, "json": [{"event": "install_allowed"}]}
    for _ in range(2):
        assert (await world.client.post(f"{AUDIT}/events", **sent)).status_code == 200
    worker = start_worker(world.services.settings, world.clock)
    try:
        async with worker.store.write() as work:
            stored = await work.session.get_one(ApiKey, key.id)
            await revoke_api_key(work, world.acme, stored, BY_OPERATOR)
    finally:
        await worker.close()

    assert (await world.client.post(f"{AUDIT}/events", **sent)).status_code == 401


async def test_what_is_granted_and_taken_counts_at_once(world: World) -> None:
    member = world.session("member")
    for granted, status in [([], 403), (["audit:r"], 200), ([], 403)]:
        async with world.services.store.write() as work:
            acme = await get_org(work.session, "acme")
            await set_role_override(work, acme, "member", granted, BY_OPERATOR)
        for _ in range(2):
            assert (await world.client.get(AUDIT, headers=member)).status_code == status


async def test_a_shorter_retention_hides_rows_at_once(world: World) -> None:
    for tier in ("org", "free"):
        async with world.services.store.write() as work:
            await set_tier(work, await get_org(work.session, "acme"), tier, BY_OPERATOR)
        floors = [
            (await (await world.client.get(AUDIT, headers=world.admin)).get_json())[
                "retention_floor"
            ]
            for _ in range(2)
        ]
        assert floors[0] == floors[1]
        assert floors[0] is not None
        assert floors[0].startswith({"org": "2025-03-04", "free": "2026-02-25"}[tier])


async def test_a_session_that_no_one_uses_ends_although_nothing_is_committed(
    settings, clock
) -> None:
    """By the clock alone: the database says the same as before."""
    async with running_world(settings, clock, has_sealer=False) as world:
        auditor = world.session("auditor")
        assert (await world.client.get(AUDIT, headers=auditor)).status_code == 200
        clock.advance(seconds=settings.session_idle_s)

        assert (await world.client.get(AUDIT, headers=auditor)).status_code == 401


async def test_no_one_is_taken_for_who_came_before(world: World) -> None:
    for _ in range(2):
        for name, status in [("auditor", 200), ("member", 403), ("stranger", 403)]:
            response = await world.client.get(AUDIT, headers=world.session(name))
            assert response.status_code == status
        other = AUDIT.replace("acme", "other")
        assert (await world.client.get(other, headers=world.session("auditor"))).status_code == 403
        assert (await world.client.get(other, headers=world.session("stranger"))).status_code == 200
