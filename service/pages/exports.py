"""The pages about exports: who exported what, its receipt, and what an export would hold."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct
from quart import Blueprint, redirect, url_for
from quart.typing import ResponseReturnValue

from analytics.evidence.receipts import RECEIPT_SUFFIX
from analytics.export.csv_json import GUARDED
from analytics.model.filters import FILTER_COLUMNS, Condition, Query, Term, parse_query
from service.access.roles import Capability
from service.audit import saved_searches
from service.audit.export_entries import (
    find_latest_export,
    get_export,
    list_exports,
    state_of,
)
from service.audit.export_receipts import entry_file_name
from service.audit.refusals import QUERY_REFUSALS
from service.audit.tenant_log import TenantLog, open_log
from service.pages.display_names import Names, active_chips, find_names, named_by
from service.pages.page import Page, PageCall, View, page_get
from service.pages.state import PageState, parse_state
from service.store.tables import ExportEntry, Organisation
from service.web.models import ParsedQuery, Request
from service.web.responses import json_answer

blueprint = Blueprint("dashboard_exports", __name__, url_prefix="/admin/ui/orgs/<slug>/exports")

ROWS: Final = 50
"""Exports on a page."""

LATEST: Final = "latest"


class ExportsPageQuery(Request):
    """A part of the list."""

    cursor: str | None = None


@Page(
    blueprint,
    "",
    "evidence/exports.html",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
    query=ExportsPageQuery,
)
async def exports_page(call: PageCall, query: ExportsPageQuery) -> View:
    """A page of the organisation's exports, newest first. Raises INVALID_CURSOR."""
    async with call.read() as session:
        settings = call.services.settings
        entries, next_cursor = await list_exports(
            session, settings, call.org.id, ROWS, query.cursor
        )
        named = {entry.actor for entry in entries}.union(
            *(named_by(entry.filters) for entry in entries)
        )
        names = await find_names(session, call.org.id, actors=named)
    now = call.services.clock()
    return {
        "rows": [_row(call.org, entry, now, names) for entry in entries],
        "next_cursor": next_cursor,
        "is_first": query.cursor is None,
    }


_NAMES_GUARDED: Final = Condition(
    "package_name",
    tuple(
        Term(start, is_prefix=True, is_negated=False) for start in GUARDED if start.isprintable()
    ),
)
"""Package names that CSV's formula guard changes."""


@Page(
    blueprint,
    "/new",
    "evidence/offer.html",
    needs=Capability.AUDIT_EXPORT,
    query=ParsedQuery(Struct, parse_state, checks_names=True),
)
async def offer_page(call: PageCall, state: PageState) -> View:
    """What an export with the filters of an audit page would hold now, with links that make it."""
    services, org, now = call.services, call.org, call.services.clock()
    state.check_window()
    filters = state.as_of(now).filters
    query = parse_query(filters)
    log = await open_log(services.store, services.audit.lake, org, now)
    within = log.within(query)
    time_max_s = services.settings.query_max_s
    async with call.read() as session:
        names = await find_names(session, org.id, actors=named_by(filters))
    offer = {
        "query": urlencode(filters, doseq=True),
        "filters": filter_words(filters, names),
        "since": within.since,
        "until": within.until,
        "floor": log.floor,
        "cuts_off": _cuts_off(org, query, log.floor),
        # How many there are, and how many of them CSV's formula guard changes; None: not counted.
        "rows": await _count(log, query, time_max_s),
        "guarded": await count_guarded(log, query, time_max_s),
    }
    return {"offer": offer}


@Page(
    blueprint,
    "/<export_id>",
    "evidence/export.html",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
)
async def export_page(call: PageCall, export_id: str) -> View | ResponseReturnValue:
    """One export, its receipt, and whether a file is the one that was exported.

    `latest` is the caller's latest, for links that are there before it; the list, if there is none.
    """
    org = call.org
    async with call.read() as session:
        if export_id == LATEST:
            export_id = await find_latest_export(session, org.id, call.by.actor) or export_id
        if export_id == LATEST:
            return redirect(url_for("dashboard_exports.exports_page", slug=org.slug), 303)
        entry = await get_export(session, org.id, export_id)
        names = await find_names(session, org.id, actors={entry.actor, *named_by(entry.filters)})
    return {"row": _row(org, entry, call.services.clock(), names)}


@page_get(
    blueprint,
    "/<export_id>/progress",
    needs=Capability.AUDIT_READ,
    alternative=Capability.AUDIT_EXPORT,
    keeps_alive=False,
)
async def export_progress(call: PageCall, export_id: str) -> ResponseReturnValue:
    """How far an export is, for its page, which asks every few seconds."""
    async with call.read() as session:
        entry = await get_export(session, call.org.id, export_id)
    state = state_of(entry, call.services.clock())
    return json_answer({"state": state, "rows": entry.rows, "sent_rows": entry.sent_rows})


def filter_words(filters: dict[str, list[str]], names: Names) -> list[str]:
    """The filters in words, without window and order; nothing if there are none.

    Of a statement's result, the statement.
    """
    columns: dict[str, Sequence[str]] = {
        name: filters[name] for name in FILTER_COLUMNS if name in filters
    }
    chips = active_chips(parse_state(columns), names.actors)
    words = [f"{chip.label} {chip.relation} {chip.value}" for chip in chips]
    return [*filters.get(saved_searches.SQL, ()), *words]


def _row(org: Organisation, entry: ExportEntry, now: datetime, names: Names) -> View:
    """One export, with which end of time comes first in its file."""
    file_name = entry_file_name(org.slug, entry)
    return {
        "entry": entry,
        "state": state_of(entry, now),
        "by": names.person(entry.actor),
        "filters": filter_words(entry.filters, names),
        "order": "oldest" if entry.filters.get("order") == ["asc"] else "newest",
        "file_name": file_name,
        "receipt_name": file_name + RECEIPT_SUFFIX,
    }


def _cuts_off(org: Organisation, query: Query, floor: datetime | None) -> bool:
    """Whether rows that the filters match may be hidden by the retention floor."""
    asked_from = org.created_at if query.since is None else query.since
    return floor is not None and asked_from < floor


async def count_guarded(log: TenantLog, query: Query, time_max_s: float) -> int | None:
    """How many rows have a package name that CSV's formula guard changes; None if that is slow."""
    guarded = replace(query, conditions=(*query.conditions, _NAMES_GUARDED))
    return await _count(log, guarded, time_max_s)


async def _count(log: TenantLog, query: Query, time_max_s: float) -> int | None:
    try:
        return await log.count(query, time_max_s)
    except QUERY_REFUSALS:
        return None
