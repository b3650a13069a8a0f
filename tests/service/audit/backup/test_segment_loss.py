"""Giving up a segment: its day can be read again, and all who read it are told what is missing."""

from datetime import timedelta

import pytest

from analytics.model.instants import utc_day
from analytics.storage.integrity import FaultKind
from analytics.storage.segment_metadata import Segment
from service.audit.backup.refusals import SEGMENT_NOT_DAMAGED, UNKNOWN_SEGMENT
from service.audit.backup.segment_restore import give_up
from service.audit.integrity_check import Check
from service.audit.stats import verification_data
from service.store.catalog import list_live_segments
from service.store.lost_segments import list_losses
from tests.conftest import BY_OPERATOR, START, settings_over
from tests.service.audit.conftest import audit
from tests.service.audit.test_s3 import filled
from tests.service.pages.page import open_page

__all__ = ["audit", "filled"]  # fixtures

EVENT = "audit_segment_lost"
DAY = utc_day(START - timedelta(days=1))


@pytest.fixture(params=["folder", "bucket"])
def settings(request, tmp_path):
    """Segments in a folder, and in a bucket."""
    if request.param == "folder":
        return settings_over(tmp_path / "own")
    return request.getfixturevalue("bucket").settings(settings_over(tmp_path / "own"))


@pytest.fixture
async def lost(filled, request) -> Segment:
    """The segment of DAY, whose file is gone."""
    async with filled.services.store.read() as session:
        segments = await list_live_segments(session, filled.world.acme.id)
    (segment,) = [each for each in segments if each.day == DAY]
    root = filled.services.settings.audit_dir
    segment.path(root).unlink()
    if filled.services.settings.segments_url:
        objects = request.getfixturevalue("bucket").objects()
        objects.delete([segment.path(root).relative_to(root).as_posix()])
    return segment


async def verification(filled) -> dict:
    async with filled.services.store.read() as session:
        return await verification_data(session, START)


async def check(filled):
    services = filled.services
    return await Check(services.store, services.lake, None, lambda done, total: None).run()


async def test_what_is_given_up_is_said_wherever_the_day_is_read(filled, lost):
    assert (await filled.export(format="ndjson")).status_code == 503
    await give_up(filled.services, lost, BY_OPERATOR)

    export = await filled.export(format="ndjson")
    assert (export.status_code, export.headers["x-lost-rows"]) == (200, str(lost.rows))
    sent = (await export.get_data()).splitlines()
    assert len(sent) == int(export.headers["x-row-count"])

    page = await open_page(filled.world)
    said = page.one("div", role="alert").text
    assert f"{DAY}: {lost.rows} rows (seq {lost.min_seq} to {lost.max_seq}), given up at" in said

    (shown,) = (await verification(filled))["lost"]
    assert (shown["org"], shown["day"], shown["segment"]) == ("acme", str(DAY), lost.segment_id)
    assert (shown["rows"], shown["damage"]) == (lost.rows, "missing_file")
    assert (await verification(filled))["damaged"] == []

    report = await check(filled)
    assert report.findings == []
    (note,) = [note for note in report.notes if note.kind is FaultKind.LOST_ROWS]
    assert (note.day, note.segment) == (DAY, lost.segment_id)
    assert f"{lost.rows} rows" in note.detail

    (row,) = (await filled.page(event=EVENT))["entries"]
    assert row["payload"] == {
        "segment_id": lost.segment_id,
        "day": str(DAY),
        "rows": lost.rows,
        "first_seq": lost.min_seq,
        "last_seq": lost.max_seq,
        "damage": "missing_file",
    }


async def test_other_days_and_organisations_lost_nothing(filled, lost):
    await give_up(filled.services, lost, BY_OPERATOR)
    end = f"{DAY.isoformat()}T00:00:00Z"
    begin = f"{utc_day(START).isoformat()}T00:00:00Z"

    for bounds in ({"until": end}, {"since": begin}):
        export = await filled.export(format="csv", **bounds)
        assert export.headers["x-lost-rows"] == "0"
    assert "are lost" in (await open_page(filled.world)).html
    assert "are lost" not in (await open_page(filled.world, f"?since={begin}")).html
    other = await filled.world.client.get(
        "/admin/ui/orgs/other/audit/export?format=csv", headers=filled.world.admin
    )
    assert other.headers["x-lost-rows"] == "0"


async def test_the_rest_of_the_day_is_merged_and_pruned_as_usual(filled, lost):
    """Past retention the loss is no longer reported: its rows would be gone anyway."""
    await give_up(filled.services, lost, BY_OPERATOR)
    await filled.services.compactor.compact_due(everything=True)
    await filled.services.garbage_collector.unlink_retired()
    assert len((await verification(filled))["lost"]) == 1

    filled.clock.advance(seconds=timedelta(days=400).total_seconds())
    await filled.services.pruner.prune(BY_OPERATOR, is_clock_accepted=True)

    async with filled.services.store.read() as session:
        assert await list_losses(session) == []


async def test_a_whole_segment_is_not_given_up(filled):
    async with filled.services.store.read() as session:
        segment, *_ = await list_live_segments(session, filled.world.acme.id)

    with pytest.raises(SEGMENT_NOT_DAMAGED):
        await give_up(filled.services, segment, BY_OPERATOR)

    assert (await verification(filled))["lost"] == []


async def test_a_segment_is_given_up_once(filled, lost):
    await give_up(filled.services, lost, BY_OPERATOR)

    with pytest.raises(UNKNOWN_SEGMENT):
        await give_up(filled.services, lost, BY_OPERATOR)

    assert len((await filled.page(event=EVENT))["entries"]) == 1
