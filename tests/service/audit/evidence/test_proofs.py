"""Every row can be proved, whatever happens to the files it is in."""

import random
from datetime import date, timedelta

import pytest
from sqlalchemy import delete, select, update

from analytics.model.schema import audit_id
from service.store.tables import (
    EvidenceDayKey,
    EvidenceTile,
    EvidenceTree,
    JournalEntry,
    PrunedLeaves,
)
from tests.analytics.samples import sample_row
from tests.budgets import budget
from tests.conftest import START
from tests.service.audit.evidence.proving import (
    answer,
    check_consistency,
    checkpoints,
    prove,
    refusal,
    sign,
)
from tests.service.audit.pruning import DAY, add_past, always_on, prune, pruned_rows
from tests.service.audit.test_import import line, take


async def accept_some(audit, rng, orgs, count):
    """Batches of several organisations, one behind the other, of the last days."""
    for _ in range(count):
        at = START - rng.randrange(5) * DAY
        rows = [sample_row(at, version=str(n)) for n in range(rng.choice([1, 1, 2, 30, 300]))]
        await audit.accept(rows, rng.choice(orgs))


@pytest.mark.parametrize("seed", range(budget(2, 10)))
async def test_rows_are_proved_across_seal_merge_import_and_prune(audit, seed):
    """The tree is of the rows, and not of the files: nothing that moves rows changes it."""
    rng = random.Random(seed)
    await always_on(audit, "team")
    orgs = [audit.world.acme, audit.world.acme, audit.world.other]
    services = audit.services
    kept = None
    for step in range(12):
        await accept_some(audit, rng, orgs, 4)
        match rng.choice(["seal", "merge", "import", "sign", "sign"]):
            case "seal":
                await audit.seal()
            case "merge":
                await audit.seal()
                await services.compactor.compact_due(everything=True)
            case "import":
                days = [START - n * DAY for n in range(4)]
                content = b"".join(line(rng.choice(days), f"{step}-{n}") for n in range(200))
                await take(audit, content)
            case "sign":
                await sign(audit)
    await sign(audit)
    rows = await audit.pages(limit=1000)
    for row in rng.sample(rows, 20):
        kept = await prove(audit, row)
    assert kept is not None
    assert kept["size"] == len(rows)
    signed = await checkpoints(audit)
    for old in signed:
        await check_consistency(audit, old, signed[-1])

    await always_on(audit, "free")
    audit.clock.advance(seconds=timedelta(days=7).total_seconds())
    (dropped,) = await prune(audit)
    left = await audit.pages(limit=1000)
    async with services.store.read() as session:
        tree = await session.get_one(EvidenceTree, audit.world.acme.id)
    assert dropped.rows > 0
    for row in rng.sample(left, min(20, len(left))):
        said = await prove(audit, row)
        assert said["size"] == tree.size > len(rows)
    signed = await checkpoints(audit)
    await check_consistency(audit, signed[-2], signed[-1])


async def test_a_row_is_proved_a_minute_after_it_is_accepted(audit):
    await audit.accept([sample_row()])
    (row,) = await audit.pages(event="blocklist_hit")
    assert await refusal(audit, f"/{row['id']}/proof") == (
        409,
        "the row is newer than the last checkpoint: ask again in a minute",
    )
    assert await refusal(audit, "/checkpoint") == (
        409,
        "no checkpoint of this org is signed yet: ask again in a minute",
    )
    await sign(audit)
    said = await prove(audit, row)
    signed = await answer(audit, "/checkpoint")
    assert signed["note"] == said["note"]
    assert signed["last_id"] >= row["id"]
    await audit.accept([sample_row(version="2")])
    newest = (await audit.pages(event="blocklist_hit", version="2"))[0]
    assert (await refusal(audit, f"/{newest['id']}/proof"))[0] == 409


async def test_another_organisations_row_is_not_found(audit):
    """Also where its seq is between two rows of one's own."""
    await audit.accept([sample_row()])
    await audit.accept([sample_row()], audit.world.other)
    await audit.accept([sample_row()])
    await sign(audit)
    mine = await audit.pages(event="blocklist_hit")
    between = audit_id(int(mine[-1]["id"][4:]) + 1)
    assert between < mine[0]["id"]
    assert await refusal(audit, f"/{between}/proof") == (404, "Audit row not found for this org")
    assert (await answer(audit, f"/{between}/proof", audit.world.other.slug))["id"] == between


async def test_without_new_rows_nothing_is_signed(audit):
    await audit.accept([sample_row()])
    assert await sign(audit) > 0
    before = await checkpoints(audit)
    assert await sign(audit) == 0
    assert len(await checkpoints(audit)) == len(before) == 1


@pytest.fixture
async def past(audit):
    """Acme on tier free, with three days that are past it, and a row of now."""
    await always_on(audit, "free")
    await add_past(audit)
    await audit.accept([sample_row(START)])
    return audit


async def all_ids(audit):
    await always_on(audit, "enterprise")
    rows = await audit.pages(event="blocklist_hit")
    await always_on(audit, "free")
    return rows


async def test_a_hidden_row_is_not_found_and_a_pruned_one_is_gone(past):
    """Both borders: what the floor hides is not there, and what is deleted is said to be."""
    rows = await all_ids(past)
    visible, hidden = rows[0], rows[1:]
    await sign(past)
    for row in hidden:
        assert await refusal(past, f"/{row['id']}/proof") == (
            404,
            "Audit row not found for this org",
        )
    await prove(past, visible)

    await prune(past)
    (entry,) = await pruned_rows(past)
    first, last = entry["payload"]["first_id"], entry["payload"]["last_id"]
    assert (first, last) == (hidden[-1]["id"], max(row["id"] for row in hidden))
    for row in hidden:
        assert await refusal(past, f"/{row['id']}/proof") == (
            410,
            f"retention deleted rows {first} to {last} of this org: audit row {entry['id']} says"
            " so, and can be proved",
        )
    await prove(past, visible)
    await prove(past, entry)


