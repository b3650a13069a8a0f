"""The formats of files of rows; `analytics.export.writers` has the writer of each."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFacts:
    """What there is to know about a format: its name for people, media type and a note on it.

    A file of a format that is not `is_text` is compressed inside, and counts its own rows. In
    text each row is a line, beside `frame_lines` others; with `has_quotes`, values may contain
    line breaks within quotes.
    """

    label: str
    media_type: str
    note: str
    is_text: bool = True
    frame_lines: int = 0
    has_quotes: bool = False


class ExportFormat(StrEnum):
    """The format of a file of rows."""

    # Its value is the extension of the file's name, too.
    _value_: str
    facts: FormatFacts

    def __new__(cls, value: str, *facts: FormatFacts) -> "ExportFormat":
        """The member with this value and these facts."""
        member = str.__new__(cls, value)
        member._value_ = value
        (member.facts,) = facts
        return member

    CSV = (
        "csv",
        FormatFacts(
            label="CSV",
            media_type="text/csv; charset=utf-8",
            note="For spreadsheets: values that could be formulas are guarded by an apostrophe.",
            frame_lines=1,
            has_quotes=True,
        ),
    )
    JSON = (
        "json",
        FormatFacts(
            label="JSON",
            media_type="application/json",
            note="One array of objects.",
            frame_lines=2,
        ),
    )
    NDJSON = (
        "ndjson",
        FormatFacts(
            label="NDJSON",
            media_type="application/x-ndjson",
            note="An object on each line, which can be imported again.",
        ),
    )
    PARQUET = (
        "parquet",
        FormatFacts(
            label="Parquet",
            media_type="application/vnd.apache.parquet",
            note="Typed columns, compressed, for analysis; can be imported again.",
            is_text=False,
        ),
    )


def format_label(name: str) -> str:
    """The format's name for people, or `name` if it is unknown."""
    return ExportFormat(name).facts.label if name in set(ExportFormat) else name
