"""The lease on PostgreSQL: its row counts, by the database's clock, whatever a node's says."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from service.store.lease import LeaseKeeper, LeaseLost, LeaseTaken
from service.store.store import Store
from service.store.tables import Organisation
from tests.conftest import START
from tests.service.store.conftest import add_org

LIFETIME = timedelta(seconds=0.4)


def keeper(store: Store, folder: Path) -> LeaseKeeper:
    """That of a node with a data dir of its own."""
    folder.mkdir(exist_ok=True)
    return LeaseKeeper(store, folder, LIFETIME)


async def test_a_paused_holder_does_no_harm(store: Store, other: Store, tmp_path):
    org = await add_org(store, "acme")
    async with keeper(store, tmp_path / "a").hold() as paused:
        with pytest.raises(LeaseTaken):
            async with keeper(other, tmp_path / "b").hold():
                pass
        await asyncio.sleep(LIFETIME.total_seconds() + 0.1)
        async with keeper(other, tmp_path / "b").hold() as current:
            with pytest.raises(LeaseLost):
                async with paused.write() as work:
                    await work.session.execute(
                        update(Organisation).where(Organisation.id == org.id).values(slug="late")
                    )
            async with current.write():
                pass
    assert current.epoch == paused.epoch + 1


async def test_a_node_whose_clock_is_off_respects_the_lease(
    store: Store, other: Store, tmp_path, monkeypatch
):
    """By its own clock every lease would have expired years ago, or would never expire."""
    monkeypatch.setattr("service.store.postgres.probe.utc_now", lambda: START + timedelta(9999))
    async with keeper(store, tmp_path / "a").hold():
        with pytest.raises(LeaseTaken):
            async with keeper(other, tmp_path / "b").hold():
                pass
