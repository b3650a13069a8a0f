"""An audit row as pages show it: its entry in words, with links to similar rows."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from analytics.export.wire import json_objects
from analytics.model.columns import Column, Section
from analytics.model.envelopes import ENVELOPES
from analytics.model.events import DEFAULT_ICON, Event
from analytics.model.filters import parse_query
from analytics.model.labels import event_label
from analytics.model.schema import COLUMNS
from service.audit.actor_names import names_of_actors
from service.audit.tenant_log import TenantLog
from service.ci.issuers.run_links import HasRuns, run_link
from service.ci.providers import CI_LABELS
from service.pages.display_names import NAMED_FILTERS, ago, may_be_named, value_in_words
from service.pages.services import DashboardServices
from service.pages.state import PageState
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.store.tables import Organisation

PIVOTS: Final = {
    "This run": ("run_id", "run_id"),
    "This subject": ("subject", "subject"),
    "This package": ("package", "packageName"),
    "This key or person": ("actor", "actor"),
    "This request": ("request_id", "request_id"),
    "This binding": ("oidc_binding_id", "oidc_binding_id"),
    "This address": ("source_ip", "source_ip"),
    "This repository": ("repository_id", "repository_id"),
    "This CI token": ("token_id", "token_id"),
    "This file": ("file_sha256", "file_sha256"),
    "This event": ("event", "event"),
}
"""What rows may have in common: label, filter, key in the entry."""

DETAILS: Final[Mapping[Section, Sequence[Column]]] = {
    section: sorted(
        (column for column in COLUMNS if column.section is section), key=attrgetter("place")
    )
    for section in Section
}
"""The columns in each group of a row's details, in their order."""

_BINDING_ID: Final = re.compile(r"obind_[a-z0-9]+", re.ASCII)
CI_SOURCE_PREFIX: Final = "oidc_"
"""Of `actor_source`, before the name of a CI provider."""


@dataclass(frozen=True, slots=True)
class RowContext:
    """What the rows of a page share: its state, the names of actors, the issuers, and the time."""

    state: PageState
    actors: Mapping[str, str]
    issuers: Collection[HasRuns]
    now: datetime


