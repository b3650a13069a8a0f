"""An import replaces the records of its feed, ecosystems and ids; all others stay in force."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update

from analytics.model.ecosystems import Ecosystem
from service.core.errors import Invalid
from service.packages.ecosystem import Release
from service.packages.policy.blocklist import FEED_NOT_LISTED, NOTHING_TO_IMPORT, BlocklistImporter
from service.packages.policy.policy_cache import PolicyCache
from service.packages.policy.repository import find_current_import
from service.store.tables import AdvisoryEntry, BlocklistImport
from tests.conftest import BY_OPERATOR, SCRAPER, SettableClock, World
from tests.service.packages.policy.osv_files import osv_record, osv_zip
from tests.service.packages.policy.test_blocklist import BY_NOW, load, states

NPM, PYPI = Ecosystem.NPM, Ecosystem.PYPI
GONE = "2026-01-01T00:00:00Z"


async def import_records(world: World, *records: Any, **options: Any) -> Any:
    return await load(world.services.store, osv_zip(records), **options)


async def in_force(world: World, *packages: str) -> dict[str, str]:
    """The advisory that blocks each of `packages`, such as `npm:evil`, as far as one does."""
    book = PolicyCache(world.services.store)
    found = {}
    for package in packages:
        ecosystem, _, name = package.partition(":")
        policy = await book.of(world.acme, Ecosystem(ecosystem), name)
        decision = policy.decide(Release(Ecosystem(ecosystem), name, "1.0.0"), BY_NOW)
        if decision.is_blocked:
            found[package] = str(decision.rule_id)
    return found


async def stale(world: World) -> list[Ecosystem]:
    """The ecosystems of feeds of which nothing was imported for a week."""
    return [
        state.ecosystem
        for state in await states(world)
        if state.is_stale(world.clock.now, 7 * 86_400)
    ]


@pytest.fixture
async def both(world: World) -> World:
    """MAL records of npm and PyPI, from one archive each."""
    await import_records(world, osv_record("MAL-1", "one"), osv_record("MAL-2", "two"))
    await import_records(world, osv_record("MAL-3", "three", "PyPI"))
    return world


async def test_the_archive_of_one_ecosystem_leaves_the_others(both: World) -> None:
    assert await in_force(both, "npm:one", "npm:two", "pypi:three") == {
        "npm:one": "MAL-1",
        "npm:two": "MAL-2",
        "pypi:three": "MAL-3",
    }


async def test_what_an_archive_does_not_list_is_gone_in_its_ecosystems(both: World) -> None:
    result = await import_records(
        both, osv_record("MAL-2", "two"), osv_record("MAL-4", "four", "PyPI")
    )

    assert await in_force(both, "npm:one", "npm:two", "pypi:three", "pypi:four") == {
        "npm:two": "MAL-2",
        "pypi:four": "MAL-4",
    }
    assert (result.changes[NPM].removed, result.changes[PYPI].removed) == (1, 1)


async def test_other_ids_stay(both: World) -> None:
    """`--ids GHSA-*` says nothing about malicious packages."""
    result = await import_records(both, osv_record("GHSA-1", "ghsa"), ids=["GHSA-*"])

    assert set(await in_force(both, "npm:one", "npm:two", "npm:ghsa", "pypi:three")) == {
        "npm:one",
        "npm:two",
        "npm:ghsa",
        "pypi:three",
    }
    assert (result.changes[NPM].before, result.changes[NPM].after) == (0, 1)


async def test_ids_differ_by_case(both: World) -> None:
    """As OSV's do: `mal-1` is another record than `MAL-1`."""
    await import_records(both, osv_record("mal-1", "lower"), ids=["mal-*"])

    assert set(await in_force(both, "npm:one", "npm:lower")) == {"npm:one", "npm:lower"}
    with pytest.raises(NOTHING_TO_IMPORT):
        await import_records(both, osv_record("MAL-9", "nine"), ids=["mal-*"])


async def test_feeds_do_not_touch_each_other(both: World) -> None:
    """Two feeds may have a record of the same id about the same package, and each withdraws its."""
    await import_records(both, osv_record("MAL-1", "one"), feed="corp")
    await import_records(both, osv_record("MAL-2", "two"))

    assert await in_force(both, "npm:two", "pypi:three") == {
        "npm:two": "MAL-2",
        "pypi:three": "MAL-3",
    }
    # Of the two records of this id, osv's alone is gone.
    assert await in_force(both, "npm:one") == {"npm:one": "MAL-1"}
    assert {(state.feed, state.ecosystem): state.advisories for state in await states(both)} == {
        ("corp", NPM): 1,
        ("osv", NPM): 1,
        ("osv", PYPI): 1,
    }


