"""The specification's table of status codes, row by row."""

from sqlalchemy import text

from tests.conftest import World, binding_body, bindings_path, refused

TAKEN = "An active binding already exists for this (issuer, sub, repository_id)"
GONE = "Binding not found for this org (or already revoked)"


async def every_endpoint(world: World, headers: dict[str, str], slug: str) -> list:
    """What list, create and revoke answer."""
    return [
        await refused(await world.client.get(bindings_path(slug), headers=headers)),
        await refused(
            await world.client.post(bindings_path(slug), headers=headers, json=binding_body())
        ),
        await refused(
            await world.client.delete(
                bindings_path(slug, "obind_0000000000000000"), headers=headers
            )
        ),
    ]


async def test_404_for_an_unknown_organisation_on_every_endpoint(world: World):
    for slug in ("missing", "ACME", "acme%20", "%FF", "%00"):
        assert await every_endpoint(world, world.admin, slug) == [(404, "Org not found")] * 3


async def test_404_for_a_binding_that_cannot_be_revoked(world: World):
    """Unknown, another organisation's and revoked are one answer: ids of others stay unknown."""
    created = await (await world.create()).get_json()
    attempts = [
        bindings_path("acme", "obind_0000000000000000"),
        bindings_path("acme", created["id"].upper()),
        bindings_path("acme", "%FF"),
        bindings_path("other", created["id"]),
    ]

    answers = [await world.client.delete(path, headers=world.admin) for path in attempts]

    assert [await refused(answer) for answer in answers] == [(404, GONE)] * 4
    assert [binding["revokedAt"] for binding in await world.bindings()] == [None]


async def test_500_says_nothing_of_the_fault_and_changes_nothing(world: World):
    """Without the seq counter no audit row can be written; then there is no binding either."""
    async with world.services.store.write() as work:
        await work.session.execute(text("DELETE FROM counters WHERE name = 'audit_seq'"))

    assert await refused(await world.create()) == (500, "internal error")
    assert await world.bindings() == []


async def test_503_when_the_database_does_not_answer(world: World):
    """A store fault is never an empty page: its reader would believe there is no trust."""
    async with world.services.store.write() as work:
        await work.session.execute(text("ALTER TABLE bindings RENAME TO hidden"))

    for answer in (
        await world.client.get(bindings_path(), headers=world.admin),
        await world.create(),
        await world.client.delete(bindings_path("acme", "obind_0"), headers=world.admin),
    ):
        assert await refused(answer) == (503, "storage is unavailable")
