"""Filters: parsed from query parameters, applied as SQL or as an Arrow mask."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.columns import FilterParameter
from analytics.model.instants import bounds_of, parse_since, parse_until
from analytics.model.schema import FILTER_PARAMETERS

FILTER_COLUMNS: Final = {parameter.name: parameter.column for parameter in FILTER_PARAMETERS}
"""Query parameter to the column it filters."""

PREFIX_PARAMETERS: Final = frozenset(
    parameter.name for parameter in FILTER_PARAMETERS if parameter.takes_prefix
)
"""Parameters in which a trailing `*` means "begins with"."""

BOUND_PARAMETERS: Final = ("since", "until")
VALUES_MAX: Final = 100
"""How many values one query may name in all: each costs a comparison per row."""

_QUOTED_MAX: Final = 100
"""How many characters of a refused value its error repeats."""

_FALSE: Final = pa.scalar(False, pa.bool_())


class InvalidQuery(ValueError):
    """A query that cannot be run. `field` is the parameter at fault; None for no single one."""

    def __init__(self, text: str, *, field: str | None = None) -> None:
        super().__init__(text)
        self.field = field


class Order(StrEnum):
    """Whether the newest or the oldest rows come first."""

    NEWEST_FIRST = "desc"
    OLDEST_FIRST = "asc"


@dataclass(frozen=True, slots=True)
class Term:
    """One value of one filter: equal to it, or beginning with it; or, negated, not so."""

    text: str
    is_prefix: bool
    is_negated: bool

    def is_met(self, value: str | None) -> bool:
        """Whether a row whose column holds `value` satisfies this term. Null meets a negation."""
        if value is None:
            return self.is_negated
        is_alike = value.startswith(self.text) if self.is_prefix else value == self.text
        return is_alike is not self.is_negated


@dataclass(frozen=True, slots=True)
class Condition:
    """All terms for one column. Positive terms are alternatives; each negated one must hold."""

    column: str
    terms: tuple[Term, ...]

    @property
    def wanted(self) -> tuple[Term, ...]:
        """The positive terms, of which one must be met if there are any."""
        return tuple(term for term in self.terms if not term.is_negated)

    @property
    def unwanted(self) -> tuple[Term, ...]:
        """The negated terms, each of which must be met."""
        return tuple(term for term in self.terms if term.is_negated)

    def is_met(self, value: str | None) -> bool:
        """Whether a row whose column holds `value` satisfies the condition."""
        # In one go, without the tuples: the catalog asks this of each value of each segment.
        is_wanted = is_alternative_met = False
        for term in self.terms:
            if term.is_negated:
                if not term.is_met(value):
                    return False
            else:
                is_wanted = True
                is_alternative_met = is_alternative_met or term.is_met(value)
        return is_alternative_met or not is_wanted


def among(column: str, texts: Iterable[str]) -> Condition:
    """The rows whose `column` has one of `texts`."""
    return Condition(column, tuple(Term(text, is_prefix=False, is_negated=False) for text in texts))


@dataclass(frozen=True, slots=True)
class Query:
    """Which rows, in which order. `since` is inclusive, `until` exclusive.

    `given` is what the caller wrote, for the record of an export.
    """

    since: datetime | None = None
    until: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    order: Order = Order.NEWEST_FIRST
    given: dict[str, list[str]] = field(default_factory=dict, compare=False)

    def not_before(self, floor: datetime | None) -> "Query":
        """The same query over rows from `floor` on (None: no floor)."""
        if floor is None or (self.since is not None and self.since >= floor):
            return self
        return replace(self, since=floor)

    def covers(self, day: date) -> bool:
        """True if all of the UTC day lies between the bounds."""
        first, last = bounds_of(day)
        is_before = self.since is not None and first < self.since
        return not is_before and (self.until is None or last < self.until)

    def touches(self, day: date) -> bool:
        """True if some of the UTC day lies between the bounds."""
        first, last = bounds_of(day)
        is_before = self.since is not None and last < self.since
        return not is_before and (self.until is None or first < self.until)


def parse_query(parameters: Mapping[str, Sequence[str]], *, has_order: bool = True) -> Query:
    """The query in `parameters` (name to values, as given); `order` only if it `has_order`.

    A repeated parameter means OR, different ones AND. A leading `!` negates; rows in which the
    column is null satisfy a negation. A trailing `*` makes a prefix where PREFIX_PARAMETERS
    allows it. A backslash before `!`, `*` or a backslash makes it an ordinary character.
    Raises InvalidQuery, even for a parameter that is no filter and for a value that no row can
    have: a misspelt word must not look like a log in which nothing happened.
    """
    known = {*FILTER_COLUMNS, *BOUND_PARAMETERS, *(("order",) if has_order else ())}
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise InvalidQuery(f"unknown query parameter: {', '.join(unknown)}")
    if sum(map(len, parameters.values())) > VALUES_MAX:
        raise InvalidQuery(f"at most {VALUES_MAX} filter values in one query")
    for name, values in parameters.items():
        if "" in values:
            raise InvalidQuery(f"{name} must not be empty", field=name)
    since = _parse_bound(parameters, "since")
    until = _parse_bound(parameters, "until")
    if since is not None and until is not None and since >= until:
        raise InvalidQuery("since must be before until", field="since")
    return Query(
        since=since,
        until=until,
        conditions=tuple(
            _parse_condition(parameter, parameters[parameter.name])
            for parameter in FILTER_PARAMETERS
            if parameters.get(parameter.name)
        ),
        order=_parse_order(parameters),
        given={name: sorted(values) for name, values in sorted(parameters.items()) if values},
    )


def only(parameters: Mapping[str, Sequence[str]], name: str) -> str | None:
    """The single value of `name`, or None if it is missing. Raises InvalidQuery for several."""
    values = parameters.get(name, ())
    if len(values) > 1:
        raise InvalidQuery(f"{name} may be given only once", field=name)
    return values[0] if values else None


def _parse_bound(parameters: Mapping[str, Sequence[str]], name: str) -> datetime | None:
    text = only(parameters, name)
    if text is None:
        return None
    try:
        return parse_since(text) if name == "since" else parse_until(text)
    except ValueError as error:
        raise InvalidQuery(
            f"{name} must be an RFC 3339 instant (2026-01-31T08:00:00Z) or a date (2026-01-31)",
            field=name,
        ) from error


def _parse_order(parameters: Mapping[str, Sequence[str]]) -> Order:
    text = only(parameters, "order")
    try:
        return Order(text) if text is not None else Order.NEWEST_FIRST
    except ValueError as error:
        raise InvalidQuery("order must be 'asc' or 'desc'", field="order") from error


def _parse_condition(parameter: FilterParameter, values: Sequence[str]) -> Condition:
    terms = tuple(parse_term(parameter.name, value) for value in values)
    for value, term in zip(values, terms, strict=True):
        if not parameter.can_match(term.text, is_prefix=term.is_prefix):
            raise InvalidQuery(_not_known(parameter, value, term), field=parameter.name)
    return Condition(parameter.column, terms)


def _not_known(parameter: FilterParameter, value: str, term: Term) -> str:
    shown = value if len(value) <= _QUOTED_MAX else f"{value[:_QUOTED_MAX]}…"
    spelling = parameter.with_matching_case(term.text, is_prefix=term.is_prefix)
    hint = "" if spelling is None else f" (case matters: {spelling})"
    return f"{parameter.name} must be {parameter.refusal}, not '{shown}'{hint}"


def parse_term(name: str, value: str) -> Term:
    """The term that `value` of the parameter `name` stands for. Raises InvalidQuery if invalid."""
    is_negated = value.startswith("!")
    characters: list[str] = []
    is_prefix = False
    rest = iter(enumerate(value[is_negated:], start=1 + is_negated))
    for position, character in rest:
        if character == "\\":
            _, escaped = next(rest, (position, ""))
            characters.append(escaped if escaped in ("!", "*", "\\") else f"\\{escaped}")
        elif character == "*" and position == len(value) and name in PREFIX_PARAMETERS:
            is_prefix = True
        else:
            characters.append(character)
    text = "".join(characters)
    if not text and not is_prefix:
        raise InvalidQuery(f"{name} must not be empty", field=name)
    return Term(text, is_prefix, is_negated)


def literal(value: str) -> str:
    """`value` as a filter's text that matches exactly this value, whichever characters it has."""
    text = value.replace("\\", "\\\\")
    if text.startswith("!"):
        text = f"\\{text}"
    return f"{text[:-1]}\\*" if text.endswith("*") else text