@pytest.mark.parametrize("feed", ["", "OSV", "a b", "-a", "é", "a" * 65, "a\n"])
async def test_a_feed_has_a_plain_name(world: World, feed: str) -> None:
    """`OSV` beside `osv` would be a second feed by mistake."""
    with pytest.raises(Invalid, match="feed must be"):
        await import_records(world, osv_record("MAL-1"), feed=feed)


async def test_withdrawn_records_go_everywhere_in_their_feed(both: World) -> None:
    """Also with the archive of another ecosystem."""
    await import_records(both, osv_record("MAL-5", "five"), feed="corp")

    await import_records(
        both,
        osv_record("MAL-1", "one"),
        osv_record("MAL-2", "two"),
        osv_record("MAL-3", "three", withdrawn=GONE),
        osv_record("MAL-5", "five", withdrawn=GONE),
    )

    assert set(await in_force(both, "npm:one", "npm:two", "npm:five", "pypi:three")) == {
        "npm:one",
        "npm:two",
        "npm:five",
    }


async def test_a_feed_may_withdraw_all_of_its_records(both: World) -> None:
    await import_records(
        both,
        osv_record("MAL-1", "one", withdrawn=GONE),
        osv_record("MAL-2", "two", withdrawn=GONE),
    )

    assert set(await in_force(both, "npm:one", "npm:two", "pypi:three")) == {"pypi:three"}
    assert {state.ecosystem: state.advisories for state in await states(both)} == {NPM: 0, PYPI: 1}


async def test_a_record_that_cannot_be_read_leaves_its_predecessor(both: World) -> None:
    """A kind of range that this version does not know must not unblock what was blocked."""
    strange = [{"type": "SEMVER", "events": [{"invented": "1.0.0"}]}]

    result = await import_records(
        both, osv_record("MAL-1", "one", ranges=strange), osv_record("MAL-2", "two")
    )

    assert set(await in_force(both, "npm:one", "npm:two")) == {"npm:one", "npm:two"}
    assert (result.counts.unreadable, result.changes[NPM].removed) == (1, 0)


async def test_a_record_of_other_ids_that_cannot_be_read_is_not_named(world: World) -> None:
    strange = [{"type": "SEMVER", "events": [{"invented": "1.0.0"}]}]

    result = await import_records(world, osv_record("MAL-1"), osv_record("X-1", ranges=strange))

    assert (result.counts.unreadable, result.counts.other) == (0, 1)


async def test_records_about_two_ecosystems_do_not_make_it_the_archive_of_both(
    both: World,
) -> None:
    """OSV's archive of npm has such records, and lacks most of PyPI's."""
    shared = osv_record("MAL-9", "nine")
    shared["affected"] += osv_record("MAL-9", "nine", "PyPI")["affected"]

    result = await import_records(
        both, osv_record("MAL-1", "one"), osv_record("MAL-2", "two"), shared
    )

    assert set(await in_force(both, "npm:nine", "pypi:nine", "pypi:three")) == {
        "npm:nine",
        "pypi:nine",
        "pypi:three",
    }
    assert (result.changes[PYPI].added, result.changes[PYPI].removed) == (1, 0)
    # A record that is about npm alone from now on does not block a package of PyPI.
    await import_records(
        both,
        *(osv_record(f"MAL-{n}", name) for n, name in ((1, "one"), (2, "two"), (9, "nine"))),
    )
    assert set(await in_force(both, "npm:nine", "pypi:nine", "pypi:three")) == {
        "npm:nine",
        "pypi:three",
    }


async def test_ids_that_overlap(world: World) -> None:
    """Otherwise the next import of all ids would be skipped."""
    wide = [osv_record("GHSA-a", "a"), osv_record("GHSA-b", "b")]
    await import_records(world, *wide, ids=["GHSA-*"])
    await import_records(world, osv_record("GHSA-a2", "a2"), ids=["GHSA-a*"])
    assert set(await in_force(world, "npm:a", "npm:a2", "npm:b")) == {"npm:a2", "npm:b"}

    again = await import_records(world, *wide, ids=["GHSA-*"])

    assert not again.is_unchanged
    assert set(await in_force(world, "npm:a", "npm:a2", "npm:b")) == {"npm:a", "npm:b"}


