"""The check of everything stored: no fault goes unseen, and no work in progress looks like one."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from analytics.model.instants import utc_day
from analytics.storage.integrity import FaultKind
from service.audit.integrity_check import Check, Report
from service.audit.lake import Lake
from tests.analytics.samples import sample_row
from tests.budgets import budget, only_full, sample
from tests.conftest import START, settings_over
from tests.databases import IS_POSTGRESQL

GRACE_S = 100.0
YESTERDAY = START - timedelta(days=1)


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(
        settings_over(tmp_path), export_max_s=GRACE_S - 30, query_max_s=30.0
    )


@pytest.fixture
async def filled(audit):
    """Three segments of acme's yesterday, one of other's, and rows in both journals."""
    for n in range(3):
        await audit.accept([sample_row(YESTERDAY + timedelta(seconds=n + k)) for k in range(4)])
        await audit.seal()
    await audit.accept([sample_row(YESTERDAY)], audit.world.other)
    await audit.seal()
    await audit.accept([sample_row(START), sample_row(YESTERDAY)])
    await audit.accept([sample_row(START)], audit.world.other)
    return audit


async def check(audit, org=None, show=lambda done, total: None) -> Report:
    return await Check(audit.services.store, audit.services.lake, org, show).run()


def lines(report: Report) -> list[dict]:
    return [report.line(finding) for finding in report.findings]


def kinds(report: Report) -> list[FaultKind]:
    return [finding.kind for finding in report.findings]


def files(audit) -> list[Path]:
    """Acme's segments of yesterday."""
    folder = f"tenant={audit.world.acme.id}/day={utc_day(YESTERDAY)}"
    return sorted((audit.services.settings.audit_dir / folder).glob("*.parquet"))


async def execute(audit, statement: str) -> None:
    """Change the database behind the service's back."""
    async with audit.services.store.write() as work:
        if IS_POSTGRESQL:
            statement = statement.replace("x'00'", r"'\x00'")
        else:
            await work.session.execute(text("PRAGMA defer_foreign_keys = ON"))
        await work.session.execute(text(statement))


async def test_a_healthy_service_has_nothing_to_find(filled):
    assert lines(await check(filled)) == []
    await filled.seal()
    assert lines(await check(filled)) == []
    await filled.services.compactor.compact_due(everything=True)
    assert lines(await check(filled)) == []
    filled.clock.advance(seconds=GRACE_S + 1)
    await filled.services.garbage_collector.unlink_retired()
    report = await check(filled)

    assert (lines(report), report.notes) == ([], [])


async def test_everything_is_read_and_counted(filled):
    shown: list[tuple[int, int]] = []
    report = await check(filled, show=lambda done, total: shown.append((done, total)))
    shown_rows = len(await filled.pages())

    assert shown[-1][0] == shown[-1][1] > 0
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)
    assert report.rows > shown_rows > 0
    assert report.segments >= 4
    assert report.batches >= 3


async def test_one_organisation_is_checked_alone(filled):
    files(filled)[0].unlink()
    acme, other = filled.world.acme, filled.world.other

    assert lines(await check(filled, other)) == []
    (line,) = lines(await check(filled, acme))
    assert line["kind"] == "missing_file"
    assert kinds(await check(filled)) == [FaultKind.MISSING_FILE]


async def test_a_finding_says_what_where_and_whose(filled):
    lost = files(filled)[0]
    lost.unlink()

    (line,) = lines(await check(filled))

    assert line == {
        "segment": lost.stem,
        "org": "acme",
        "day": str(utc_day(YESTERDAY)),
        "kind": "missing_file",
        "detail": line["detail"],
        "remedy": "run `countersign audit restore-segment`",
    }
    assert str(lost) in line["detail"]


async def test_a_retired_segment_may_have_lost_its_file(filled):
    """A crash between unlink and commit; the next sweep takes the line out."""
    before = files(filled)
    await filled.services.compactor.compact_due(everything=True)
    for path in before:
        path.unlink()

    assert lines(await check(filled)) == []


