"""The life of a binding: active, then revoked forever."""

import asyncio

from tests.conftest import World, bindings_path, refused

GONE = (404, "Binding not found for this org (or already revoked)")


async def revoke(world: World, binding_id: str, slug: str = "acme", **query: str):
    return await world.client.delete(
        bindings_path(slug, binding_id), headers=world.admin, query_string=query
    )


async def test_a_delete_revokes_and_says_who_when_and_why(world: World):
    """The row stays, so that the history of trust can be replayed."""
    binding_id = await world.bind()
    before = (await world.bindings())[0]
    world.clock.advance(hours=1)

    response = await revoke(world, binding_id, reason="key leaked")

    assert response.status_code == 200
    assert await response.get_json() == {"revoked": binding_id}
    assert await world.bindings() == [
        before
        | {
            "revokedAt": "2026-03-04T13:00:00.123Z",
            "revokedBy": "system:admin-token",
            "revokedReason": "key leaked",
        }
    ]


async def test_a_second_delete_is_404_and_changes_nothing(world: World):
    """Who revoked first, when and why is history; a later call must not rewrite it."""
    binding_id = await world.bind()
    await revoke(world, binding_id, reason="first")
    before = await world.bindings()
    world.clock.advance(hours=1)

    assert await refused(await revoke(world, binding_id, reason="second")) == GONE
    assert await world.bindings() == before


async def test_the_triple_is_free_again_after_a_revoke(world: World):
    first = await world.bind()
    await revoke(world, first)
    (revoked,) = await world.bindings()
    world.clock.advance(seconds=1)

    second = await world.bind()

    assert second != first
    listed = await world.bindings()
    assert [binding["id"] for binding in listed] == [second, first]
    assert listed[0]["revokedAt"] is None
    assert listed[1] == revoked


async def test_of_many_concurrent_revokes_one_succeeds(world: World):
    binding_id = await world.bind()

    answers = await asyncio.gather(*(revoke(world, binding_id) for _ in range(20)))

    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200, *[404] * 19]
    assert len(await world.audit(event="oidc_binding_revoked")) == 1
