"""Damaged files and batches: each damage is harmless or named, and takes nothing else with it.

Bits are flipped, files cut and swapped, in segments, indexes, copies, objects and journal batches,
and in exported files and their receipts.
After each damage pages, summaries and exports are what they were before, or a fault that names what
is damaged; all that does not need it is answered. Half of the damages meet a process that has read
the files before, the others one that has not.
"""

import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update
from structlog.testing import capture_logs

from analytics.cache.lru import ByteCache
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.errors import StoreFault
from analytics.model.filters import parse_query
from analytics.storage.segment_metadata import Segment
from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.composition import EXTENSION
from service.audit.backup.create import take_backup
from service.audit.export_receipts import Receipt, compare_file, read_receipt
from service.audit.integrity_check import Check
from service.audit.upload import upload_segments
from service.core.errors import Invalid
from service.store.catalog import list_live_segments
from service.store.snapshots import snapshot
from service.store.tables import JournalEntry
from service.store.transaction import within
from tests.analytics.samples import sample_row
from tests.budgets import budget, sample
from tests.conftest import START, running_world, settings_over
from tests.polling import HANG_S
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.test_s3 import new_node

SEED = 20261124
SEALED_DAYS = (2, 3)
JOURNAL_DAYS = (1, 4)
ROWS = 12
UNTIL = (START - timedelta(hours=12)).isoformat()
"""No row that the test itself causes, such as those about exports, is older."""

NAMES = ("acme", "other")
PARTS = 10
DAMAGES = 100
"""In each part, of a folder and of a bucket."""


@pytest.fixture(params=["folder", "bucket"])
def place(request):
    """The bucket, or None for a folder."""
    return request.getfixturevalue("bucket") if request.param == "bucket" else None


@pytest.fixture
async def filled(place, tmp_path, clock) -> AsyncIterator[AuditWorld]:
    """Two segments on each of two days and two batches on two others, of two organisations."""
    settings = settings_over(tmp_path) if place is None else place.settings(settings_over(tmp_path))
    async with running_world(settings, clock, has_sealer=False) as world:
        audit = AuditWorld(world)
        for days, is_sealed in ((SEALED_DAYS, True), (JOURNAL_DAYS, False)):
            for part in range(2):
                for org in (world.acme, world.other):
                    for day in days:
                        await audit.accept(rows_of(org.slug, day, part), org)
                if is_sealed:
                    await audit.seal()
        yield audit


def rows_of(slug: str, days_ago: int, part: int) -> list[Any]:
    noon = START.replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=days_ago)
    return [
        sample_row(
            noon + timedelta(minutes=7 * number + part),
            package_name=f"package-{(number + part) % 3}",
            version=f"1.{part}.{number}",
            actor=f"{slug}-{number % 2}",
        )
        for number in range(ROWS)
    ]


def day_of(days_ago: int) -> date:
    return (START - timedelta(days=days_ago)).date()


class Named(str):
    """What a fault said."""


async def asked(audit: AuditWorld, path: str, slug: str, **query: str) -> Any:
    """The answer of the API; or what the log says of the fault."""
    with capture_logs() as logs:
        response = await audit.get(path, slug=slug, **query)
    if response.status_code == 503:
        return Named(" ".join(str(line.get("reason")) for line in logs))
    assert response.status_code == 200, await response.get_data(as_text=True)
    answer = await response.get_json()
    answer.pop("next_cursor", None)
    return answer


async def exported(audit: AuditWorld, slug: str) -> Any:
    """The bytes of an export; or what the fault said that broke it off."""
    org = {"acme": audit.world.acme, "other": audit.world.other}[slug]
    async with audit.services.store.read() as session:
        log = await within(session, snapshot, org.id, ByteCache(2**20))
    query, form = parse_query({"until": [UNTIL]}), FileEncoding(ExportFormat.NDJSON)
    try:
        pieces = audit.services.lake.queries.export(log, query, form, time.monotonic() + HANG_S)
        return b"".join([piece.content async for piece in pieces])
    except StoreFault as fault:
        return Named(fault)