async def test_a_prune_entry_says_which_leaves_are_gone(past):
    await sign(past)
    (before,) = await checkpoints(past)
    await prune(past)
    (entry,) = await pruned_rows(past)
    said = entry["payload"]
    async with past.services.store.read() as session:
        tree = await session.get_one(EvidenceTree, past.world.acme.id)
        kept = await session.scalars(select(PrunedLeaves))
        days = await session.scalars(select(EvidenceDayKey.day))
        assert not {str(day) for day in days} & set(said["days"])
        assert [len(each.leaves) for each in kept] == [4 + said["rows"] * 41]
    ranges = [tuple(map(int, each.split("-"))) for each in said["leaf_ranges"]]
    assert sum(last - first + 1 for first, last in ranges) == said["rows"] == 12
    assert said["tier"] == "free"
    assert said["checkpoint_size"] >= before.size
    assert tree.min_index == 0  # a group of which rows are left


async def test_the_key_of_a_day_that_was_lost_is_destroyed_with_its_neighbours(past):
    """Nothing is stored of a day whose only segment was given up: its hashes stay all the same."""
    await sign(past)
    lost = date(2020, 2, 2)
    async with past.services.store.write() as work:
        work.session.add(EvidenceDayKey(tenant_id=past.world.acme.id, day=lost, key=bytes(32)))
    await prune(past)
    async with past.services.store.read() as session:
        days = [*await session.scalars(select(EvidenceDayKey.day))]
    assert days
    assert lost not in days


async def test_groups_that_are_pruned_as_a_whole_leave_one_hash(audit):
    await always_on(audit, "free")
    old = START - 20 * DAY
    await audit.accept([sample_row(old, version=str(n)) for n in range(600)])
    await audit.accept([sample_row(START, version=str(n)) for n in range(300)])
    await audit.seal()
    await sign(audit)
    rows = await audit.pages(event="blocklist_hit", limit=1000)
    await prune(audit)
    async with audit.services.store.read() as session:
        tree = await session.get_one(EvidenceTree, audit.world.acme.id)
        tile = await session.get_one(EvidenceTile, (audit.world.acme.id, 1, 0))
        assert tile.pruned is not None
        # The first group has rows of the organisation's founding, the third one newer installs.
        assert (tree.min_index, tile.pruned[:4]) == (0, b"\0\1\0\0")
    for row in (rows[0], rows[-1]):
        await prove(audit, row)
    status, text = await refusal(audit, "/consistency", old=300)
    assert status == 410
    assert text.startswith("retention deleted the rows from number 256 to before 512")
    assert (await refusal(audit, "/tile/0/1"))[0] == 410
    for level, width in enumerate((256, tree.size // 256)):
        response = await audit.get(f"/tile/{level}/0")
        assert response.content_type == "application/octet-stream"
        assert len(await response.get_data()) == width * 32

    audit.clock.advance(seconds=timedelta(days=20).total_seconds())
    await audit.accept([sample_row(audit.clock())])
    await sign(audit)
    await prune(audit)
    signed = await answer(audit, "/checkpoint")
    assert signed["min_index"] == signed["size"] // 256 * 256 == 768
    await prove(audit, (await audit.pages(event="blocklist_hit"))[0])


async def test_a_row_changed_behind_the_services_back_gets_no_proof(audit):
    await audit.accept([sample_row(version=str(n)) for n in range(5)])
    await sign(audit)
    rows = await audit.pages(event="blocklist_hit")
    for row in rows:
        await prove(audit, row)
    async with audit.services.store.write() as work:
        await work.session.execute(update(EvidenceDayKey).values(key=bytes(32)))
    status, text = await refusal(audit, f"/{rows[0]['id']}/proof")
    assert (status, "not those that were signed" in text) == (503, True)


async def test_a_row_deleted_behind_the_services_back_gets_its_neighbours_no_proof(audit):
    await audit.accept([sample_row(version="1")])
    await audit.accept([sample_row(version="2")])
    await sign(audit)
    newest, oldest = await audit.pages(event="blocklist_hit")
    async with audit.services.store.write() as work:
        seq = int(oldest["id"][4:])
        await work.session.execute(delete(JournalEntry).where(JournalEntry.first_seq == seq))
    status, text = await refusal(audit, f"/{newest['id']}/proof")
    assert (status, "not those that were signed" in text) == (503, True)


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ({"old": "9", "new": "8"}, 400, "old must be at most new"),
        ({"old": "1", "new": "99"}, 400, "new at most"),
        ({"old": "-1"}, 400, "old must be an integer from 0 to 9223372036854775807"),
        ({"old": "x"}, 400, "old must be an integer from 0 to 9223372036854775807"),
        ({}, 400, "old"),
    ],
)
async def test_sizes_that_the_log_never_had_are_refused(audit, query, status, text):
    await audit.accept([sample_row()])
    await sign(audit)
    found, said = await refusal(audit, "/consistency", **query)
    assert found == status
    assert text in said


@pytest.mark.parametrize("path", ["/tile/1/1", "/tile/9/0", "/tile/x/0", "/tile/0/01", "/tile/0/5"])
async def test_tiles_that_do_not_exist_are_not_found(audit, path):
    await audit.accept([sample_row()])
    await sign(audit)
    assert await refusal(audit, path) == (404, "Tile not found for this org")
