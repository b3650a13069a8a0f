"""Group commit on PostgreSQL: a transaction that a statement has broken is not committed."""

import asyncio
from contextlib import suppress

import pytest
from sqlalchemy import column, func, select, table

from service.core.errors import StoreUnavailable
from service.store.group_commit import GroupCommit
from service.store.store import Store, SyncUnitOfWork
from tests.service.store.test_group_commit import adding, stored

LOSE_CONNECTION = select(func.pg_terminate_backend(func.pg_backend_pid()))
NOWHERE = select(column("n")).select_from(table("nowhere"))


def losing_the_connection(work: SyncUnitOfWork) -> None:
    work.transaction.rows(LOSE_CONNECTION, {})


def ignoring_a_failure(work: SyncUnitOfWork) -> None:
    with suppress(Exception):
        work.transaction.rows(NOWHERE, {})


@pytest.mark.parametrize("breaking", [losing_the_connection, ignoring_a_failure])
async def test_a_broken_transaction_fails_the_whole_group(store: Store, breaking) -> None:
    """Also as the last of it, where no later statement could notice; and the next group works."""
    group = GroupCommit(store)

    results = await asyncio.gather(
        *(group.commit(change) for change in (adding("one"), breaking)), return_exceptions=True
    )

    assert [type(result) for result in results] == [StoreUnavailable] * 2
    assert await stored(store) == []
    assert await group.commit(adding("later")) == "later"
    assert await stored(store) == ["later"]
