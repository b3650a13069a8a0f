"""The blocklist is replaced whole, or not at all, and every organisation's log says so."""

import asyncio
import io
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from analytics.model.ecosystems import Ecosystem
from service.core.errors import Invalid
from service.packages.ecosystem import Release
from service.packages.policy.blocklist import NOTHING_TO_IMPORT, BlocklistImporter, BlocklistResult
from service.packages.policy.blocklist_contents import FeedState, Scope
from service.packages.policy.blocklist_generations import IMPORT_UNDER_WAY, BlocklistGenerations
from service.packages.policy.blocklist_loading import IMPORT_OVERTAKEN
from service.packages.policy.osv_zip import UNUSABLE_ZIP
from service.packages.policy.policy_cache import PolicyCache
from service.packages.policy.repository import find_current_import, list_imports, load_feed_states
from service.store.store import Store
from service.store.tables import AdvisoryEntry, BlocklistImport, Organisation
from tests.budgets import only_full, sample
from tests.conftest import BY_OPERATOR, SettableClock, World
from tests.crashes import PowerCut, kill_process, power_cut_after
from tests.service.packages.policy.osv_files import osv_record, osv_zip

OLD = osv_zip([osv_record("MAL-1", "old"), osv_record("MAL-2", "both")])
NEW = osv_zip([osv_record("MAL-3", "new"), osv_record("MAL-2", "both")])
OTHER = osv_zip([osv_record("MAL-P", "pypi", "PyPI")])
NAMES = ("old", "both", "new", "pypi")


async def load(
    store: Store,
    file: io.BytesIO,
    ids: Sequence[str] = ("MAL-*",),
    **options: Any,
) -> BlocklistResult:
    """Import `file`, as the operator."""
    return await BlocklistImporter(store).import_file(file, "osv.zip", ids, BY_OPERATOR, **options)


async def blocked(store: Store, org: Organisation, *names: str) -> list[str]:
    """Those of `names` of which nothing may be installed: of npm, but `pypi` of PyPI."""
    book = PolicyCache(store)
    found = []
    for name in names:
        ecosystem = Ecosystem.PYPI if name == "pypi" else Ecosystem.NPM
        policy = await book.of(org, ecosystem, name)
        if policy.decide(Release(ecosystem, name, "1.0.0"), BY_NOW).is_refused:
            found.append(name)
    return found


BY_NOW = SettableClock().now


async def states(world: World) -> list[FeedState]:
    """Each feed of the list in force."""
    async with world.services.store.read() as session:
        return await load_feed_states(session)


async def stored(store: Store) -> int:
    """How many advisories the database holds, of any generation."""
    async with store.read() as session:
        return await session.scalar(select(func.count()).select_from(AdvisoryEntry)) or 0


async def test_an_import_replaces_the_list(world: World) -> None:
    store = world.services.store
    first = await load(store, OLD)
    assert await blocked(store, world.acme, "old", "both", "new") == ["old", "both"]

    second = await load(store, NEW)

    assert await blocked(store, world.acme, "old", "both", "new") == ["both", "new"]
    changes = second.changes[Ecosystem.NPM]
    assert (first.changes[Ecosystem.NPM].before, changes.before, changes.after) == (0, 2, 2)
    assert (changes.added, changes.removed, changes.changed) == (1, 1, 0)
    assert second.generation > first.generation
    assert await stored(store) == 2


async def test_every_organisation_is_told_once(world: World) -> None:
    """Its installs are decided by the list: its log must tell since when."""
    await load(world.services.store, OLD)
    await load(world.services.store, NEW)

    for slug in ("acme", "other"):
        (row, _) = await world.audit(slug, event="blocklist_imported")
        assert row["actor"] == "system:cli"
        assert row["actor_tenant_id"] == "org_platform"
        payload = row["payload"]
        assert (payload["source"], payload["feed"]) == ("osv.zip", "osv")
        assert (payload["ids"], payload["ecosystems"]) == (["MAL-*"], ["npm"])
        assert (payload["advisories"], payload["advisories_before"]) == (2, 2)
        assert (payload["before"], payload["after"]) == ({"npm": 2}, {"npm": 2})
        assert payload["removed"] == {"npm": 1}


