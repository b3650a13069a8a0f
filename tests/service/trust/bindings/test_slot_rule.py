"""COUNTERSIGN_BINDING_SLOT: how far one active triple reaches, and changing one's mind about it."""

from typing import Literal

import msgspec
import pytest
from sqlalchemy import select

from service.app.application import create_app
from service.app.bootstrap import prepare
from service.core.errors import Conflict
from service.core.settings import Settings
from service.store.tables import Fact
from tests.conftest import World, binding_body, bindings_path, refused

TAKEN = (409, "An active binding already exists for this (issuer, sub, repository_id)")


async def create_in(client, world: World, slug: str):
    """POST the same valid binding in the organisation `slug`; the response."""
    return await client.post(bindings_path(slug), headers=world.admin, json=binding_body())


async def restarted(settings: Settings, slot_rule: Literal["global", "tenant"]):
    """A second app over the same data, under another rule. Raises Conflict."""
    ready = await prepare(msgspec.structs.replace(settings, binding_slot=slot_rule))
    return create_app(ready)


async def test_by_default_a_triple_is_taken_across_the_service(world: World):
    """A CI identity belongs to one organisation; two that claim it cannot both be right."""
    assert (await create_in(world.client, world, "acme")).status_code == 201

    assert await refused(await create_in(world.client, world, "other")) == TAKEN


class TestOneSlotPerTenant:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, binding_slot="tenant")

    async def test_organisations_do_not_occupy_each_others_triples(self, world: World):
        """For operators who fear that one tenant takes another's repositories."""
        assert (await create_in(world.client, world, "acme")).status_code == 201

        assert (await create_in(world.client, world, "other")).status_code == 201
        assert await refused(await create_in(world.client, world, "acme")) == TAKEN

    async def test_a_team_finds_its_own_organisations_envelope(self, world: World):
        """The narrower slot must not hide the envelope, nor show another tenant's."""
        assert (await create_in(world.client, world, "other")).status_code == 201
        team = {"origin": "team_admin", "team_id": world.team.id}
        assert (await world.create(**team)).status_code == 400

        assert (await world.create()).status_code == 201
        assert (await world.create(**team)).status_code == 201

    async def test_going_global_is_refused_while_two_tenants_hold_a_triple(
        self, world: World, settings: Settings
    ):
        """The service does not start and changes nothing: it cannot tell which of them is right."""
        await create_in(world.client, world, "acme")
        await create_in(world.client, world, "other")
        before = await world.bindings()

        with pytest.raises(Conflict) as refusal:
            await restarted(settings, "global")

        assert refusal.value.text == (
            "COUNTERSIGN_BINDING_SLOT=global: two active bindings would share a slot;"
            " revoke one of them first"
        )
        assert await world.bindings() == before
        assert await refused(await create_in(world.client, world, "acme")) == TAKEN
        async with world.services.store.read() as session:
            rule = await session.scalar(select(Fact.value).where(Fact.name == "binding_slot"))
        assert rule == "tenant"

    async def test_going_global_works_once_one_of_them_is_revoked(
        self, world: World, settings: Settings
    ):
        """Old rows follow the new rule: the slot they take is taken in every organisation."""
        created = await (await create_in(world.client, world, "acme")).get_json()
        await create_in(world.client, world, "other")
        await world.client.delete(bindings_path("acme", created["id"]), headers=world.admin)

        app = await restarted(settings, "global")

        async with app.test_app() as running:
            assert await refused(await create_in(running.test_client(), world, "acme")) == TAKEN


async def test_going_from_global_to_tenant_frees_other_organisations(
    world: World, settings: Settings
):
    assert (await create_in(world.client, world, "acme")).status_code == 201

    app = await restarted(settings, "tenant")

    async with app.test_app() as running:
        client = running.test_client()
        assert (await create_in(client, world, "other")).status_code == 201
        assert await refused(await create_in(client, world, "acme")) == TAKEN


async def test_starting_again_under_the_same_rule_changes_nothing(world: World, settings: Settings):
    assert (await create_in(world.client, world, "acme")).status_code == 201
    before = await world.bindings()

    await prepare(settings)

    assert await world.bindings() == before
    assert await refused(await create_in(world.client, world, "acme")) == TAKEN
