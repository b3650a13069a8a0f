"""Import: rows with a history of their own, each exactly once, and readers do not notice."""

import asyncio
import gzip
import hashlib
import io
import json
import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from sqlalchemy import event, func, select

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.imports.chunks import FileKind, ImportFormat, UnreadableFile
from analytics.imports.validation import Refused
from analytics.model.envelopes import BlocklistHit, CooldownActive, OidcBindingCreated
from analytics.model.filters import parse_query
from analytics.model.instants import format_us
from analytics.model.org_envelopes import LinkSignInSucceeded, RoleOverrideChanged, SignInFailed
from analytics.model.rows import AuditContext, VerdictSource, audit_row
from service.app.composition import Services
from service.audit.importer import (
    FILE_CHANGED,
    IMPORT_TOO_LONG,
    FileImportOvertaken,
    ImportFile,
    ImportJob,
    ImportResult,
    ImportWatch,
)
from service.store.journal import append
from service.store.lease import LeaseKeeper, LeaseLost, LeaseTaken
from service.store.tables import ImportedFile, JournalEntry, Lease, SegmentEntry
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import BY_OPERATOR, START
from tests.polling import HANG_S
from tests.service.audit.conftest import start_worker
from tests.service.audit.meanwhile import TAKE_OVER, by_another_worker, by_hand

NDJSON = FileKind(ImportFormat.NDJSON)
SERVER_COLUMNS = {"id", "tenant_id", "received_at"}
DAY = timedelta(days=1)


def line(at: Any = START, name: str = "x", **changes: Any) -> bytes:
    item = {"created_at": format_us(at), "event": "install_allowed", "packageName": name}
    return json.dumps(item | changes).encode() + b"\n"


def source(content: bytes, kind: FileKind = NDJSON, name: str = "audit.ndjson") -> ImportFile:
    return ImportFile(name, io.BytesIO(content), len(content), kind)


async def take(
    audit: Any,
    content: bytes | ImportFile,
    *,
    org: Any = None,
    services: Any = None,
    is_partial: bool = False,
    wait_s: float = 0.0,
    refused: list[Refused] | None = None,
) -> ImportResult:
    """Import `content` into acme, or another organisation."""
    told: list[Refused] = [] if refused is None else refused
    what = content if isinstance(content, ImportFile) else source(content)
    job = ImportJob(org or audit.world.acme, what, BY_OPERATOR, is_partial)
    watch = ImportWatch(on_progress=lambda _: None, on_refused=told.extend)
    return await (services or audit.services).importer.take(job, watch, wait_s)


async def count(audit: Any, table: Any) -> int:
    async with audit.services.store.read() as session:
        return await session.scalar(select(func.count()).select_from(table)) or 0