async def test_imports_of_different_ids_in_turn_are_each_known(world: World) -> None:
    """A timer that imports two kinds of records makes no new list."""
    mal, ghsa = osv_record("MAL-1", "m"), osv_record("GHSA-1", "g")
    await import_records(world, mal, ghsa)
    await import_records(world, mal, ghsa, ids=["GHSA-*"])

    first = await import_records(world, mal, ghsa)
    second = await import_records(world, mal, ghsa, ids=["GHSA-*"])

    assert (first.changes, second.changes) == ({}, {})
    assert len(await world.audit(event="blocklist_imported")) == 2


async def test_a_file_is_not_known_once_part_of_it_is_replaced(both: World) -> None:
    """It was imported for npm and PyPI; another archive of PyPI came after it."""
    records = [osv_record("MAL-1", "one"), osv_record("MAL-4", "four", "PyPI")]
    await import_records(both, *records)
    await import_records(both, osv_record("MAL-7", "seven", "PyPI"))

    await import_records(both, *records)

    assert set(await in_force(both, "npm:one", "pypi:four", "pypi:seven")) == {
        "npm:one",
        "pypi:four",
    }


@pytest.mark.parametrize(("before", "lost", "asks"), [(10, 1, False), (10, 2, True), (9, 1, True)])
async def test_more_than_a_tenth_is_a_loss(
    world: World, before: int, lost: int, asks: bool
) -> None:
    """Counted is what is removed: as many new records do not make up for it."""
    old = [osv_record(f"MAL-{n}", f"p{n}") for n in range(before)]
    new = [osv_record(f"MAL-N{n}", f"n{n}") for n in range(lost)]
    await import_records(world, *old)

    result = await import_records(world, *old[lost:], *new, approve=lambda changes: False)

    change = result.changes[NPM]
    assert (change.before, change.after, change.removed) == (before, before, lost)
    assert change.is_loss is asks


async def test_what_is_not_approved_changes_nothing(both: World) -> None:
    asked: list[Any] = []

    def refuse(changes: Any) -> bool:
        asked.append(changes)
        return False

    result = await import_records(both, osv_record("MAL-8", "eight"), approve=refuse)

    assert not result.is_in_force
    assert asked[0][NPM].removed == 2
    assert set(await in_force(both, "npm:one", "npm:eight")) == {"npm:one"}
    assert len(await both.audit(event="blocklist_imported")) == 2
    await import_records(both, osv_record("MAL-8", "eight"))


@pytest.mark.parametrize("is_same_file", [True, False])
async def test_a_plan_without_changes_is_no_import(
    world: World, clock: SettableClock, *, is_same_file: bool
) -> None:
    """A timer that only plans must not make an old feed look fresh."""
    await import_records(world, osv_record("MAL-1"))
    (before,) = await states(world)
    clock.advance(days=8)
    more = [] if is_same_file else [osv_record("X-1")]

    result = await import_records(world, osv_record("MAL-1"), *more, approve=lambda changes: False)

    assert (result.is_unchanged, result.is_in_force) == (True, True)
    assert await states(world) == [before]


async def test_a_feed_is_removed(both: World) -> None:
    await import_records(both, osv_record("MAL-1", "one"), osv_record("C-1", "c"), feed="corp")
    await import_records(both, osv_record("C-1", "c"), feed="corp", ids=["*"])
    importer = BlocklistImporter(both.services.store)

    result = await importer.remove_feed("corp", BY_OPERATOR, lambda changes: True)

    assert result.changes[NPM].removed == 1
    assert set(await in_force(both, "npm:one", "npm:two", "npm:c")) == {"npm:one", "npm:two"}
    assert {state.feed for state in await states(both)} == {"osv"}
    (row, *_) = await both.audit(event="blocklist_imported")
    assert (row["payload"]["source"], row["payload"]["feed"]) == ("", "corp")
    assert row["payload"]["removed"] == {"npm": 1}
    with pytest.raises(FEED_NOT_LISTED):
        await importer.remove_feed("corp", BY_OPERATOR, lambda changes: True)
    await import_records(both, osv_record("C-1", "c"), feed="corp", ids=["*"])
    assert set(await in_force(both, "npm:c")) == {"npm:c"}