async def test_the_same_file_again_changes_nothing(world: World, clock: SettableClock) -> None:
    """A job that imports every hour leaves one row for each new list, and is known to have run."""
    await load(world.services.store, OLD)
    clock.advance(hours=1)

    again = await load(world.services.store, OLD)

    assert again.is_unchanged
    assert len(await world.audit(event="blocklist_imported")) == 1
    (state,) = await states(world)
    assert state.imported_at == clock.now


async def test_another_file_with_the_same_records_changes_nothing(
    world: World, clock: SettableClock
) -> None:
    """OSV's file changes with each record of any kind; what is imported changes less often."""
    await load(world.services.store, OLD)
    clock.advance(hours=1)
    other = [osv_record("MAL-1", "old"), osv_record("MAL-2", "both"), osv_record("X-1")]

    again = await load(world.services.store, osv_zip(other))

    assert again.is_unchanged
    assert len(await world.audit(event="blocklist_imported")) == 1
    assert await stored(world.services.store) == 2
    (state,) = await states(world)
    assert (state.imported_at, state.advisories) == (clock.now, 2)


async def test_what_is_counted(world: World) -> None:
    file = osv_zip(
        [
            osv_record("MAL-1"),
            osv_record("MAL-2", withdrawn="2026-01-01T00:00:00Z"),
            osv_record("GHSA-1"),
            osv_record("MAL-3", ecosystem="crates.io"),
            osv_record("MAL-4", ranges=[{"type": "SEMVER", "events": [{"introduced": "x"}]}]),
        ],
        **{"copy.json": b'{"id": "MAL-1"}', "bad.json": b"["},
    )

    counts = (await load(world.services.store, file)).counts

    assert (counts.records, counts.advisories, counts.withdrawn) == (1, 1, 1)
    assert (counts.other, counts.unreadable) == (2, 3)
    assert [name for name, _ in counts.examples] == ["MAL-4.json", "copy.json", "bad.json"]


async def test_ids_choose_the_records(world: World) -> None:
    file = osv_zip(
        [osv_record("GHSA-1", "a"), osv_record("PYSEC-1", "b"), osv_record("MAL-1", "c")]
    )

    await load(world.services.store, file, ["GHSA-*", "PYSEC-1"])

    assert await blocked(world.services.store, world.acme, "a", "b", "c") == ["a", "b"]


@pytest.mark.parametrize(
    ("file", "ids", "refusal"),
    [
        (osv_zip([]), ["MAL-*"], NOTHING_TO_IMPORT),
        (osv_zip([osv_record("GHSA-1")]), ["MAL-*"], NOTHING_TO_IMPORT),
        (osv_zip([osv_record("MAL-1")], **{"bomb.json": bytes(17 * 2**20)}), ["*"], UNUSABLE_ZIP),
        (io.BytesIO(NEW.getvalue()[:-30]), ["*"], UNUSABLE_ZIP),
        (NEW, [], Invalid),
        (NEW, ["\n"], Invalid),
    ],
)
async def test_a_refused_import_changes_nothing(
    world: World, file: io.BytesIO, ids: list[str], refusal: type[Exception]
) -> None:
    """A wrong file must not empty the list."""
    store = world.services.store
    await load(store, OLD)

    with pytest.raises(refusal):
        await load(store, file, ids)

    assert await blocked(store, world.acme, "old", "both", "new") == ["old", "both"]
    assert await stored(store) == 2
    async with store.read() as session:
        assert len(await list_imports(session, 10)) == 1


async def test_two_imports_do_not_meet(world: World, clock: SettableClock) -> None:
    """The second one is refused; once the first is silent for a minute, it takes its place."""
    store = world.services.store
    await _leave_half_an_import(store)

    with pytest.raises(IMPORT_UNDER_WAY, match="wait until it has ended"):
        await load(store, OLD)
    clock.advance(seconds=61)
    await load(store, OLD)

    assert await blocked(store, world.acme, "old", "both", "half") == ["old", "both"]
    assert await stored(store) == 2


async def test_an_import_that_is_cancelled_leaves_nothing(world: World) -> None:
    """After Ctrl-C the next import need not wait."""
    store = world.services.store
    await load(store, OLD)

    def approve(changes: object) -> bool:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await load(store, NEW, approve=approve)

    assert await blocked(store, world.acme, "old", "both", "new") == ["old", "both"]
    await load(store, NEW)
    assert await blocked(store, world.acme, "old", "both", "new") == ["both", "new"]