@sample(2)
@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE segments SET rows = rows + 1", FaultKind.WRONG_STATISTICS),
        ("UPDATE segments SET seq_base = 1000000", FaultKind.WRONG_STATISTICS),
        ("UPDATE counters SET value = 1 WHERE name = 'audit_seq'", FaultKind.UNKNOWN_SEQ),
        ("UPDATE journal SET day = '2026-01-01'", FaultKind.WRONG_DAY),
        ("UPDATE journal SET data = x'00'", FaultKind.UNREADABLE),
    ],
)
async def test_a_database_that_says_something_else_is_found(filled, statement, kind):
    await execute(filled, statement)

    assert kind in kinds(await check(filled))


@pytest.mark.sqlite_only(reason="PostgreSQL does not let foreign keys be broken")
@pytest.mark.parametrize("table", ["segments", "journal"])
async def test_rows_of_an_unknown_tenant_are_found(filled, table):
    """Such as after an organisation was deleted by hand. They are shown under the bare id."""
    async with filled.services.store._engines.writer.connect() as connection:
        await connection.exec_driver_sql("ROLLBACK")
        await connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        await connection.exec_driver_sql(f"UPDATE {table} SET tenant_id = 'org_unknown'")
        await connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        await connection.exec_driver_sql("BEGIN")

    found = lines(await check(filled))

    assert "unknown_tenant" in {line["kind"] for line in found}
    assert {line["org"] for line in found if line["kind"] == "unknown_tenant"} == {"org_unknown"}


async def test_a_row_in_the_journal_and_in_a_segment_is_found(filled):
    """As if a seal had added its file and not taken the batches."""
    async with filled.services.store.read() as session:
        kept = (await session.execute(text("SELECT * FROM journal"))).mappings().all()
    await filled.seal()
    async with filled.services.store.write() as work:
        columns = list(kept[0])
        await work.session.execute(
            text(
                f"INSERT INTO journal ({', '.join(columns)})"
                f" VALUES ({', '.join(f':{c}' for c in columns)})"
            ),
            [dict(line) for line in kept],
        )

    assert kinds(await check(filled)) == [FaultKind.DUPLICATE_SEQ] * len(kept)


@pytest.mark.parametrize("age", ["young", "old"])
async def test_a_file_is_a_note_if_a_sweep_removes_it_and_else_a_finding(filled, age):
    """A finding asks for work that the service does not do by itself."""
    known = files(filled)[0]
    strays = [
        *(known.with_name(name) for name in ("seg_orphan.parquet", "seg_late.pending", "x.txt")),
        *(known.with_suffix(suffix) for suffix in (".pending", ".txt")),
        known.parent / "below" / "seg_deep.parquet",
        known.parent.with_name("day=2026-01-01") / known.name,
        known.parent.parent / "seg_high.parquet",
        known.parent.parent.parent / "notes.txt",
    ]
    grace_s = filled.services.settings.orphan_grace_s
    at_s = filled.clock().timestamp() - grace_s - (1 if age == "old" else -1)
    for stray in strays:
        stray.parent.mkdir(exist_ok=True)
        stray.write_bytes(known.read_bytes())
        os.utime(stray, (at_s, at_s))

    before = await check(filled)
    if age == "young":
        assert await filled.services.garbage_collector.clear_orphans() == 0
        filled.clock.advance(seconds=2)
    await filled.services.garbage_collector.clear_orphans()
    after = await check(filled)

    root = filled.services.settings.audit_dir
    swept = {str(stray.relative_to(root)) for stray in strays if not stray.exists()}
    assert {note.detail for note in before.notes} == swept
    assert len(swept) == 3
    assert len(before.findings) == len(strays) - len(swept)
    assert (after.findings, after.notes) == (before.findings, [])


async def test_while_the_lease_is_held_files_without_a_name_are_notes(filled):
    """Its holder may have been suspended for hours, and commit now."""
    orphan = files(filled)[0].with_name("seg_imported.parquet")
    orphan.write_bytes(files(filled)[0].read_bytes())
    at_s = filled.clock().timestamp() - 3 * filled.services.settings.orphan_grace_s
    os.utime(orphan, (at_s, at_s))

    async with filled.services.lease.hold():
        during = await check(filled)

    assert (kinds(during), [note.kind for note in during.notes]) == ([], [FaultKind.ORPHAN_FILE])