def files(audit: Any) -> list[Path]:
    return list(audit.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet"))


async def entries(audit: Any, slug: str = "acme", **query: Any) -> list[dict[str, Any]]:
    return await audit.world.audit(slug, **query)


def installs(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["packageName"] for row in rows if row["event"] == "install_allowed"]


async def add_history(audit: Any) -> None:
    """Rows of every kind, with all that is awkward to write down."""
    by_key = AuditContext(
        "key_1", "api_key", VerdictSource.PROXY, request_id="req_1", source_ip="::1"
    )
    by_ci = AuditContext("key_1", "oidc_github", VerdictSource.PROXY, source_ip="192.0.2.7")
    by_member = AuditContext("github:mem_1", "session", VerdictSource.DASHBOARD)
    names = [
        'a "q"',
        "a,b",
        "@acme/x",
        "=1+1",
        "-1",
        "'quoted",
        "''",
        "+",
        "🦊👩🏽\u200b"[:-1],
        "日本",
    ]
    installed = BlocklistHit(rule_id='line\nbreak "q" \x01 \'=', source="osv")
    rows = [
        audit_row(installed, by_key, START - n * DAY / 3, package_name=name, version=f"'{n}")
        for n, name in enumerate(names)
    ]
    ci = {"sub": "repo:a/b", "repository_id": "1", "event_name": "push", "run_id": None, "jti": "j"}
    keys = {"published_at": "2026-03-01T00:00:00Z", "min_age_days": 7}
    rows += [
        sample_row(
            START - DAY,
            event=CooldownActive.event,
            actor_source="oidc_github",
            actor=by_ci.actor,
            payload=json.dumps({**keys, "ci": ci}, separators=(",", ":")),
            decision_reason=json.dumps(keys, separators=(",", ":")),
            repository_id="1",
            run_id=None,
            token_id="j",
        ),
        audit_row(LinkSignInSucceeded(member_id="mem_1"), by_member, START, subject="mem_1"),
        audit_row(SignInFailed(method="link", reason="x" * 2_000), by_member, START - 2 * DAY),
        audit_row(
            RoleOverrideChanged(
                role="admin", capabilities_before=[], capabilities_after=["oidc:r"]
            ),
            BY_OPERATOR,
            START - 300 * DAY,
        ),
        audit_row(
            OidcBindingCreated(
                binding_id="obind_1",
                issuer="https://i.example",
                sub_pattern="=repo:a/b",
                repository_id=None,
                event_names=["push", "a,b"],
                origin="org_admin",
                project_id=None,
                team_id=None,
                by_user_id="mem_1",
            ),
            by_member,
            START - 3 * DAY,
            subject="obind_1",
        ),
    ]
    await audit.accept(rows)
    await audit.seal()


async def exported(audit: Any, form: FileEncoding) -> bytes:
    """All of acme's rows, the oldest first: rows of one instant keep their order."""
    exporter, clock = audit.services.exporter, audit.clock
    export = await exporter.prepare(
        audit.world.acme, parse_query({"order": ["asc"]}), form, BY_OPERATOR, clock()
    )
    return b"".join([piece async for piece in await exporter.stream(export)])


FORMS = [
    *(FileEncoding(ExportFormat.NDJSON, one) for one in (None, *Compression)),
    *(FileEncoding(ExportFormat.CSV, one) for one in (None, *Compression)),
    FileEncoding(ExportFormat.CSV, is_raw=True),
    FileEncoding(ExportFormat.PARQUET),
]


@sample(2)
@pytest.mark.parametrize("form", FORMS, ids=str)
async def test_what_one_organisation_exports_another_imports(audit, form):
    await add_history(audit)
    content = await exported(audit, form)
    audit.clock.advance(hours=1)
    kind = FileKind(ImportFormat(form.format), form.compression, form.is_raw)
    theirs = await entries(audit)
    before = {row["id"] for row in await entries(audit, "other")}

    result = await take(audit, source(content, kind), org=audit.world.other)

    told, *ours = [row for row in await entries(audit, "other") if row["id"] not in before]
    sent = [row for row in theirs if not row["event"].startswith("audit_export")]
    assert result.rows == len(sent) == len(ours)
    for was, now in zip(sent, ours, strict=True):
        assert {**was, **{name: now[name] for name in SERVER_COLUMNS}} == now
        assert now["tenant_id"] == audit.world.other.id
        assert now["received_at"] == format_us(audit.clock.now)
    assert told["event"] == "audit_imported"


async def test_an_import_is_recorded(audit):
    content = line(START - 3 * DAY) + line(START) + b"x\n"

    result = await take(audit, content, is_partial=True)

    (told,) = await entries(audit, event="audit_imported")
    assert told["payload"] == {
        "source": "audit.ndjson",
        "rows": 2,
        "refused": 1,
        "sha256": hashlib.sha256(content).hexdigest(),
        "first_day": "2026-03-01",
        "last_day": "2026-03-04",
    }
    assert (told["actor"], told["verdict_source"]) == ("system:cli", "cli")
    assert (result.rows, result.refused, [str(day) for day in result.days]) == (
        2,
        1,
        ["2026-03-01", "2026-03-04"],
    )


async def test_rows_go_into_segments_and_never_into_the_journal(audit):
    """The journal is for rows whose sender waits."""
    await audit.seal()
    await take(audit, line() * 3)

    assert [len(file.suffixes) for file in files(audit)][-1:] == [1]
    async with audit.services.store.read() as session:
        journalled = await session.scalar(select(func.sum(JournalEntry.rows)))
    assert journalled == 1, "the audit row of the import itself"
    assert installs(await entries(audit)) == ["x"] * 3


async def test_one_refused_row_refuses_the_file(audit):
    lines, told = await count(audit, SegmentEntry), []
    content = line() + b"x\n" + line(START - 366 * DAY) + line() + line(START + DAY)

    result = await take(audit, content, refused=told)

    assert (result.rows, result.refused) == (0, 3)
    assert [(one.line, one.error.split()[0]) for one in told] == [
        (2, "the"),
        (3, "created_at"),
        (5, "created_at"),
    ]
    assert (files(audit), await count(audit, SegmentEntry)) == ([], lines)
    assert await count(audit, ImportedFile) == 0
    assert await entries(audit, event="audit_imported") == []


@pytest.mark.parametrize("content", [b"", b"\n", b"x\n"])
async def test_what_has_no_row_to_keep_is_not_remembered(audit, content):
    """A file can be tried again once its rows are no longer refused."""
    assert (await take(audit, content, is_partial=True)).rows == 0
    assert await count(audit, ImportedFile) == 0


async def test_the_same_bytes_are_imported_once(audit):
    content = line() * 2
    first = await take(audit, content)
    at = audit.clock.now
    audit.clock.advance(hours=1)
    before = await entries(audit), files(audit)

    again = await take(audit, source(content, name="other.ndjson"))

    assert again == ImportResult(first.sha256, known_since=at)
    assert (await entries(audit), files(audit)) == before
    assert (await take(audit, content, org=audit.world.other)).rows == 2


async def test_of_two_at_once_one_imports_and_the_other_finds_it(audit, worker):
    """Both read and write the file; who commits second finds the digest, and takes its own away."""
    content = line(START - DAY) * 100
    results = await asyncio.gather(
        take(audit, content, wait_s=30), take(audit, content, wait_s=30, services=worker)
    )

    assert sorted(result.rows for result in results) == [0, 100]
    assert len(installs(await entries(audit))) == 100
    assert len(files(audit)) == 1


async def test_who_cannot_have_the_lease_for_the_commit_imports_nothing(audit, worker):
    async with audit.services.lease.hold():
        with pytest.raises(LeaseTaken):
            await take(audit, line(), services=worker)

    assert files(audit) == []
    assert (await take(audit, line(), services=worker)).rows == 1


async def test_a_reader_in_the_middle_keeps_page_ones_snapshot(audit):
    """Also where the imported rows have the same instants; a new query sees all."""
    instants = [START - n * DAY / 4 for n in range(6)]
    await audit.accept(
        [sample_row(at, package_name=f"old{n}") for n, at in enumerate(instants)] * 2
    )
    await audit.seal()
    expected = await audit.pages(limit=2)
    for order in ("desc", "asc"):
        whole = await audit.pages(limit=2, order=order)
        page = await audit.page(limit=2, order=order)

        await take(audit, b"".join(line(at, f"{order}{n}") for at in instants for n in range(3)))

        rest = await audit.pages(limit=2, order=order, cursor=page["next_cursor"])
        assert page["entries"] + rest == whole
    rows = await audit.pages(limit=5)
    assert len(rows) == len(expected) + 2 * 6 * 3 + 2
    assert [(row["created_at"], row["id"]) for row in rows] == sorted(
        ((row["created_at"], row["id"]) for row in rows), reverse=True
    )


async def test_imported_segments_are_merged_like_any_other(audit):
    at = START - DAY
    await audit.accept([sample_row(at, package_name=f"j{n}") for n in range(3)])
    await audit.seal()
    await take(audit, b"".join(line(at, f"a{n}") for n in range(5)))
    await take(audit, b"".join(line(at - timedelta(seconds=n % 2), f"b{n}") for n in range(5)))
    before = await audit.pages(limit=4), await audit.pages(limit=4, order="asc")
    async with audit.services.store.read() as session:
        assert (
            len([one for one in await session.scalars(select(SegmentEntry.seq_base)) if one]) == 2
        )

    merged = await audit.services.compactor.compact_due(everything=True)

    assert [(segment.rows, segment.seq_base) for segment in merged] == [(13, 0)]
    assert (await audit.pages(limit=4), await audit.pages(limit=4, order="asc")) == before
    (row,) = [row for row in before[0] if row["packageName"] == "b3"]
    assert await (await audit.get(f"/{row['id']}")).get_json() == row


async def test_a_damaged_file_imports_nothing_even_in_part(audit):
    """What is missing of it is not known, so what is there is not the file."""
    kind = FileKind(ImportFormat.NDJSON, Compression.GZIP)
    content = gzip.compress(line() * 10_000)[:-5]
    for is_partial in (True, False):
        with pytest.raises(UnreadableFile, match="cut off"):
            await take(audit, source(content, kind), is_partial=is_partial)

    assert (files(audit), await count(audit, ImportedFile)) == ([], 0)


@pytest.mark.parametrize("is_partial", [True, False])
async def test_a_file_of_too_many_rows_imports_none(audit, monkeypatch, is_partial):
    """Compressed, a small file has any number of equal rows."""
    importer = audit.services.importer
    limited = msgspec.structs.replace(importer._settings, import_rows_max=9_999)
    monkeypatch.setattr(importer, "_settings", limited)

    with pytest.raises(UnreadableFile, match="more than 9,999 rows: split it"):
        await take(audit, line() * 10_000, is_partial=is_partial)

    assert (files(audit), await count(audit, ImportedFile)) == ([], 0)
    assert (await take(audit, line() * 9_999)).rows == 9_999


async def test_an_import_that_takes_too_long_ends_without_a_row(audit, in_pieces, monkeypatch):
    now_s = 0.0

    def slow() -> None:
        nonlocal now_s
        now_s += 3 * 3600 + 1

    monkeypatch.setattr("service.audit.importer.time", SimpleNamespace(monotonic=lambda: now_s))
    with pytest.raises(IMPORT_TOO_LONG, match="longer than 21600 s"):
        await take_with(audit, named(4), slow)

    assert (files(audit), await count(audit, ImportedFile)) == ([], 0)


async def test_a_file_that_changes_while_it_is_read_is_refused(audit, monkeypatch):
    """Its digest would name other rows than those that were imported."""
    what = source(line() * 3)
    gather = audit.services.importer._gather

    async def changing(*arguments: Any) -> int:
        refused = await gather(*arguments)
        what.file.seek(0, 2)
        what.file.write(line())
        return refused

    monkeypatch.setattr(type(audit.services.importer), "_gather", lambda _, *a: changing(*a))
    with pytest.raises(FILE_CHANGED):
        await take(audit, what)

    assert (files(audit), await count(audit, ImportedFile)) == ([], 0)


async def test_who_lost_the_lease_commits_nothing(audit, monkeypatch):
    """Another machine has taken over, and may be sweeping."""
    await take(audit, line(name="before"))
    importer = type(audit.services.importer)
    commit = importer._commit

    async def robbed(self: Any, *arguments: Any) -> ImportResult:
        async with audit.services.store.write() as work:
            lease = await work.session.get(Lease, "segments")
            lease.epoch += 1
        return await commit(self, *arguments)

    monkeypatch.setattr(importer, "_commit", robbed)
    with pytest.raises(LeaseLost):
        await take(audit, line())

    assert installs(await entries(audit)) == ["before"]


async def take_with(audit: Any, content: bytes, between: Callable[[], None]) -> ImportResult:
    """Import `content`; after each step, do what is to be done `between`."""
    job = ImportJob(audit.world.acme, source(content), BY_OPERATOR, is_partial=False)
    watch = ImportWatch(on_progress=lambda _: between(), on_refused=lambda _: None)
    return await audit.services.importer.take(job, watch, 0.0)


def named(count: int, at: Any = START) -> bytes:
    """A line for each of `count` packages."""
    return b"".join(line(at, f"p{number}") for number in range(count))


async def test_others_seal_and_merge_while_a_long_import_is_under_way(audit, in_pieces):
    sealed: list[int] = []

    async def work(worker: Services) -> None:
        async with worker.store.write() as work:
            await append(
                work.session,
                audit.world.acme.id,
                [sample_row(START - DAY, package_name="ours")],
                now=work.now,
            )
        sealed.append(len(await worker.sealer.seal_due(everything=True)))
        await worker.compactor.compact_due(everything=True)

    result = await take_with(audit, named(3), by_another_worker(audit, work))

    assert result.rows == 3
    assert len(sealed) >= 3
    assert all(sealed)
    assert sorted(installs(await entries(audit))) == ["p0", "p1", "p2"]
    assert len(await entries(audit, package="ours")) == len(sealed)


async def test_another_machine_that_takes_the_lease_meanwhile_does_not_end_it(audit, in_pieces):
    result = await take_with(audit, named(3), by_hand(audit, TAKE_OVER))

    assert result.rows == 3
    assert sorted(installs(await entries(audit))) == ["p0", "p1", "p2"]


async def test_a_sweep_spares_the_files_of_an_import_however_long_it_takes(audit, in_pieces):
    """Its first file is older than the grace long before its last is written."""
    clock, grace_s = audit.clock, audit.services.settings.orphan_grace_s
    seen: set[Path] = set()

    async def sweep(worker: Services) -> None:
        await worker.garbage_collector.clear_orphans()

    def later() -> None:
        for file in {*files(audit)} - seen:  # written now, by the clock of this test
            os.utime(file, (clock.now.timestamp(),) * 2)
            seen.add(file)
        clock.advance(seconds=grace_s * 0.9)
        by_another_worker(audit, sweep)()

    result = await take_with(audit, named(6), later)

    assert clock.now - START > timedelta(seconds=5 * grace_s)
    assert result.rows == len(seen) == 6
    assert sorted(installs(await entries(audit))) == sorted(f"p{n}" for n in range(6))


async def test_an_import_whose_files_were_swept_imports_nothing(audit, in_pieces):
    """A machine that slept for longer than the grace must not name what is gone."""
    lines = await count(audit, SegmentEntry)

    async def sweep(worker: Services) -> None:
        await worker.garbage_collector.clear_orphans()

    def much_too_late() -> None:
        for file in files(audit):
            os.utime(file, (audit.clock.now.timestamp(),) * 2)
        audit.clock.advance(seconds=audit.services.settings.orphan_grace_s + 1)
        by_another_worker(audit, sweep)()

    with pytest.raises(FileImportOvertaken, match="import the file again"):
        await take_with(audit, named(3), much_too_late)

    assert (files(audit), await count(audit, SegmentEntry)) == ([], lines)
    assert (await take(audit, named(3))).rows == 3


async def test_files_that_go_before_the_commit_are_missed(audit, monkeypatch):
    """A catalog line without its file is a day that cannot be read."""
    lines = await count(audit, SegmentEntry)
    hold = LeaseKeeper.hold

    def removed(self: LeaseKeeper) -> Any:
        for file in files(audit):
            file.unlink()
        return hold(self)

    monkeypatch.setattr(LeaseKeeper, "hold", removed)
    with pytest.raises(FileImportOvertaken):
        await take(audit, line())

    assert (await count(audit, SegmentEntry), await count(audit, ImportedFile)) == (lines, 0)


async def test_an_import_that_took_long_waits_as_long_for_its_commit(audit, in_pieces, monkeypatch):
    """Otherwise a merge that holds the lease for a minute would undo the work of an hour."""
    now_s, asked_at = 0.0, []
    hold = LeaseKeeper.hold

    def slow() -> None:
        nonlocal now_s
        now_s += 30

    def counted(self: LeaseKeeper) -> Any:
        nonlocal now_s
        asked_at.append(now_s)
        now_s += 20
        return hold(self)

    passing = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr("service.audit.importer.time", passing)
    async with audit.services.lease.hold():
        monkeypatch.setattr(LeaseKeeper, "hold", counted)
        with pytest.raises(LeaseTaken):
            await take_with(audit, named(2), slow)

    assert asked_at == [90, 110, 130, 150, 170]
    assert files(audit) == []


async def test_a_cancelled_import_leaves_nothing(audit, monkeypatch):
    """Ctrl-C: what is being written is finished first, and then removed."""
    reached, go_on = threading.Event(), threading.Event()
    rename = Path.rename

    def renamed(self: Path, target: Path) -> Path:
        reached.set()
        go_on.wait(HANG_S)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)
    importing = asyncio.create_task(take(audit, line() * 3))
    await asyncio.to_thread(reached.wait, HANG_S)
    importing.cancel()
    await asyncio.sleep(0.05)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await importing

    assert files(audit) == []
    assert (await take(audit, line() * 3)).rows == 3


async def test_a_worker_that_starts_meanwhile_does_not_sweep_what_is_not_yet_named(
    audit, settings, clock, monkeypatch
):
    """However old the files are: it needs the lease."""
    found: list[Any] = []
    importer = type(audit.services.importer)
    commit = importer._commit

    async def swept(self: Any, *arguments: Any) -> ImportResult:
        other = start_worker(settings, lambda: clock.now + timedelta(days=3_000))
        try:
            await other.garbage_collector.clear_orphans()
        except LeaseTaken as taken:
            found.append(taken)
        await other.close()
        return await commit(self, *arguments)

    monkeypatch.setattr(importer, "_commit", swept)
    await take(audit, line())

    assert len(found) == 1
    assert installs(await entries(audit)) == ["x"]


async def test_naming_many_segments_takes_one_statement(audit):
    """A large file in no order makes thousands; no other can write meanwhile."""
    said: list[str] = []
    writer = audit.services.store._engines.writer.sync_engine
    event.listen(writer, "before_cursor_execute", lambda c, cursor, text, *rest: said.append(text))

    imported = await take(audit, b"".join(line(START - n * DAY) for n in range(25)))

    assert len(imported.days) == 25
    assert len([text for text in said if text.startswith("INSERT INTO segments")]) == 1