async def answers(audit: AuditWorld) -> dict[tuple[str, str, date | None], Any]:
    """What is said of each organisation, and of each of its days."""
    said: dict[tuple[str, str, date | None], Any] = {}
    for slug in NAMES:
        said["newest", slug, None] = await asked(audit, "", slug, until=UNTIL, limit="5")
        said["package", slug, None] = await asked(
            audit, "", slug, until=UNTIL, package="package-1", limit="100"
        )
        said["summary", slug, None] = await asked(
            audit, "/summary", slug, until=UNTIL, since=day_of(9).isoformat(), bucket="day"
        )
        said["export", slug, None] = await exported(audit, slug)
        for days_ago in (*SEALED_DAYS, *JOURNAL_DAYS):
            day = day_of(days_ago)
            bounds = {
                "since": f"{day.isoformat()}T00:00:00Z",
                "until": f"{(day + timedelta(days=1)).isoformat()}T00:00:00Z",
            }
            said["day", slug, day] = await asked(audit, "", slug, limit="100", **bounds)
    return said


@dataclass(frozen=True)
class Part:
    """Stored bytes of an organisation's day; `name` is what a fault must say of them."""

    slug: str
    day: date
    name: str
    place: Any


def flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def overwritten(content: bytes, chance: random.Random) -> bytes:
    """A sector with the bytes of another one."""
    at, other = chance.randrange(len(content)), chance.randrange(len(content))
    size = min(512, len(content) - max(at, other))
    return content[:at] + content[other : other + size] + content[at + size :]


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (flipped, flipped, cut, overwritten)


class Files:
    """Segments and indexes in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def parts(self, slugs: dict[str, str], segments: list[Segment]) -> list[Part]:
        return [
            Part(slugs[segment.tenant_id], segment.day, segment.segment_id, path)
            for segment in segments
            for path in (segment.path(self._root), segment.index_path(self._root))
            if path.exists()
        ]

    async def read(self, part: Part) -> bytes:
        return part.place.read_bytes()

    async def write(self, part: Part, content: bytes) -> None:
        mode = part.place.stat().st_mode
        part.place.chmod(0o600)
        part.place.write_bytes(content)
        part.place.chmod(mode)


class Objects:
    """Segments and indexes in a bucket."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket

    def parts(self, slugs: dict[str, str], segments: list[Segment]) -> list[Part]:
        return [
            Part(
                slugs[segment.tenant_id],
                segment.day,
                segment.segment_id,
                path.relative_to("/").as_posix(),
            )
            for segment in segments
            for path in (segment.path(Path("/")), segment.index_path(Path("/")))
        ]

    async def read(self, part: Part) -> bytes:
        return self._bucket.content(part.place)

    async def write(self, part: Part, content: bytes) -> None:
        self._bucket.write(part.place, content)


class Journal:
    """The batches in the database."""

    def __init__(self, audit: AuditWorld) -> None:
        self._audit = audit

    async def parts(self, slugs: dict[str, str]) -> list[Part]:
        days = [day_of(days_ago) for days_ago in JOURNAL_DAYS]
        async with self._audit.services.store.read() as session:
            lines = await session.execute(
                select(JournalEntry.tenant_id, JournalEntry.day, JournalEntry.first_seq).where(
                    JournalEntry.day.in_(days)
                )
            )
            return [
                Part(slugs[tenant], day, f"{tenant} on {day}, seq {seq} to", seq)
                for tenant, day, seq in lines
            ]

    async def read(self, part: Part) -> bytes:
        async with self._audit.services.store.read() as session:
            entry = await session.get_one(JournalEntry, part.place)
            return entry.data

    async def write(self, part: Part, content: bytes) -> None:
        async with self._audit.services.store.write() as work:
            await work.session.execute(
                update(JournalEntry)
                .where(JournalEntry.first_seq == part.place)
                .values(data=content)
            )


@asynccontextmanager
async def damaged(
    stored: Files | Objects | Journal, parts: list[Part], chance: random.Random
) -> AsyncIterator[list[Part]]:
    """One of `parts`, or two that were swapped, damaged within the block."""
    part = chance.choice(parts)
    content = {part: await stored.read(part)}
    if chance.random() < 0.25:
        # Alike: an index in place of a segment would be too easy.
        kind = Path(str(part.place)).suffix
        alike = [one for one in parts if one != part and Path(str(one.place)).suffix == kind]
        other = chance.choice(alike)
        content[other] = await stored.read(other)
        changed = {part: content[other], other: content[part]}
    else:
        changed = {part: chance.choice(CHANGES)(content[part], chance)}
    for one, bytes_ in changed.items():
        await stored.write(one, bytes_)
    try:
        yield list(changed)
    finally:
        for one, bytes_ in content.items():
            await stored.write(one, bytes_)


