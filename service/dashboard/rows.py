"""An audit row as pages show it: its entry in words, with links to similar rows."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from analytics.model.labels import event_label, job_label
from service.dashboard.labels import ago, ci_words, icon_of
from service.dashboard.state import State
from service.issuers.run_links import HasRuns, run_link

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
    "This event": ("event", "event"),
}
"""What rows may have in common: label, filter, key in the entry."""

_BINDING_ID: Final = re.compile(r"obind_[a-z0-9]+", re.ASCII)
_CI_SOURCE: Final = "oidc_"
_NAMED_CHARS_MAX: Final = 64
"""Keys and members have short ids; subjects of CI jobs are longer."""


@dataclass(frozen=True, slots=True)
class RowContext:
    """What the rows of a page share: its state, the names of actors, the issuers, and the time."""

    state: State
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
class ShownRow:
    """One row. `reason` and `ci` are keys and values, or None if there is nothing to decode.

    `has_binding` is true if its binding may have a page: imported rows may contain any text.
    """

    entry: dict[str, Any]
    event: str
    icon: str
    ago: str
    actor: str
    subject: str | None
    run_link: str | None
    ci_provider: str | None
    has_binding: bool
    reason: list[tuple[str, str]] | None
    ci: list[tuple[str, str]] | None
    payload: str | None
    pivots: list[Pivot]

    @property
    def is_install(self) -> bool:
        """Whether it is about a package."""
        return self.entry["packageName"] is not None or self.entry["decision"] is not None


def decoded_entries(texts: Iterable[str]) -> list[dict[str, Any]]:
    """The entries of these JSON objects."""
    return [json.loads(text) for text in texts]


def shown_row(entry: dict[str, Any], context: RowContext) -> ShownRow:
    """The row with this entry."""
    payload, source = entry["payload"], entry["actor_source"]
    is_ci_job = source.startswith(_CI_SOURCE)
    provider = source.removeprefix(_CI_SOURCE)
    return ShownRow(
        entry=entry,
        event=event_label(entry["event"]),
        icon=icon_of(entry["event"], entry["decision"]),
        ago=ago(context.now - datetime.fromisoformat(entry["created_at"])),
        actor=context.actors.get(entry["actor"], entry["actor"]),
        subject=_subject(entry["subject"], context),
        run_link=run_link(context.issuers, provider, entry["subject"], entry["run_id"])
        if is_ci_job
        else None,
        ci_provider=ci_words(source),
        has_binding=bool(_BINDING_ID.fullmatch(entry["oidc_binding_id"] or "")),
        reason=_decoded(entry["decision_reason"]),
        ci=_pairs(payload.get("ci")) if isinstance(payload, dict) else None,
        payload=None if payload is None else pretty_json(payload),
        pivots=list(_pivots(entry, context.state)),
    )


def named_in(entries: Iterable[dict[str, Any]]) -> set[str]:
    """The actors and subjects of rows, whose names a RowContext needs."""
    names = {entry[key] for entry in entries for key in ("actor", "subject") if entry[key]}
    return {name for name in names if len(name) <= _NAMED_CHARS_MAX}


def _subject(subject: str | None, context: RowContext) -> str | None:
    """A subject in words: a CI job by its label, a member or key by its name."""
    if subject is None:
        return None
    return context.actors.get(subject) or job_label(subject) or subject


def pretty_json(value: object, indent: int | None = 2) -> str:
    """`value` as readable JSON: plain text, which the template escapes."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _pivots(entry: dict[str, Any], state: State) -> Iterator[Pivot]:
    for label, (name, key) in PIVOTS.items():
        if entry[key]:
            is_job = name == "subject" and entry["actor_source"].startswith(_CI_SOURCE)
            shown = "This CI job" if is_job else label
            yield Pivot(shown, name, entry[key], state.about(name, entry[key]).href)


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
