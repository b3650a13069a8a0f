"""The exports pages: who exported what, and one export with its receipt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from analytics.model.filters import FILTER_COLUMNS
from service.audit.export_entries import ExportState, get_export, list_exports, state_of
from service.audit.export_receipts import RECEIPT_SUFFIX, entry_file_name
from service.audit.services import AuditServices
from service.pages.chips import active_chips, named_by
from service.pages.display_names import Names, Person, find_names
from service.pages.state import parse_state
from service.store.tables import ExportEntry, Organisation

ROWS: Final = 50
"""Exports on a page."""


@dataclass(frozen=True, slots=True)
class ShownExport:
    """One export. `filters` are words, the window not among them."""

    entry: ExportEntry
    state: ExportState
    by: Person
    filters: list[str]
    file_name: str

    @property
    def receipt_name(self) -> str:
        """The name of its receipt's file."""
        return self.file_name + RECEIPT_SUFFIX

    @property
    def order(self) -> str:
        """Which end of time comes first in the file."""
        return "oldest" if self.entry.filters.get("order") == ["asc"] else "newest"


@dataclass(frozen=True, slots=True)
class ExportsView:
    """The template's data. `is_first` means that no cursor was given."""

    rows: list[ShownExport]
    next_cursor: str | None
    is_first: bool


async def load_exports_view(
    services: AuditServices, org: Organisation, cursor: str | None
) -> ExportsView:
    """A page of the organisation's exports. Raises INVALID_CURSOR."""
    async with services.store.read() as session:
        entries, next_cursor = await list_exports(session, services.settings, org.id, ROWS, cursor)
        named = {entry.actor for entry in entries}.union(
            *(named_by(entry.filters) for entry in entries)
        )
        names = await find_names(session, org.id, actors=named)
    now = services.clock()
    rows = [_shown(org, entry, state_of(entry, now), names) for entry in entries]
    return ExportsView(rows, next_cursor, is_first=cursor is None)


async def load_export_view(
    services: AuditServices, org: Organisation, export_id: str
) -> ShownExport:
    """One of the organisation's exports. Raises EXPORT_NOT_FOUND."""
    async with services.store.read() as session:
        entry = await get_export(session, org.id, export_id)
        names = await find_names(session, org.id, actors={entry.actor, *named_by(entry.filters)})
    return _shown(org, entry, state_of(entry, services.clock()), names)


def filter_words(filters: dict[str, list[str]], names: Names) -> list[str]:
    """The filters in words, without window and order; nothing if there are none."""
    columns: dict[str, Sequence[str]] = {
        name: filters[name] for name in FILTER_COLUMNS if name in filters
    }
    return [
        f"{chip.label} {chip.relation} {chip.value}"
        for chip in active_chips(parse_state(columns), names.actors)
    ]


def _shown(org: Organisation, entry: ExportEntry, state: ExportState, names: Names) -> ShownExport:
    return ShownExport(
        entry,
        state,
        names.person(entry.actor),
        filter_words(entry.filters, names),
        entry_file_name(org.slug, entry),
    )