async def test_a_feed_without_advisories_is_removed(world: World) -> None:
    """It would be stale otherwise, with no remedy."""
    await import_records(world, osv_record("C-1"), feed="corp", ids=["*"])
    await import_records(world, osv_record("C-1", withdrawn=GONE), feed="corp", ids=["*"])
    assert [state.advisories for state in await states(world)] == [0]

    await BlocklistImporter(world.services.store).remove_feed(
        "corp", BY_OPERATOR, lambda changes: True
    )

    assert await states(world) == []


async def test_a_feed_is_stale_once_nothing_was_imported_for_long(
    both: World, clock: SettableClock
) -> None:
    clock.advance(days=5)
    await import_records(both, osv_record("MAL-3", "three", "PyPI"))
    clock.advance(days=3)

    assert await stale(both) == [NPM]
    await import_records(both, osv_record("GHSA-1", "g"), ids=["GHSA-*"])
    assert await stale(both) == [NPM]
    await import_records(both, osv_record("MAL-1", "one"), ids=["*"])
    assert await stale(both) == []
    assert [state.ids for state in await states(both)] == [["*"], ["MAL-*"]]


@pytest.mark.parametrize(
    ("modified", "expected"),
    [
        (["2026-01-02T03:04:05.123456789Z", "2026-01-01T00:00:00Z"], "2026-01-02T03:04:05.123456"),
        (["9999-01-01T00:00:00Z"], None),
        (["yesterday", "2026-01-01", 7, None, {"a": "b"}], ""),
    ],
)
async def test_the_newest_change_is_known(
    world: World, clock: SettableClock, modified: Sequence[Any], expected: str | None
) -> None:
    await import_records(
        world, *(osv_record(f"MAL-{n}", modified=at) for n, at in enumerate(modified))
    )

    (state,) = await states(world)

    if expected is None:
        assert state.modified_at == clock.now
    else:
        said = "" if state.modified_at is None else state.modified_at.isoformat()
        assert said.startswith(expected)
        assert bool(said) is bool(expected)


async def test_a_list_of_an_older_version_is_of_osv(both: World, clock: SettableClock) -> None:
    """It says nothing of feeds: its records are carried, compared and counted as osv's."""
    store = both.services.store
    async with store.write() as work:
        current = await find_current_import(work.session)
        assert current is not None
        await work.session.execute(update(BlocklistImport).values(contents=None))
        await work.session.execute(update(AdvisoryEntry).values(feed="osv"))
    assert [(s.feed, s.ecosystem, s.advisories) for s in await states(both)] == [
        ("osv", NPM, 2),
        ("osv", PYPI, 1),
    ]
    clock.advance(hours=1)

    await import_records(both, osv_record("MAL-1", "one"))

    assert set(await in_force(both, "npm:one", "npm:two", "pypi:three")) == {
        "npm:one",
        "pypi:three",
    }
    assert [(s.ecosystem, s.imported_at == clock.now) for s in await states(both)] == [
        (NPM, True),
        (PYPI, False),
    ]


async def test_more_advisories_than_a_batch_are_carried(both: World) -> None:
    names = [f"{chr(65 + n % 26)}{n}" for n in range(2_300)]
    await import_records(both, *(osv_record(f"MAL-N{n}", name) for n, name in enumerate(names)))

    await import_records(both, osv_record("MAL-P", "other", "PyPI"), feed="corp")

    assert [(s.feed, s.ecosystem, s.advisories) for s in await states(both)] == [
        ("corp", PYPI, 1),
        ("osv", NPM, 2_300),
        ("osv", PYPI, 1),
    ]


async def test_each_feed_is_a_metric(both: World) -> None:
    """An alert knows by it that an import is overdue."""
    await import_records(both, osv_record("C-1"), osv_record("C-2"), ids=["*"], feed="corp")

    response = await both.client.get("/metrics", headers=SCRAPER)
    lines = (await response.get_data(as_text=True)).splitlines()

    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("countersign_blocklist_"))
    labels = '{ecosystem="npm",feed="corp"}'
    now = both.clock.now.timestamp()
    assert found[f"countersign_blocklist_advisories{labels}"] == "2.0"
    assert float(found[f"countersign_blocklist_imported_timestamp_seconds{labels}"]) == now
    modified = float(found[f"countersign_blocklist_modified_timestamp_seconds{labels}"])
    assert modified == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert len(found) == 9