def where(query: Query) -> tuple[str, dict[str, Any]]:
    """`query` as an SQL condition over AUDIT_SCHEMA columns, and the values it binds."""
    clauses: list[str] = ["true"]
    bound: dict[str, Any] = {}

    def bind(value: object) -> str:
        name = f"f{len(bound)}"
        bound[name] = value
        return f"${name}"

    if query.since is not None:
        clauses.append(f"created_at >= {bind(query.since)}::TIMESTAMPTZ")
    if query.until is not None:
        clauses.append(f"created_at < {bind(query.until)}::TIMESTAMPTZ")
    for condition in query.conditions:
        column = condition.column
        wanted = condition.wanted
        if wanted:
            clauses.append(f"({' OR '.join(_matches(column, term, bind) for term in wanted)})")
        clauses += [
            f"({column} IS NULL OR NOT {_matches(column, term, bind)})"
            for term in condition.unwanted
        ]
    return " AND ".join(clauses), bound


def _matches(column: str, term: Term, bind: Any) -> str:  # noqa: ANN401 - a local closure
    value = bind(term.text)
    return f"starts_with({column}, {value})" if term.is_prefix else f"{column} = {value}"


def mask(query: Query, rows: pa.Table) -> pa.ChunkedArray:
    """Which of `rows` (AUDIT_SCHEMA) are in `query`: the same as `where`, without an engine."""
    at = rows["created_at"]
    wanted = pc.is_valid(at)
    if query.since is not None:
        wanted = pc.and_(wanted, pc.greater_equal(at, pa.scalar(query.since, at.type)))
    if query.until is not None:
        wanted = pc.and_(wanted, pc.less(at, pa.scalar(query.until, at.type)))
    for condition in query.conditions:
        wanted = pc.and_(wanted, condition_mask(condition, rows[condition.column]))
    return wanted


def condition_mask(condition: Condition, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which of `values` (texts, or null) meet `condition`."""
    unmet = [pc.invert(_is_alike(values, term)) for term in condition.unwanted]
    if not condition.wanted:
        return functools.reduce(pc.and_, unmet)
    wanted = functools.reduce(pc.or_, [_is_alike(values, term) for term in condition.wanted])
    return functools.reduce(pc.and_, [wanted, *unmet])


def _is_alike(column: pa.ChunkedArray, term: Term) -> pa.ChunkedArray:
    """Null resembles nothing: it meets no positive term, and every negated one."""
    # Typed scalars: to guess a type, Arrow tries to import a module that is not installed.
    is_alike = (
        pc.starts_with(column, term.text)
        if term.is_prefix
        else pc.equal(column, pa.scalar(term.text, column.type))
    )
    return pc.fill_null(is_alike, _FALSE)
