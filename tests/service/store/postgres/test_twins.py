"""A request that is sent twice at once is performed once, whichever nodes receive it."""

import asyncio

from service.store.idempotency import RepeatableRequest, find_answer, keep_answer
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import Organisation
from tests.service.store.conftest import add_org

REQUESTS = 40


async def test_twins_are_performed_once_and_answered_alike(store: Store, other: Store):
    """Without the lock both look for an answer before either has stored one."""
    org: Organisation = await add_org(store, "acme")
    performed: list[int] = []

    async def send(node: Store, number: int) -> bytes:
        attempt = RepeatableRequest(org.id, "key", str(number), "digest")

        def change(work: SyncUnitOfWork) -> bytes:
            kept = find_answer(work.transaction, attempt, work.now)
            if kept is None:
                performed.append(number)
                kept = str(len(performed)).encode()
                keep_answer(work.transaction, attempt, kept, work.now)
            return kept

        return await node.write_at_once(change)

    twins = [send(node, n) for n in range(REQUESTS) for node in (store, other, store, other)]
    answers = await asyncio.gather(*twins)

    assert sorted(performed) == list(range(REQUESTS))
    assert all(len(set(answers[4 * n : 4 * n + 4])) == 1 for n in range(REQUESTS))
