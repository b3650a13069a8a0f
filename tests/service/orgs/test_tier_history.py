"""The tiers an organisation has left: what the longest retention it held is found by."""

from datetime import timedelta

from analytics.model.retention import Tier
from service.orgs.organisations import set_tier
from service.store.organisations import get_org, list_former_tiers
from tests.conftest import BY_OPERATOR, START


async def move(world, tier: str) -> None:
    async with world.services.store.write() as work:
        await set_tier(work, await get_org(work.session, "acme"), tier, BY_OPERATOR)


async def former(world, slug: str = "acme") -> dict:
    async with world.services.store.read() as session:
        return await list_former_tiers(session, await get_org(session, slug))


async def test_a_tier_that_is_left_is_remembered_with_its_instant(world):
    """Of this organisation alone, and in the transaction of the change."""
    await move(world, "free")
    world.clock.advance(days=1)
    await move(world, "team")

    assert await former(world) == {Tier.ORG: START, Tier.FREE: START + timedelta(days=1)}
    assert await former(world, "other") == {}


async def test_a_tier_that_is_left_again_is_remembered_by_the_last_time(world):
    await move(world, "free")
    world.clock.advance(days=3)
    await move(world, "org")
    world.clock.advance(days=3)
    await move(world, "free")

    assert await former(world) == {
        Tier.ORG: START + timedelta(days=6),
        Tier.FREE: START + timedelta(days=3),
    }


async def test_staying_in_a_tier_is_not_leaving_it(world):
    """`apply` says the same tier over and over."""
    await move(world, "org")

    assert await former(world) == {}
