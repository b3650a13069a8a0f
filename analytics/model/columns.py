"""How a column of audit rows is declared: its number, its label and the filter on it."""

import re
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

import pyarrow as pa

_CI_SOURCE: Final = "oidc_"
_CI_SOURCES: Final = re.compile(rf"{_CI_SOURCE}[a-z0-9_]+", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SHA256_BEGINNING: Final = re.compile(r"[0-9a-f]{0,64}", re.ASCII)
_SHA256_FORM: Final = "64 hex digits in lower case, or their beginning and *"
_LAST: Final = 1_000
_TEXT: Final = pa.string()


class TextRule(Enum):
    """What the text of a column may be."""

    PRINTABLE = auto()
    PACKAGE = auto()
    """Printable, and without white space around it."""
    SUBJECT = auto()
    """As trust bindings accept it."""
    SHA256 = auto()
    """64 hex digits in lower case."""


class Section(Enum):
    """A group of a row's details on its page."""

    INSTALL = auto()
    JOB = auto()
    REQUEST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOfFilter:
    """The field of a filter in the page's form: its `place` among the fields, label and hint.

    A field with `options` (value and label) is a selection. `suggestions` names its list of
    completions; if `is_completed`, values of rows are looked up while a person types.
    """

    place: int = _LAST
    label: str = ""
    hint: str = ""
    options: tuple[tuple[str, str], ...] = ()
    suggestions: str | None = None
    is_completed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterParameter:
    """One query parameter, the column that it filters, and its label for people.

    `name`, `column` and `label` are those of its Column unless given. In the search box, `aliases`
    name it as well. `noun` is what the form calls the column of a filter that `takes_prefix`.
    `known` has every value the column can hold, or is None where any text may occur. With
    `has_ci_sources` it can also hold `oidc_` and a provider's name: issuers are configured. With
    `is_sha256` it holds digests in lower-case hex only.
    """

    name: str = ""
    description: str
    example: str
    column: str = ""
    label: str = ""
    noun: str = ""
    aliases: tuple[str, ...] = ()
    takes_prefix: bool = False
    known: tuple[str, ...] | None = None
    has_ci_sources: bool = False
    is_sha256: bool = False
    field: FieldOfFilter = FieldOfFilter()

    @property
    def summary(self) -> str:
        """What the parameter means, in Markdown. A closed set of values is listed."""
        prefix = "; a trailing `*` makes a prefix" if self.takes_prefix else ""
        return f"{self.description}{prefix}{f': {self.listed}' if self.known else ''}."

    @property
    def refusal(self) -> str:
        """What an error demands of a value that the column cannot hold."""
        return _SHA256_FORM if self.is_sha256 else f"one of {self.listed}"

    @property
    def listed(self) -> str:
        """The known values, as listed in errors and help texts."""
        return ", ".join([*(self.known or ()), *[f"{_CI_SOURCE}<provider>"] * self.has_ci_sources])

    def can_match(self, text: str, *, is_prefix: bool) -> bool:
        """Whether a row's value can be `text` or, if `is_prefix`, begin with it."""
        if self.is_sha256:
            form = _SHA256_BEGINNING if is_prefix else _SHA256
            return form.fullmatch(text) is not None
        if self.known is None:
            return True
        if text in self.known or (self.has_ci_sources and _CI_SOURCES.fullmatch(text)):
            return True
        beginnings = (*self.known, _CI_SOURCE) if self.has_ci_sources else self.known
        return is_prefix and any(value.startswith(text) for value in beginnings)

    def with_matching_case(self, text: str, *, is_prefix: bool) -> str | None:
        """`text` in the case in which it can match; None if its case is not the problem."""
        spellings = (text.lower(), text.upper())
        return next(
            (spelling for spelling in spellings if self.can_match(spelling, is_prefix=is_prefix)),
            None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of stored rows.

    `name` and `type` are those of its field in AuditRow, `wire` is its name in the API unless that
    is `name`. `field_id` is its number in Parquet files, which is never reused, even after a column
    is dropped. Rows have the column from schema version `since` on. No stored row has null in one
    that `is_required`.

    `max_chars` and `rule` bound the text of imported rows; `values` is what the column holds, if
    that is a closed set.

    People look for single values of a column that `is_indexed`: the index of a segment counts
    them. Of one that `has_head` it also names the most frequent ones, and files have a Bloom
    filter of one that `has_bloom_filter`.

    A row's page shows it under `label`, in `section`, in the order of `place`.
    """

    field_id: int
    label: str = ""
    name: str = ""
    wire: str = ""
    values: type[StrEnum] | None = None
    type: pa.DataType = _TEXT
    is_required: bool = False
    since: int = 1
    max_chars: int | None = None
    rule: TextRule = TextRule.PRINTABLE
    is_indexed: bool = False
    has_head: bool = False
    has_bloom_filter: bool = False
    section: Section | None = None
    place: int = _LAST
    filter: FilterParameter | None = None

    @property
    def field(self) -> pa.Field:
        """The column as Arrow has it."""
        return pa.field(self.name, self.type, nullable=not self.is_required)
