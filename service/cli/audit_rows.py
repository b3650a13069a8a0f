"""Audit rows for people: a table of several, one in full, one on a line."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click

from service.cli.proposals import printable
from service.cli.tables import Table, padded
from service.cli.terminal import has_colour
from service.cli.times import relative_time

_COLUMNS: Final = ("created_at", "decision", "event", "package", "actor", "subject", "id")
_BLOCKED: Final = "BLOCKED"
_LABEL_WIDTH: Final = 17


def page_table(page: dict[str, Any], slug: str, at_place: str) -> Table:
    """A page of rows. `at_place` names the server they come from, see `Client.at_place`."""
    rows = [entry | {"package": package_of(entry)} for entry in page["entries"]]
    return Table.of(f"Audit log of {slug}{at_place}, times in UTC", rows, _COLUMNS, ["created_at"])


def package_of(entry: dict[str, Any]) -> str | None:
    """The package as people write it, with its version."""
    name, version = entry["packageName"], entry["version"]
    return f"{name}@{version}" if name and version else name


def row_line(entry: dict[str, Any], now: datetime | None) -> str:
    """One row on one line, for a list that grows. With `now`, its instant is relative to it."""
    at = printable(entry["created_at"])
    decision = padded(printable(entry["decision"]), len(_BLOCKED))
    if decision == _BLOCKED and has_colour():
        decision = click.style(decision, fg="red", bold=True)
    parts = [at if now is None else padded(relative_time(at, now), 11), decision]
    names = [package_of(entry), entry["actor"], entry["subject"], entry["id"]]
    parts += [printable(entry["event"]), *(printable(name) for name in names if name is not None)]
    return "  ".join(parts)


def entry_lines(entry: dict[str, Any]) -> Iterator[str]:
    """Everything a row says; what it does not have is left out."""
    for name, value in entry.items():
        if value is None or name == "payload":
            continue
        yield f"{padded(name, _LABEL_WIDTH)}{printable(value)}"
    if entry["payload"]:
        yield "payload"
        yield from _nested(entry["payload"], "  ")


def _nested(payload: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in payload.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{printable(name)}"
            yield from _nested(value, f"{indent}  ")
            continue
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{padded(indent + printable(name), _LABEL_WIDTH)} {printable(shown)}"