@asynccontextmanager
async def another_process(audit: AuditWorld) -> AsyncIterator[AuditWorld]:
    """One that has read nothing yet, over the same data dir."""
    app = create_app(audit.services.settings, audit.clock, jobs=seal_jobs)
    services = app.extensions[EXTENSION]
    try:
        yield AuditWorld(replace(audit.world, app=app, client=app.test_client(), services=services))
    finally:
        await services.close()


def judge(right: dict[Any, Any], said: dict[Any, Any], parts: list[Part]) -> bool:
    """Whether anything was named; fails for another value, or a fault of what is whole."""
    touched = {(part.slug, part.day) for part in parts}
    slugs = {part.slug for part in parts}
    is_named = False
    for key, answer in said.items():
        _, slug, day = key
        if not isinstance(answer, Named):
            assert answer == right[key], f"{key}: another value"
            continue
        is_named = True
        assert any(part.name in answer for part in parts), f"{key}: {answer}"
        assert slug in slugs, f"{key}: a fault of another organisation"
        assert day is None or (slug, day) in touched, f"{key}: a fault of another day"
    return is_named


async def live(audit: AuditWorld) -> list[Segment]:
    days = {day_of(days_ago) for days_ago in SEALED_DAYS}
    async with audit.services.store.read() as session:
        return [one for one in await list_live_segments(session) if one.day in days]


@sample(2)  # one of a folder, and one of a bucket
@pytest.mark.parametrize("part", range(PARTS))
async def test_each_damage_is_harmless_or_named(filled, place, tmp_path, part):
    """Seeded: the number of the damage is in the failure."""
    slugs = {org.id: org.slug for org in (filled.world.acme, filled.world.other)}
    segments = await live(filled)
    files, journal = Files(filled.services.settings.audit_dir), Journal(filled)
    objects = None if place is None else Objects(place)
    right = await answers(filled)
    assert not any(isinstance(answer, Named) for answer in right.values())
    named = 0
    first = part * DAMAGES
    for number in range(first, first + budget(10, DAMAGES)):
        chance = random.Random(SEED + number)
        is_new = chance.random() < 0.5
        if chance.random() < 0.25:
            is_new = True  # a process keeps the batches that it has read
            stored: Any = journal
            parts = await journal.parts(slugs)
        elif objects is not None and is_new:
            stored, parts = objects, objects.parts(slugs, segments)
        else:
            stored, parts = files, files.parts(slugs, segments)
        async with damaged(stored, parts, chance) as hurt:
            if stored is objects:
                reader = new_node(filled, tmp_path / f"node-{number}")
            elif is_new:
                reader = another_process(filled)
            else:
                reader = None
            try:
                if reader is None:
                    named += judge(right, await answers(filled), hurt)
                else:
                    async with reader as process:
                        named += judge(right, await answers(process), hurt)
            except AssertionError as error:
                raise AssertionError(f"damage {number} of {hurt}: {error}") from error

    assert named > 0
    assert await answers(filled) == right
    report = await Check(
        filled.services.store, filled.services.lake, None, lambda done, total: None
    ).run()
    assert report.findings == []


@pytest.fixture
async def evidence(tmp_path, filled) -> list[tuple[Path, Path]]:
    """Files of exports of both organisations, in several forms, each with its receipt."""
    kept = []
    for slug in NAMES:
        for form in ({"format": "csv"}, {"format": "ndjson", "compress": "gzip"}):
            sent = await filled.world.client.get(
                f"/api/v1/admin/orgs/{slug}/audit/export",
                headers=filled.world.admin,
                query_string={"until": UNTIL, **form},
            )
            file = tmp_path / f"export-{len(kept)}"
            file.write_bytes(await sent.get_data())
            await filled.services.exporter.drain()
            receipt = await filled.world.client.get(
                f"/api/v1/admin/orgs/{slug}/exports/{sent.headers['x-export-id']}/receipt",
                headers=filled.world.admin,
            )
            assert receipt.status_code == 200
            (beside := file.with_suffix(".json")).write_bytes(await receipt.get_data())
            kept.append((file, beside))
    return kept