async def test_a_file_in_another_days_folder_is_found_however_young(filled):
    """Its line is committed, so no process is still working on it."""
    moved = files(filled)[0]
    target = moved.parent.with_name("day=2026-01-01") / moved.name
    target.parent.mkdir()
    moved.rename(target)
    os.utime(target)

    assert sorted(kinds(await check(filled))) == [FaultKind.MISPLACED_FILE, FaultKind.MISSING_FILE]


async def test_what_is_merged_and_unlinked_meanwhile_is_no_finding(filled, monkeypatch):
    """The catalog was read before, the file is opened after: it is asked again."""
    check_segment = Lake.check_segment

    async def merged_first(lake, segment, seen, on_rows):
        monkeypatch.setattr(Lake, "check_segment", check_segment)
        await filled.services.compactor.compact_due(everything=True)
        filled.clock.advance(seconds=GRACE_S + 1)
        await filled.services.garbage_collector.unlink_retired()
        return await check_segment(lake, segment, seen, on_rows)

    monkeypatch.setattr(Lake, "check_segment", merged_first)

    assert lines(await check(filled)) == []


async def test_a_segment_that_is_committed_meanwhile_is_no_orphan(filled, monkeypatch):
    """Files are listed before the catalog is read."""
    list_files = Lake.list_files

    async def sealed_after(lake, tenant_id):
        files = await list_files(lake, tenant_id)
        await filled.seal()
        return files

    async def sealed_before(lake, tenant_id):
        await filled.seal()
        return await list_files(lake, tenant_id)

    monkeypatch.setattr(Lake, "list_files", sealed_after)
    report = await check(filled)
    assert (lines(report), report.notes) == ([], [])

    await filled.accept([sample_row(START)])
    monkeypatch.setattr(Lake, "list_files", sealed_before)
    report = await check(filled)
    assert (lines(report), report.notes) == ([], [])


@only_full
async def test_checks_beside_everything_that_changes_segments_find_nothing(filled):
    stop = asyncio.Event()

    async def churn() -> None:
        while not stop.is_set():
            await filled.accept([sample_row(YESTERDAY), sample_row(START)])
            await filled.seal()
            await filled.services.compactor.compact_due(everything=True)
            filled.clock.advance(seconds=GRACE_S + 1)
            await filled.services.garbage_collector.unlink_retired()

    churning = asyncio.create_task(churn())
    for _ in range(budget(4, 15)):
        assert lines(await check(filled)) == []
    stop.set()
    await churning


async def test_a_receipt_is_compared_with_the_audit_row_of_its_export(filled):
    await (await filled.export(format="ndjson")).get_data()
    await (await filled.export(format="csv")).get_data()
    assert lines(await check(filled)) == []
    await execute(filled, "UPDATE exports SET sent_rows = sent_rows + 1 WHERE format = 'csv'")

    (line,) = lines(await check(filled))
    assert (line["kind"], line["org"], line["segment"]) == ("wrong_receipt", "acme", None)
    assert "audit_export_finished" in line["remedy"]
    await filled.seal()
    assert lines(await check(filled)) == [line]
    assert lines(await check(filled, filled.world.other)) == []


async def test_a_damaged_file_makes_no_other_look_wrong(filled):
    """Another segment's file in its place has the same seq again: they are not reported twice."""
    first, second, *_ = files(filled)
    first.write_bytes(second.read_bytes())

    (line,) = lines(await check(filled))

    assert (line["segment"], line["org"]) == (first.stem, "acme")
    assert line["kind"] in {"wrong_sha256", "wrong_size"}


async def test_all_damage_is_found_at_once(filled):
    missing, cut, flipped = files(filled)
    missing.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    content = flipped.read_bytes()
    flipped.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    (index,) = filled.services.settings.audit_dir.glob(
        f"tenant={filled.world.other.id}/day={utc_day(YESTERDAY)}/*.index"
    )
    index.write_bytes(b"damaged")
    await execute(
        filled, f"UPDATE journal SET data = x'00' WHERE tenant_id = '{filled.world.other.id}'"
    )

    found = lines(await check(filled))

    assert {line["kind"] for line in found} == {
        "missing_file",
        "wrong_size",
        "wrong_sha256",
        "wrong_index",
        "unreadable",
    }
    assert all(line["remedy"] and line["org"] and line["day"] for line in found)
