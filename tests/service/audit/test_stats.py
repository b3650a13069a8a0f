"""What is stored, in numbers: exact, for each organisation, at any number of organisations."""

from datetime import timedelta

import msgspec
import pytest
from sqlalchemy import event

from analytics.model.instants import format_us
from service.audit.stats import list_stats, storage_stats_by_tenant
from service.orgs.organisations import create_org
from service.store.tables import JournalEntry
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, settings_over

YESTERDAY = START - timedelta(days=1)
LONG_AGO = START - timedelta(days=40)
NOTHING = {
    "rows": 0,
    "days": 0,
    "segments": 0,
    "bytes": 0,
    "bytes_per_row": None,
    "journal_rows": 0,
    "journal_batches": 0,
    "oldest_at": None,
    "retired_segments": 0,
    "retired_bytes": 0,
    "locked_segments": 0,
    "lock_kept_segments": 0,
    "lock_kept_bytes": 0,
}


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(settings_over(tmp_path), export_max_s=70.0, query_max_s=30.0)


@pytest.fixture
async def empty(audit):
    """No organisation has a row: what founding them recorded is gone."""
    async with audit.services.store.write() as work:
        await work.session.execute(JournalEntry.__table__.delete())
    return audit


async def stats(audit) -> dict:
    async with audit.services.store.read() as session:
        return await list_stats(session, audit.services.lake)


async def of_acme(audit) -> dict:
    acme, other = (await stats(audit))["organisations"]
    assert (acme.pop("org"), other.pop("org")) == ("acme", "other")
    assert other == NOTHING
    return acme


def sizes(audit) -> list[int]:
    return [path.stat().st_size for path in audit.services.settings.audit_dir.rglob("*.parquet")]


async def test_an_organisation_without_rows_has_a_line_all_the_same(empty):
    assert await of_acme(empty) == NOTHING
    assert (await stats(empty))["total"] == NOTHING


async def test_rows_are_counted_wherever_they_are(empty):
    await empty.accept([sample_row(YESTERDAY), sample_row(START)])
    await empty.seal()
    await empty.accept([sample_row(START), sample_row(START)])

    assert await of_acme(empty) == NOTHING | {
        "rows": 4,
        "days": 2,
        "segments": 2,
        "bytes": sum(sizes(empty)),
        "bytes_per_row": round(sum(sizes(empty)) / 2, 1),
        "journal_rows": 2,
        "journal_batches": 1,
        "oldest_at": format_us(YESTERDAY),
    }


async def test_merged_segments_are_counted_apart_until_they_are_gone(empty):
    for second in range(3):
        await empty.accept([sample_row(YESTERDAY + timedelta(seconds=second))])
        await empty.seal()
    before = sum(sizes(empty))
    await empty.services.compactor.compact_due(everything=True)

    merged = await of_acme(empty)
    assert (merged["rows"], merged["segments"], merged["days"]) == (3, 1, 1)
    assert (merged["retired_segments"], merged["retired_bytes"]) == (3, before)

    empty.clock.advance(seconds=101)
    await empty.services.garbage_collector.unlink_retired()
    swept = await of_acme(empty)
    assert swept == merged | {"retired_segments": 0, "retired_bytes": 0}


@pytest.mark.parametrize(
    ("sealed", "journalled", "oldest"),
    [
        ([], [START, START - timedelta(seconds=1)], START - timedelta(seconds=1)),
        ([YESTERDAY], [START], YESTERDAY),
        ([START], [YESTERDAY, START], YESTERDAY),
        ([START], [START - timedelta(microseconds=1)], START - timedelta(microseconds=1)),
        ([START], [START + timedelta(microseconds=1)], START),
        ([LONG_AGO, START], [LONG_AGO + timedelta(seconds=1)], LONG_AGO),
    ],
)
async def test_the_oldest_row_is_exact_wherever_it_is(empty, sealed, journalled, oldest):
    await empty.accept([sample_row(at) for at in sealed])
    await empty.seal()
    await empty.accept([sample_row(at) for at in journalled])

    assert (await of_acme(empty))["oldest_at"] == format_us(oldest)
    assert (await stats(empty))["total"]["oldest_at"] == format_us(oldest)


async def test_the_total_is_that_of_all_organisations(empty):
    await empty.accept([sample_row(YESTERDAY)] * 2)
    await empty.accept([sample_row(LONG_AGO)], empty.world.other)
    await empty.seal()
    await empty.accept([sample_row(START)], empty.world.other)

    said = await stats(empty)

    acme, other = said["organisations"]
    for name in ("rows", "days", "segments", "bytes", "journal_rows", "journal_batches"):
        assert said["total"][name] == acme[name] + other[name] > 0, name
    assert said["total"]["bytes_per_row"] == round(sum(sizes(empty)) / 3, 1)
    assert said["total"]["oldest_at"] == other["oldest_at"] == format_us(LONG_AGO)


async def test_a_damaged_batch_is_a_fault_and_no_number(empty):
    """A wrong answer would be believed; what does not depend on the batch is shown."""
    await empty.accept([sample_row(YESTERDAY)], empty.world.other)
    await empty.seal()
    await empty.accept([sample_row(START)])
    async with empty.services.store.write() as work:
        await work.session.execute(JournalEntry.__table__.update().values(data=b"\0"))

    shown = await stats(empty)

    acme, other = shown["organisations"]
    assert (acme["rows"], acme["oldest_at"], shown["total"]["oldest_at"]) == (1, None, None)
    assert other["oldest_at"] == format_us(YESTERDAY)
    assert len(shown["faults"]) == 1
    assert "its checksum differs" in shown["faults"][0]


async def test_more_organisations_cost_no_more_statements(audit):
    """A scrape of the metrics costs the same for ten and for a thousand of them."""
    said: list[str] = []
    reader = audit.services.store._engines.reader.sync_engine
    event.listen(reader, "before_cursor_execute", lambda *call: said.append(call[2]))

    async def statements() -> int:
        said.clear()
        async with audit.services.store.read() as session:
            await storage_stats_by_tenant(session)
        return sum(statement.lstrip().startswith("SELECT") for statement in said)

    few = await statements()
    async with audit.services.store.write() as work:
        for n in range(20):
            await create_org(work, f"org-{n}", "org", BY_OPERATOR)

    assert few == await statements() == 4
