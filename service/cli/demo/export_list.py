"""The demo's list of exports, as told by the rows about them."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.events import Event
from analytics.model.filters import parse_query
from analytics.model.retention import Tier, retention_floor
from service.core.version import service_version
from service.store.tables import ExportEntry


def export_entries(tenant_id: str, tier: Tier, rows: pa.Table) -> Iterator[ExportEntry]:
    """The exports that begin and end within `rows` (AUDIT_SCHEMA), by an organisation's tier."""
    events = pa.array([Event.AUDIT_EXPORTED, Event.AUDIT_EXPORT_FINISHED], pa.string())
    begun: dict[str, dict[str, Any]] = {}
    about = rows.filter(pc.is_in(rows["event"], value_set=events)).sort_by("seq")
    for row in about.to_pylist():
        keys = json.loads(row["payload"])
        if row["event"] == Event.AUDIT_EXPORTED:
            begun[keys["export_id"]] = row
        else:
            yield _entry(tenant_id, tier, begun[keys["export_id"]], row, keys)


def _entry(
    tenant_id: str,
    tier: Tier,
    begun: dict[str, Any],
    ended: dict[str, Any],
    finished: dict[str, Any],
) -> ExportEntry:
    asked = json.loads(begun["payload"])
    floor = retention_floor(tier, begun["created_at"])
    within = parse_query(asked["filters"]).not_before(floor)
    return ExportEntry(
        id=asked["export_id"],
        tenant_id=tenant_id,
        actor=begun["actor"],
        actor_source=begun["actor_source"],
        verdict_source=begun["verdict_source"],
        request_id=begun["request_id"],
        format=asked["format"],
        compression=None,
        is_raw=False,
        filters=asked["filters"],
        since=within.since,
        until=within.until,
        retention_floor=floor,
        watermark=begun["seq"] - 1,
        rows=asked["rows"],
        version=service_version(),
        started_at=begun["created_at"],
        progress_at=ended["created_at"],
        sent_rows=finished["rows"],
        sent_bytes=finished["bytes"],
        ended_at=ended["created_at"],
        is_complete=finished["complete"],
        sha256=finished["sha256"],
    )