def verified(file: Path, receipt: Path) -> Receipt | Named:
    """What the receipt says of the file; or why they do not fit."""
    try:
        read = read_receipt(receipt)
    except Invalid as refusal:
        return Named(refusal.text)
    if differing := compare_file(file, read):
        return Named(", ".join(difference.what for difference in differing))
    return msgspec.structs.replace(read, digest=msgspec.UNSET)


@pytest.mark.parametrize("place", ["folder"], indirect=True)
async def test_each_damage_of_an_export_or_its_receipt_is_harmless_or_named(evidence):
    right = {receipt: verified(file, receipt) for file, receipt in evidence}
    assert not any(isinstance(said, Named) for said in right.values())
    outcomes = Counter[str]()
    for number in range(budget(100, 1_000)):
        chance = random.Random(SEED + number)
        file, receipt = chance.choice(evidence)
        victim = receipt if chance.random() < 0.7 else file
        content = victim.read_bytes()
        if chance.random() < 0.2:
            others = [pair for pair in evidence if receipt not in pair]
            other = chance.choice(others)[0 if victim is file else 1]
            victim.write_bytes(other.read_bytes())
        else:
            victim.write_bytes(chance.choice(CHANGES)(content, chance))
        said = verified(file, receipt)
        victim.write_bytes(content)
        if isinstance(said, Named):
            outcomes["named"] += 1
        else:
            assert said == right[receipt], f"damage {number} of {victim}: another statement"
            outcomes["harmless"] += 1

    assert outcomes["named"] > outcomes["harmless"]


async def try_operations(audit: AuditWorld, folder: Path) -> dict[str, str]:
    """What each operation that rewrites or copies segments says of those it could not use."""
    services = audit.services
    said = {}
    for name, work in (
        ("compact", lambda: services.compactor.compact_due(everything=True)),
        ("reindex", lambda: services.indexer.rebuild_all(None, lambda done, total: None)),
        ("backup", lambda: backed_up(audit, folder / "backup")),
    ):
        with capture_logs() as logs:
            try:
                said[name] = str(await work())
            except StoreFault as fault:
                said[name] = str(fault)
        said[name] += " ".join(str(line) for line in logs if line["log_level"] == "error")
    return said


async def backed_up(audit: AuditWorld, target: Path) -> str:
    """The segments that a backup had to leave out."""
    manifest = await take_backup(
        audit.services, target, lambda done, total: None, is_linked=False, has_secrets=False
    )
    return " ".join(segment.path for segment in manifest.missing)


@sample(3)
@pytest.mark.parametrize("change", [flipped, cut, overwritten], ids=lambda change: change.__name__)
async def test_no_operation_makes_damage_permanent(filled, place, tmp_path, change):
    chance = random.Random(SEED)
    root = filled.services.settings.audit_dir
    segments = await live(filled)
    right = await answers(filled)
    victim = chance.choice([one for one in segments if one.tenant_id == filled.world.acme.id])
    path = victim.path(root)
    stored: Any = Files(root)
    part = Part("acme", victim.day, victim.segment_id, path)
    if place is not None:
        # A copy would be fetched again: the object itself is damaged, and no copy is left.
        path.unlink()
        stored = Objects(place)
        part = replace(part, place=path.relative_to(root).as_posix())
    content = await stored.read(part)
    await stored.write(part, change(content, chance))

    said = await try_operations(filled, tmp_path)

    assert all(victim.segment_id in words for words in said.values()), said
    left = await live(filled)
    assert victim.segment_id in {one.segment_id for one in left}
    # Each other day is merged.
    assert len(left) == len(segments) - 3
    await stored.write(part, content)
    assert await answers(filled) == right
    assert len(await filled.services.compactor.compact_due(everything=True)) == 1
    assert await answers(filled) == right


@pytest.mark.parametrize("place", ["bucket"], indirect=True)
async def test_a_damaged_file_is_not_uploaded(filled, place):
    victim = (await live(filled))[0]
    root = filled.services.settings.audit_dir
    path = victim.path(root)
    path.chmod(0o600)  # as a file that is no copy
    content = path.read_bytes()
    place.objects().delete([path.relative_to(root).as_posix()])
    path.write_bytes(flipped(content, random.Random(SEED)))
    uploads = filled.services.store, filled.services.lake, lambda done, total: None

    uploaded, (fault,) = await upload_segments(*uploads)

    assert uploaded == 0
    assert victim.segment_id in fault
    path.write_bytes(content)
    assert await upload_segments(*uploads) == (1, [])
