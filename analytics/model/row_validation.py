"""Checks for every row from outside, ingested or imported."""

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from analytics.model.columns import Column, TextRule
from analytics.model.ecosystems import Ecosystem
from analytics.model.events import Decision
from analytics.model.instants import parse_instant

AHEAD_MAX: Final = timedelta(seconds=60)
"""How far a sender's clock may be ahead of ours."""

ERROR_CHARS_MAX: Final = 300
"""The maximum length of a rejected row's error, which may repeat a value of any length."""
_UNKNOWN: Final = frozenset({"Co", "Cn"})
_ECOSYSTEMS: Final = tuple(Ecosystem)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class RowRefused(ValueError):
    """The input must not become a row; the text names the field."""


@dataclass(frozen=True, slots=True)
class AcceptedInterval:
    """The instants that a row may have: from the retention floor to AHEAD_MAX after `now`."""

    now: datetime
    floor: datetime | None

    def instant(self, text: str) -> datetime:
        """The `created_at` in `text`. Raises RowRefused."""
        try:
            created_at = parse_instant(text)
        except ValueError as error:
            raise RowRefused("created_at must be an RFC 3339 instant") from error
        if created_at > self.now + AHEAD_MAX:
            raise RowRefused(f"created_at is more than {AHEAD_MAX.seconds} seconds ahead")
        if self.floor is not None and created_at < self.floor:
            raise RowRefused("created_at is before the retention floor")
        return created_at


def check_decision(event: str, decision: str | None, settled: Decision | None) -> None:
    """Raise RowRefused unless `decision` is the one that belongs to `event`.

    None is accepted for every event, because the event determines the decision.
    """
    if decision is not None and decision != settled:
        raise RowRefused(f"decision of {event} must be {settled or 'null'}")


def check_ecosystem(text: str | None) -> None:
    """Raise RowRefused for an ecosystem that is not known."""
    if text is not None:
        _check_value("ecosystem", _ECOSYSTEMS, text)


def _check_value(field: str, known: Collection[str], text: str) -> None:
    if text not in known:
        raise RowRefused(f"{field} must be one of {', '.join(known)}")


def check_sha256(field: str, text: str | None) -> None:
    """Raise RowRefused unless `text` is a digest in the one spelling that filters accept."""
    if text is not None and not _SHA256.fullmatch(text):
        raise RowRefused(f"{field} must be 64 hex digits in lower case")


def check_printable(field: str, text: str | None) -> None:
    """Raise RowRefused for text with invisible or unprintable characters."""
    if text is not None and not text.isprintable():
        raise RowRefused(f"{field} must have printable characters only")


def check_package_text(field: str, text: str | None) -> None:
    """Like `check_printable`, but also refuse white space around the text.

    To a reader and to a package manager " left-pad" is left-pad; to a filter it is another package.
    """
    if text is not None and (text != text.strip() or not text.isprintable()):
        check_printable(field, text.strip())
        raise RowRefused(f"{field} must not begin or end with white space")


def check_subject(text: str | None) -> None:
    """Like `check_printable`, but accept the characters that trust bindings accept.

    A subject is what an issuer signed: with characters of private use, or newer than this Python.
    """
    if text is not None and not text.isprintable():
        text = "".join(c for c in text if unicodedata.category(c) not in _UNKNOWN)
        check_printable("subject", text)


_RULES: Final[Mapping[TextRule, Callable[[str, str], None]]] = {
    TextRule.PRINTABLE: check_printable,
    TextRule.PACKAGE: check_package_text,
    TextRule.SUBJECT: lambda _, text: check_subject(text),
    TextRule.SHA256: check_sha256,
}


def column_check(column: Column) -> Callable[[str], None]:
    """What raises RowRefused unless rows may have a text in `column`."""
    field, length_max, rule = column.wire, column.max_chars, _RULES[column.rule]
    if column.values is not None:
        return partial(_check_value, field, tuple(column.values))
    if length_max is None:
        return partial(rule, field)

    def check(text: str) -> None:
        if not 0 < len(text) <= length_max:
            raise RowRefused(f"{field} must be 1..{length_max} characters")
        rule(field, text)

    return check
