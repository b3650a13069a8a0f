"""The changes of rights that the audit log still tells of, and since when it tells of all."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

import pyarrow as pa

from analytics.model.cursors import Position
from analytics.model.events import Event
from analytics.model.filters import parse_query
from analytics.model.instants import midnight
from service.audit.tenant_log import TenantLog
from service.core.threads import in_thread
from service.trust.reports.rights_history import RIGHTS_EVENTS, RightsChange, RightsHistory

CHANGES_MAX: Final = 100_000
"""Rows that are read at most, newest first."""

_DAY: Final = timedelta(days=1)
_PAGE_ROWS: Final = 1_000
_COLUMNS: Final = ("created_at", "seq", "event", "payload")


@dataclass(frozen=True, slots=True)
class RecordedChanges:
    """The recorded changes; `complete_from` is the instant from which none is missing.

    None: no change was ever dropped or hidden.
    """

    history: RightsHistory
    complete_from: datetime | None


async def load_changes(log: TenantLog) -> RecordedChanges:
    """The changes of rights in `log`, within its retention. Raises StoreFault, QueryTooSlow."""
    changes: list[RightsChange] = []
    bounds = [] if log.floor is None else [log.floor]
    query = parse_query({"event": [*RIGHTS_EVENTS, Event.AUDIT_PRUNED, Event.AUDIT_IMPORTED]})
    after: Position | None = None
    while True:
        rows = await log.page(query, _PAGE_ROWS, after)
        changes += _changes(rows)
        if rows.num_rows < _PAGE_ROWS:
            break
        (last,) = rows.slice(rows.num_rows - 1).select(["created_at", "seq"]).to_pylist()
        if len(changes) >= CHANGES_MAX:
            bounds.append(last["created_at"])
            break
        after = Position(log.snapshot.watermark, last["created_at"], last["seq"])
    return await in_thread(_recorded, changes, bounds)


def _recorded(changes: list[RightsChange], bounds: list[datetime]) -> RecordedChanges:
    own = _without_imported(changes)
    bounds += [
        midnight(date.fromisoformat(change.keys["last_day"])) + _DAY
        for change in own
        if change.event == Event.AUDIT_PRUNED
    ]
    history = RightsHistory(change for change in own if change.event in RIGHTS_EVENTS)
    return RecordedChanges(history, max(bounds, default=None))


def _changes(rows: pa.Table) -> list[RightsChange]:
    return [
        RightsChange(row["created_at"], row["seq"], row["event"], json.loads(row["payload"]))
        for row in rows.select(list(_COLUMNS)).to_pylist()
    ]


def _without_imported(changes: Iterable[RightsChange]) -> list[RightsChange]:
    """The `changes` whose rows this service made, latest first.

    Those of an imported file tell of another service's members and roles, or of what the tables
    here never held. Their seq are those just before the row about the import.
    """
    own: list[RightsChange] = []
    first = math.inf
    for change in sorted(changes, key=lambda change: change.seq, reverse=True):
        if first <= change.seq:
            continue  # of the import that was met last
        first = math.inf
        if change.event == Event.AUDIT_IMPORTED:
            first = change.seq - change.keys["rows"]
        own.append(change)
    return own
