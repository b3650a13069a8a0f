"""When a key was last used: written behind, at most once a minute, and never in a request."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from service.core.errors import StoreUnavailable
from service.orgs.api_keys import KeyTerms, issue_api_key, revoke_api_key, rotate_api_key
from service.store.organisations import get_api_key
from service.store.tables import ApiKey
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, START, any_scope, refused, running_world
from tests.databases import IS_POSTGRESQL
from tests.other_programs import write_lock

EVENTS = "/api/v1/admin/orgs/acme/audit/events"
ROWS = [{"event": "install_allowed", "packageName": "left-pad"}]


@pytest.fixture
async def key(world):
    async with world.services.store.write() as work:
        issued, secret = await issue_api_key(
            work, world.acme, "proxy", None, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    return issued.id, secret


async def send(world, secret, path=EVENTS):
    return await world.client.post(path, headers={"x-service-api-key": secret}, json=ROWS)


async def last_use(world, key_id):
    async with world.services.store.read() as session:
        return (await session.get_one(ApiKey, key_id)).last_used_at


async def test_a_use_is_written_behind(world, key):
    key_id, secret = key
    assert (await send(world, secret)).status_code == 200
    assert await last_use(world, key_id) is None

    await world.services.key_use.flush()

    assert await last_use(world, key_id) == START


async def test_a_busy_key_is_written_once_a_minute(world, key):
    key_id, secret = key
    for _ in range(3):
        await send(world, secret)
        await world.services.key_use.flush()
        world.clock.advance(seconds=25)
    assert await last_use(world, key_id) == START

    await send(world, secret)
    await world.services.key_use.flush()
    assert await last_use(world, key_id) == START + timedelta(seconds=75)


async def test_another_process_does_not_set_it_back(world, key):
    """What is written later may have been used before."""
    key_id, _ = key
    use = world.services.key_use
    use.record(key_id, START + timedelta(hours=1))
    await use.flush()
    use._recorded.clear()
    use.record(key_id, START)
    await use.flush()

    assert await last_use(world, key_id) == START + timedelta(hours=1)


async def test_a_key_for_another_organisation_counts_as_used(world, key):
    """Its owner should see that it is tried elsewhere; a wrong one is of no key."""
    key_id, secret = key
    assert (await send(world, secret, EVENTS.replace("acme", "other"))).status_code == 403
    assert (await send(world, secret + "x")).status_code == 401
    await world.services.key_use.flush()

    assert await last_use(world, key_id) == START


async def test_what_the_database_does_not_take_is_kept(settings, clock):
    # On PostgreSQL a new connection needs some of it.
    impatient = replace(settings, database_wait_s=1.0 if IS_POSTGRESQL else 0.1)
    async with running_world(impatient, clock, has_sealer=False) as world:
        async with world.services.store.write() as work:
            issued, _ = await issue_api_key(
                work, world.acme, "proxy", None, BY_OPERATOR, scopes=PROXY_SCOPES
            )
        use = world.services.key_use
        use.record(issued.id, START)
        await use.flush()
        use.record(issued.id, START + timedelta(minutes=2))
        with write_lock(world.services.settings.data_dir):  # noqa: SIM117 - it is held before
            with pytest.raises(StoreUnavailable):
                await use.flush()
        await use.flush()

        assert await last_use(world, issued.id) == START + timedelta(minutes=2)


async def reading_key(world, **more):
    async with world.services.store.write() as work:
        key, secret = await issue_api_key(
            work, world.acme, "reader", None, BY_OPERATOR, scopes=["audit:r"], **more
        )
    return key, secret


async def read(world, secret):
    return await world.client.get(
        "/api/v1/admin/orgs/acme/audit", headers={"x-service-api-key": secret}
    )


async def test_a_reading_key_counts_as_used_and_ends_with_its_lifetime(world):
    key, secret = await reading_key(world, expires_at=START + timedelta(days=1))
    assert (await read(world, secret)).status_code == 200
    await world.services.key_use.flush()
    assert await last_use(world, key.id) == START

    world.clock.advance(days=1)
    status, text = await refused(await read(world, secret))
    assert status == 401
    assert "expired" in text


@pytest.mark.parametrize("lifetime", [None, timedelta(days=90)])
async def test_a_second_rotation_gives_the_lifetime_of_the_first_key(world, lifetime):
    """A rotation ends the old key early; what it was issued for is that of its successors."""
    expires_at = lifetime and START + lifetime
    key, _ = await reading_key(world, expires_at=expires_at)
    for _ in range(2):
        world.clock.advance(days=1)
        async with world.services.store.write() as work:
            old = await get_api_key(work.session, world.acme, key.id)
            new, _ = await rotate_api_key(
                work, world.acme, old, timedelta(days=7), KeyTerms(), BY_OPERATOR, any_scope
            )
            again, _ = await rotate_api_key(
                work, world.acme, new, timedelta(days=7), KeyTerms(), BY_OPERATOR, any_scope
            )
            for successor in (new, again):
                await revoke_api_key(work, world.acme, successor, BY_OPERATOR)
        assert new.expires_at != expires_at
        assert again.expires_at == (lifetime and world.clock.now + lifetime)


async def test_a_rotated_reading_key_reads_and_still_sends_nothing(world):
    old, _ = await reading_key(world)
    async with world.services.store.write() as work:
        key = await get_api_key(work.session, world.acme, old.id)
        _, secret = await rotate_api_key(
            work, world.acme, key, timedelta(hours=1), KeyTerms(), BY_OPERATOR, any_scope
        )

    assert (await read(world, secret)).status_code == 200
    assert (await send(world, secret)).status_code == 403