@dataclass(frozen=True, slots=True)
class Pivot:
    """A link to all rows of the window with the same value; `count` of them if counted."""

    label: str
    name: str
    value: str
    href: str
    count: int | None = None


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row. Its properties are for its details, which few of the rows of a page ever show."""

    entry: dict[str, Any]
    context: RowContext
    event: str
    icon: str
    ago: str
    actor: str
    subject: str | None
    ci_provider: str | None

    @property
    def day(self) -> str:
        """Its date in UTC, in words."""
        at = datetime.fromisoformat(self.entry["created_at"])
        return f"{at:%A} {at.day} {at:%B} {at.year}"

    @property
    def details(self) -> dict[str, Sequence[Column]]:
        """The columns to show, by the name of their group."""
        return {section.name: columns for section, columns in DETAILS.items()}

    @property
    def is_install(self) -> bool:
        """Whether it is about a package."""
        return self.entry["packageName"] is not None or self.entry["decision"] is not None

    @property
    def at(self) -> datetime:
        """When it happened."""
        return datetime.fromisoformat(self.entry["created_at"])

    @property
    def run_link(self) -> str | None:
        """The page of its CI run at the provider, if its token was verified and that is known."""
        entry, source = self.entry, self.entry["actor_source"]
        if not source.startswith(CI_SOURCE_PREFIX):
            return None
        provider = source.removeprefix(CI_SOURCE_PREFIX)
        return run_link(self.context.issuers, provider, entry["subject"], entry["run_id"])

    @property
    def has_binding(self) -> bool:
        """Whether its binding may have a page: imported rows may contain any text."""
        return bool(_BINDING_ID.fullmatch(self.entry["oidc_binding_id"] or ""))

    @property
    def reason(self) -> list[tuple[str, str]] | None:
        """The keys and values of its decision reason; None if there is nothing to decode."""
        return _decoded(self.entry["decision_reason"])

    @property
    def ci(self) -> list[tuple[str, str]] | None:
        """What its CI token said; None if it says nothing."""
        payload = self.entry["payload"]
        return _pairs(payload.get("ci")) if isinstance(payload, dict) else None

    @property
    def admission(self) -> dict[str, Any] | None:
        """What its package was admitted by; None if it was not, or the row does not say."""
        payload = self.entry["payload"]
        return payload.get("admission") if isinstance(payload, dict) else None

    @property
    def payload(self) -> str | None:
        """Its payload as readable JSON."""
        payload = self.entry["payload"]
        return None if payload is None else pretty_json(payload)

    @property
    def pivots(self) -> list[Pivot]:
        """Links to all rows with the same values, not counted yet."""
        entry, pivots = self.entry, []
        for label, (name, key) in PIVOTS.items():
            if entry[key]:
                is_job = name == "subject" and entry["actor_source"].startswith(CI_SOURCE_PREFIX)
                href = self.context.state.about(name, entry[key]).href
                pivots.append(Pivot("This CI job" if is_job else label, name, entry[key], href))
        return pivots


async def load_log_rows(
    services: DashboardServices,
    org: Organisation,
    texts: Iterable[str],
    state: PageState,
    now: datetime,
) -> list[LogRow]:
    """The rows of these JSON objects, in their order; their links keep the window of `state`."""
    entries = decoded_entries(texts)
    async with services.store.read() as session:
        names = await names_of_actors(session, org.id, named_in(entries))
    context = RowContext(state, names, services.bindings.issuers.values(), now)
    return [log_row(entry, context) for entry in entries]


async def load_newest(
    services: DashboardServices, log: TenantLog, state: PageState, limit: int, now: datetime
) -> list[LogRow] | SummaryUnavailable:
    """The newest rows of `state`, for a part of a page."""
    query = parse_query(state.filters)
    rows = await or_unavailable(log.page(query, limit, time_max_s=GLANCE_MAX_S))
    if isinstance(rows, SummaryUnavailable):
        return rows
    return await load_log_rows(services, log.org, json_objects(rows, log.org.id), state, now)


def decoded_entries(texts: Iterable[str]) -> list[dict[str, Any]]:
    """The entries of these JSON objects."""
    return [json.loads(text) for text in texts]


def log_row(entry: dict[str, Any], context: RowContext) -> LogRow:
    """The row with this entry."""
    subject = entry["subject"]
    return LogRow(
        entry=entry,
        context=context,
        event=event_label(entry["event"]),
        icon=icon_of(entry["event"]),
        ago=ago(context.now - datetime.fromisoformat(entry["created_at"])),
        actor=value_in_words("actor", entry["actor"], context.actors),
        subject=None if subject is None else value_in_words("subject", subject, context.actors),
        ci_provider=ci_words(entry["actor_source"]),
    )


def named_in(entries: Iterable[dict[str, Any]]) -> set[str]:
    """The actors and subjects of rows, whose names a RowContext needs."""
    return may_be_named(entry[key] for entry in entries for key in NAMED_FILTERS)


def pretty_json(value: object, indent: int | None = 2) -> str:
    """`value` as readable JSON: plain text, which the template escapes."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _decoded(reason: str | None) -> list[tuple[str, str]] | None:
    """The keys of a reason's envelope; None if it has none: imported rows may contain any text.

    It is untrusted: its content may only be displayed.
    """
    try:
        return _pairs(json.loads(reason or ""))
    except (ValueError, RecursionError):
        return None


def _pairs(value: object) -> list[tuple[str, str]] | None:
    if not isinstance(value, dict):
        return None
    return [
        (str(key), item if isinstance(item, str) else pretty_json(item, indent=None))
        for key, item in value.items()
    ]


def icon_of(event: str) -> str:
    """The name of the icon (templates/icons.html) of a row's event."""
    envelope = ENVELOPES.get(Event(event))
    return DEFAULT_ICON if envelope is None else envelope.icon


def ci_words(actor_source: str) -> str | None:
    """The CI provider of a row's actor, or None if the actor is not a CI job."""
    if not actor_source.startswith(CI_SOURCE_PREFIX):
        return None
    provider = actor_source.removeprefix(CI_SOURCE_PREFIX)
    return CI_LABELS.get(provider, provider)