async def _leave_half_an_import(store: Store) -> None:
    """What a process leaves that is killed between two batches."""
    async with store.write() as work:
        last = await work.session.scalar(select(func.max(BlocklistImport.generation)))
        generation = (last or 0) + 1
        work.session.add(
            BlocklistImport(
                generation=generation,
                source="half.zip",
                sha256="",
                ids=[],
                imported_by="x",
                started_at=work.now,
                progress_at=work.now,
            )
        )
        await work.session.flush()
        work.session.add(
            AdvisoryEntry(
                generation=generation,
                ecosystem="npm",
                package="half",
                advisory_id="MAL-9",
                spec=b"{}",
            )
        )


async def test_an_import_that_was_given_up_for_dead_does_not_switch(
    world: World, clock: SettableClock
) -> None:
    """A process that was suspended for an hour must not undo what came after it."""
    store = world.services.store
    generations = BlocklistGenerations(store)
    begun = await generations.begin("slow.zip", "", Scope.of("osv", ["*"]), BY_OPERATOR)
    clock.advance(hours=1)
    await load(store, NEW)
    await load(store, OLD)

    async def finish(*_: object) -> None:
        """Complete nothing."""

    with pytest.raises(IMPORT_OVERTAKEN):
        await generations.switch_on(begun, finish)

    assert await blocked(store, world.acme, "old", "both", "new") == ["old", "both"]


@pytest.mark.parametrize("last", [1, 20, 40])
async def test_old_entries_are_forgotten(world: World, last: int) -> None:
    """An import every hour for years leaves fifty lines, and never the one in force out."""
    store = world.services.store
    await load(store, OLD)
    async with store.write() as work:
        entry = await find_current_import(work.session)
        assert entry is not None
        for number in range(last):
            fields = {
                column.name: getattr(entry, column.name)
                for column in BlocklistImport.__table__.columns
            }
            work.session.add(BlocklistImport(**fields | {"generation": 2 + number}))

    await load(store, NEW)

    async with store.read() as session:
        imports = await list_imports(session, 1_000)
    assert len(imports) <= 50
    assert imports[0].sha256 != imports[-1].sha256
    assert await blocked(store, world.acme, "old", "both", "new") == ["both", "new"]


@only_full
@pytest.mark.parametrize("steps", range(52))
async def test_whatever_step_the_power_goes_at(
    world: World, clock: SettableClock, steps: int
) -> None:
    await _check_power_cut(world, clock, steps)


@pytest.mark.parametrize("steps", [20, 26, 35, 45])
async def test_at_some_step_the_power_goes(world: World, clock: SettableClock, steps: int) -> None:
    await _check_power_cut(world, clock, steps)


async def _check_power_cut(world: World, clock: SettableClock, steps: int) -> None:
    store = world.services.store
    await load(store, OTHER)
    await load(store, OLD)
    with power_cut_after(steps, store), suppress(PowerCut):
        await load(store, NEW)

    found = await blocked(store, world.acme, *NAMES)
    rows = await world.audit(event="blocklist_imported")

    assert (found, len(rows)) in [(["old", "both", "pypi"], 2), (["both", "new", "pypi"], 3)]
    clock.now += timedelta(seconds=61)
    await load(store, NEW)
    assert await blocked(store, world.acme, *NAMES) == ["both", "new", "pypi"]
    assert await stored(store) == 3


@sample(2)
@pytest.mark.parametrize(
    ("beginning", "number", "after", "expected"),
    [
        ("COMMIT", 1, "INSERT INTO advisories", ["old", "both"]),
        ("COMMIT", 1, "UPDATE blocklist_imports SET switched_at", ["old", "both"]),
        ("DELETE FROM advisories", 1, "UPDATE blocklist_imports SET", ["both", "new"]),
        ("END", 1, "", ["both", "new"]),
    ],
)
async def test_a_process_is_killed_before_or_after_the_switch(
    world: World, beginning: str, number: int, after: str, expected: list[str]
) -> None:
    """By kill -9, really: the old list before the switch, the new one after it, never a mixture."""
    store, clock = world.services.store, world.clock
    await load(store, OTHER)
    await load(store, OLD)

    await kill_process(
        world.services.settings,
        clock.now,
        "blocklist",
        beginning,
        number,
        after=after,
        content=NEW.getvalue(),
    )

    assert await blocked(store, world.acme, *NAMES) == [*expected, "pypi"]
    assert len(await world.audit(event="blocklist_imported")) == 2 + ("new" in expected)
    clock.advance(seconds=61)
    await load(store, NEW)
    assert await stored(store) == 3
