"""An audit row as the page shows it: its entry, decoded, with links to similar rows."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from analytics.model.labels import event_label
from service.dashboard.labels import ci_words
from service.dashboard.state import State

_ALIKE: Final = {
    "package": ("package", "packageName"),
    "actor": ("actor", "actor"),
    "subject": ("subject", "subject"),
    "event": ("event", "event"),
    "request": ("request_id", "request_id"),
    "binding": ("oidc_binding_id", "oidc_binding_id"),
    "source address": ("source_ip", "source_ip"),
    "repository": ("repository_id", "repository_id"),
    "CI run": ("run_id", "run_id"),
    "CI token": ("token_id", "token_id"),
}
"""What rows may have in common: label, filter, key in the entry."""

_BINDING_ID: Final = re.compile(r"obind_[a-z0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One row. `reason` and `ci` are keys and values, or None if there is nothing to decode.

    `has_binding` is true if its binding may have a page: imported rows may contain any text.
    """

    entry: dict[str, Any]
    event: str
    ci_provider: str | None
    has_binding: bool
    reason: list[tuple[str, str]] | None
    ci: list[tuple[str, str]] | None
    payload: str | None
    alike: list[tuple[str, str]]


def shown_row(text: str, state: State) -> ShownRow:
    """The row of the JSON object `text`, on a page with this state."""
    entry = json.loads(text)
    payload = entry["payload"]
    return ShownRow(
        entry=entry,
        event=event_label(entry["event"]),
        ci_provider=ci_words(entry["actor_source"]),
        has_binding=bool(_BINDING_ID.fullmatch(entry["oidc_binding_id"] or "")),
        reason=_decoded(entry["decision_reason"]),
        ci=_pairs(payload.get("ci")) if isinstance(payload, dict) else None,
        payload=None if payload is None else pretty_json(payload),
        alike=list(_alike(entry, state)),
    )


def pretty_json(value: object, indent: int | None = 2) -> str:
    """`value` as readable JSON: plain text, which the template escapes."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _alike(entry: dict[str, Any], state: State) -> Iterator[tuple[str, str]]:
    for label, (name, key) in _ALIKE.items():
        if entry[key]:
            yield label, state.about(name, entry[key]).href


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
