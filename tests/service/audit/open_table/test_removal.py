"""Retire, publish, expire, unlink: no file goes that a snapshot names."""

from datetime import timedelta

import msgspec
import pytest

from service.audit.open_table.places import LakePlaces, TableKey
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.pruning import always_on, prune
from tests.service.audit.test_import import line, take

HOUR = timedelta(hours=1)
GRACE = 7 * HOUR
"""More than `retired_grace_s`."""


async def merge(filled) -> None:
    """Replace two of acme's segments by one, a day after they were sealed."""
    await filled.audit.accept([sample_row(START)])
    await filled.audit.seal()
    await filled.publish()
    filled.audit.clock.now += 48 * HOUR
    assert len(await filled.services.compactor.compact_due(everything=True)) >= 1


async def unlink(filled) -> int:
    return await filled.services.garbage_collector.unlink_retired()


async def test_without_a_table_retired_files_go_after_the_grace(filled):
    await filled.audit.accept([sample_row(START)])
    await filled.audit.seal()
    filled.audit.clock.now += 48 * HOUR
    await filled.services.compactor.compact_due(everything=True)

    filled.audit.clock.now += GRACE
    assert await unlink(filled) == 2


async def test_a_retired_file_is_kept_until_it_is_published_and_expired(filled):
    await merge(filled)

    filled.audit.clock.now += 48 * HOUR
    assert await unlink(filled) == 0, "the current snapshot names it"

    await filled.publish()
    filled.audit.clock.now += GRACE
    await filled.services.publisher.expire()
    assert await unlink(filled) == 0, "an older snapshot does"
    await filled.assert_no_file_is_missing()

    filled.audit.clock.now += 18 * HOUR
    (expired,) = await filled.services.publisher.expire()
    assert expired.snapshots >= 1
    assert await unlink(filled) == 2
    await filled.assert_published()


async def test_snapshots_are_kept_from_when_they_were_superseded(filled):
    """A reader that began with the current one has all that time."""
    await filled.publish()
    filled.audit.clock.now += 48 * HOUR
    await filled.audit.accept([sample_row(START)])
    await filled.audit.seal()
    await filled.publish()

    filled.audit.clock.now += 23 * HOUR
    (kept,) = await filled.services.publisher.expire()
    filled.audit.clock.now += 2 * HOUR
    (expired,) = await filled.services.publisher.expire()

    # Creating a Delta table is a version of its own.
    assert (kept.snapshots, expired.snapshots) == ((0, 1) if filled.format == "iceberg" else (1, 1))
    assert len(await filled.named_files()) == 1
    await filled.assert_published()


async def test_pruned_days_leave_the_table_and_then_the_disk(filled):
    await filled.publish()
    await always_on(filled.audit, "free")
    await prune(filled.audit)

    filled.audit.clock.now += HOUR
    published = await filled.publish()
    assert published.removed == 1
    await filled.assert_published()

    filled.audit.clock.now += 25 * HOUR
    await filled.services.publisher.expire()
    assert await unlink(filled) == 1
    await filled.assert_published()


async def test_a_segment_retired_before_it_was_published_is_fenced_first(filled):
    """A publisher that lost its lease may still name it, until one more snapshot refuses that."""
    await always_on(filled.audit, "free")
    await prune(filled.audit)
    filled.audit.clock.now += HOUR
    first = await filled.publish()
    await always_on(filled.audit, "enterprise")
    await take(filled.audit, line(START - 20 * 24 * HOUR))
    await always_on(filled.audit, "free")
    await prune(filled.audit)
    filled.audit.clock.now += 48 * HOUR
    await filled.services.publisher.expire()
    assert await unlink(filled) == 1, "what was retired before the publication"

    second = await filled.publish()

    # The row about the pruning is still in the journal, so that nothing else has changed.
    assert (second.added, second.removed) == (0, 0)
    assert second.complete_through_seq == first.complete_through_seq
    assert second.is_new_snapshot
    filled.audit.clock.now += 48 * HOUR
    assert not (await filled.publish()).is_new_snapshot
    assert await unlink(filled) == 1
    await filled.assert_published()


async def test_a_dropped_table_holds_nothing(filled):
    await merge(filled)
    filled.audit.clock.now += 48 * HOUR
    assert await unlink(filled) == 0

    dropped = await filled.services.publisher.drop([filled.key()])

    assert dropped == [filled.key()]
    assert await unlink(filled) == 2
    assert await filled.services.publisher.publish([]) == []


async def test_a_table_that_cannot_be_read_keeps_every_file(filled, monkeypatch):
    """It may name any of them. Here the library of its format was uninstalled."""
    await merge(filled)
    filled.audit.clock.now += HOUR
    await filled.publish()
    filled.audit.clock.now += 96 * HOUR
    await filled.services.publisher.expire()

    def uninstalled(places: LakePlaces, key: TableKey) -> None:
        raise ModuleNotFoundError("No module named 'pyiceberg'")

    monkeypatch.setattr(LakePlaces, "_table", uninstalled)
    with pytest.raises(Exception, match=r"pip install .* -r requirements/lake\.txt"):
        await unlink(filled)
    monkeypatch.undo()

    assert await unlink(filled) == 2


async def test_expiry_leaves_no_metadata_behind(filled):
    """Manifests and versions that no snapshot uses go after the grace of readers."""
    if filled.format != "iceberg":
        pytest.skip("expiring a Delta table removes its log files")
    folder = filled.services.settings.lake_dir / "iceberg" / "audit"
    for _ in range(3):
        await filled.audit.accept([sample_row(START)])
        await filled.audit.seal()
        await filled.publish()
        filled.audit.clock.now += HOUR

    # Files have the times of this machine, which are behind those of the test's clock by then.
    filled.audit.clock.now += 365 * 24 * HOUR
    (expired,) = await filled.services.publisher.expire()

    assert (expired.snapshots, expired.metadata_files) == (2, 2 + 3 + 4)
    assert len(list((folder / "versions").iterdir())) == 1
    assert {path.suffix for path in (folder / "metadata").iterdir()} == {".json", ".text", ".avro"}
    await filled.assert_published()


async def test_the_job_does_nothing_before_there_is_a_table(filled):
    before = filled.services.publisher._settings
    assert before.lake_formats == ()

    await filled.services.publisher.publish_due()
    await filled.services.publisher.expire_due()

    assert not before.lake_dir.exists()


async def test_the_job_keeps_published_tables_up_to_date(filled):
    await filled.publish()
    await filled.audit.accept([sample_row(START)])
    await filled.audit.seal()

    await filled.services.publisher.publish_due()

    await filled.assert_published()


async def test_the_job_creates_the_tables_of_the_settings(filled):
    """A service can then be told to publish without a command."""
    publisher = filled.services.publisher
    publisher._settings = msgspec.structs.replace(
        publisher._settings, lake_formats=(filled.format,), lake_per_tenant=False
    )

    await publisher.publish_due()

    await filled.assert_published()
