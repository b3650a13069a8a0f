"""Policies are in memory, and a change holds for the next request in every process."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from service.app.composition import Services, build_services
from service.packages.ecosystem import Release
from service.packages.policy import policy_cache
from service.packages.policy.document import parse_policy
from service.packages.policy.evaluation import CompiledPolicy
from service.packages.policy.model import InstallPolicy
from service.packages.policy.policy_cache import PolicyCache
from service.packages.policy.repository import set_policy
from service.store.store import Store
from service.store.tables import Organisation
from tests.conftest import BY_OPERATOR, World
from tests.crashes import watched_steps
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import load

DENY = {"deny": [{"ecosystem": "npm", "package": "left-pad"}]}


async def put(store: Store, org: Organisation, document: dict[str, Any]) -> None:
    async with store.write() as work:
        await set_policy(work, org, parse_policy(document), BY_OPERATOR)


async def is_refused(services: Services, org: Organisation, name: str = "left-pad") -> bool:
    """Whether a process would refuse an npm package."""
    policy = await services.policies.of(org, Ecosystem.NPM, name)
    return policy.decide(Release(Ecosystem.NPM, name, "1.0.0"), services.clock()).is_refused


@pytest.fixture
async def worker(world: World) -> AsyncIterator[Services]:
    """A second process over the same data dir."""
    started = build_services(world.services.settings, world.clock)
    yield started
    await started.close()


async def test_a_rule_holds_at_the_next_request_in_every_worker(
    world: World, worker: Services
) -> None:
    services = world.services
    seen = []
    for document in ({}, DENY, {}, DENY):
        await put(services.store, world.acme, document)
        seen.append((await is_refused(services, world.acme), await is_refused(worker, world.acme)))

    assert seen == [(False, False), (True, True), (False, False), (True, True)]


async def test_a_new_blocklist_holds_at_the_next_request_in_every_worker(
    world: World, worker: Services
) -> None:
    assert not await is_refused(worker, world.acme)

    await load(world.services.store, osv_zip([osv_record("MAL-1", "left-pad")]))

    assert await is_refused(worker, world.acme)
    assert await is_refused(worker, world.other)


async def test_one_organisation_is_not_decided_by_the_rules_of_another(world: World) -> None:
    await put(world.services.store, world.acme, DENY)

    assert await is_refused(world.services, world.acme)
    assert not await is_refused(world.services, world.other)


async def statements(world: World, book: PolicyCache, name: str = "left-pad") -> list[str]:
    """What a look into the book asks the database."""
    seen: list[str] = []
    with watched_steps(world.services.store, seen.append):
        await book.of(world.acme, Ecosystem.NPM, name)
    return [text for text in seen if text.startswith("SELECT")]


async def test_while_nothing_is_committed_nothing_is_asked(world: World) -> None:
    book = PolicyCache(world.services.store)
    await put(world.services.store, world.acme, DENY)
    first = await statements(world, book)

    quiet = await statements(world, book)
    async with world.services.store.write() as work:
        work.record(world.acme.id, _any_envelope(), BY_OPERATOR)
    after_a_row = await statements(world, book)

    assert len(first) == 4  # once outside and once inside the snapshot, the policy, the advisories
    assert quiet == []
    assert len(after_a_row) == 1
    assert "advisories" not in after_a_row[0]
    assert "document" not in after_a_row[0]


def _any_envelope() -> Any:
    from analytics.model.envelopes import InstallAllowed

    return InstallAllowed()


async def test_a_policy_is_read_once_for_all_packages(world: World) -> None:
    book = PolicyCache(world.services.store)
    await put(world.services.store, world.acme, DENY)
    await statements(world, book)

    second = await statements(world, book, "right-pad")

    assert len(second) == 2
    assert not any("document" in text for text in second)


@pytest.mark.sqlite_only(reason="reads the plan in its words")
async def test_the_look_up_uses_the_index(world: World) -> None:
    """220,000 advisories are not read for one package."""
    store = world.services.store
    await load(store, osv_zip([osv_record("MAL-1", "left-pad")]))

    def plan(transaction: Any) -> list[str]:
        rows = transaction.execute(
            "EXPLAIN QUERY PLAN SELECT spec FROM advisories"
            " WHERE generation = 1 AND ecosystem = 'npm' AND package = 'left-pad'"
        )
        return [row[-1] for row in rows]

    (step,) = await store.read_at_once(plan)

    assert step.startswith("SEARCH advisories USING PRIMARY KEY")


async def test_a_long_policy_is_compiled_in_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all ranges that it may have, that takes a tenth of a second."""
    threads = []

    def compiled(policy: InstallPolicy) -> CompiledPolicy:
        threads.append(threading.current_thread())
        return CompiledPolicy(policy)

    monkeypatch.setattr(policy_cache, "CompiledPolicy", compiled)
    rules = [DENY["deny"][0] | {"id": f"{number}", "reason": "r" * 99} for number in range(30)]
    for document in (DENY, {"deny": rules}):
        await put(world.services.store, world.acme, document)
        assert await is_refused(world.services, world.acme)

    assert [thread is threading.main_thread() for thread in threads] == [True, False]
