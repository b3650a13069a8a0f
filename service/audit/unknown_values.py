"""Values in a query that no row has: a misspelt name must not look like an all-clear."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Final

from msgspec import Meta, Struct

from analytics.model.columns import FilterParameter
from analytics.model.filters import Condition, Query, Term, literal
from analytics.model.schema import FILTER_PARAMETERS
from service.audit.refusals import QueryTooSlow
from service.audit.search import Read
from service.audit.tenant_log import TenantLog
from service.core.errors import WAITED_TOO_LONG

VALUES_MAX: Final = 10
"""How many values are looked up: each costs a query."""

TIME_MAX_S: Final = 1.0
"""For each look-up."""

ALL_MAX_S: Final = 5.0
"""For all look-ups of a request: each value needs up to seven. Their waits for a turn do not count,
and are together no longer than one query's may be."""

SIMILAR_CHARS_MAX: Final = 100
"""Comparing two texts takes time quadratic in their length, and clients choose both."""

_SIMILAR_MAX: Final = 200
_SIMILAR_PREFIX: Final = 3
_OPEN: Final = tuple(parameter for parameter in FILTER_PARAMETERS if parameter.known is None)
_ELSEWHERE: Final = ("package", "version", "actor", "subject", "run_id", "repository_id")


_WITHIN: Final = {"version": ("package_name", "ecosystem"), "package": ("ecosystem",)}
"""Values that are looked up in the rows that other conditions of the query select."""

_FREQUENT_MAX: Final = 500
_CUTOFF: Final = 0.6
_SEPARATORS: Final = re.compile(r"[-_./@\s]+")


class UnknownValue(Struct, frozen=True, kw_only=True):
    """A value that no row has, in the syntax of a filter.

    A version is one that no row of the packages in the query has, and a package one of its
    ecosystems.
    """

    parameter: str
    value: str
    nearest: Annotated[str | None, Meta(description="A similar value that rows have.")]
    also_in: Annotated[list[str], Meta(description="Other parameters whose rows have the value.")]
    understood: Annotated[
        bool, Meta(description="False for a package with a name that no ecosystem allows.")
    ]
    ecosystems: Annotated[
        list[str],
        Meta(description="Where rows have the package, if the query names another ecosystem."),
    ]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A value that rows must have, in a column in which any text may occur."""

    parameter: FilterParameter
    term: Term
    within: tuple[Condition, ...]


async def unknown_values(log: TenantLog, query: Query, read: Read) -> list[UnknownValue]:
    """The values of `query` that no row of `log` has; `read` tells which of them are understood.

    Raises QueryTooSlow, WAITED_TOO_LONG, StoreFault.
    """
    timed = replace(log, ran_s=[])
    try:
        async with asyncio.timeout(ALL_MAX_S + log.queries.wait_max_s):
            return [
                await _described(timed, wanted, read)
                for wanted in list(_wanted(query))[:VALUES_MAX]
                if not await _has(timed, wanted.parameter, wanted.term, wanted.within)
            ]
    except TimeoutError as error:
        raise WAITED_TOO_LONG from error


def _wanted(query: Query) -> Iterator[_Wanted]:
    by_column = {parameter.column: parameter for parameter in _OPEN}
    for condition in query.conditions:
        if condition.column in by_column:
            parameter = by_column[condition.column]
            columns = _WITHIN.get(parameter.name, ())
            within = tuple(each for each in query.conditions if each.column in columns)
            for term in condition.wanted:
                yield _Wanted(parameter, term, within)


async def _has(
    log: TenantLog,
    parameter: FilterParameter,
    term: Term,
    within: tuple[Condition, ...] = (),
) -> bool:
    if sum(log.ran_s) >= ALL_MAX_S:
        raise QueryTooSlow
    query = Query(conditions=(*within, Condition(parameter.column, (term,))))
    rows = await log.page(query, 1, time_max_s=TIME_MAX_S)
    return bool(rows.num_rows)


async def _described(log: TenantLog, wanted: _Wanted, read: Read) -> UnknownValue:
    parameter, term = wanted.parameter, wanted.term
    others = [each for each in _OPEN if each.name in _ELSEWHERE and each is not parameter]
    exact = Term(term.text, is_prefix=False, is_negated=False)
    also_in = [each.name for each in others if not term.is_prefix and await _has(log, each, exact)]
    text = f"{literal(term.text)}*" if term.is_prefix else literal(term.text)
    is_package = parameter.name == "package" and not term.is_prefix
    if is_package and wanted.within:
        of_name = Query(conditions=(Condition(parameter.column, (term,)),))
        elsewhere = await log.values(of_name, "ecosystem", _SIMILAR_MAX, TIME_MAX_S)
    else:
        elsewhere = []
    understood = not is_package or bool(await read(term.text))
    return UnknownValue(
        parameter=parameter.name,
        value=text,
        nearest=await _nearest(log, wanted),
        also_in=also_in,
        understood=understood,
        ecosystems=[ecosystem for ecosystem, _ in elsewhere],
    )


async def _nearest(log: TenantLog, wanted: _Wanted) -> str | None:
    """The value most like the one wanted; none for a long one.

    First among those that begin as it does, then among other frequent ones if it is a package.
    Any version of the packages in the query is near.
    """
    text = wanted.term.text
    if not text or len(text) > SIMILAR_CHARS_MAX:
        return None
    if wanted.parameter.name == "version" and wanted.within:
        return await _closest(log, wanted, [Query(conditions=wanted.within)], 0.0)
    starts = dict.fromkeys((text[:_SIMILAR_PREFIX], text[:_SIMILAR_PREFIX].lower()))
    beginnings = [_beginning(wanted.parameter, start) for start in starts]
    nearest = await _closest(log, wanted, beginnings, _CUTOFF)
    if nearest is None and wanted.parameter.name == "package":
        others = [_beginning(wanted.parameter, "@"), Query()]
        nearest = await _closest(log, wanted, others, _CUTOFF)
    return nearest


def _beginning(parameter: FilterParameter, start: str) -> Query:
    term = Term(start, is_prefix=True, is_negated=False)
    return Query(conditions=(Condition(parameter.column, (term,)),))


async def _closest(
    log: TenantLog, wanted: _Wanted, queries: Sequence[Query], cutoff: float
) -> str | None:
    """The value most like the one wanted among the frequent ones of `queries`, as a filter."""
    similar: dict[str, None] = {}
    term = wanted.term
    for query in queries:
        if sum(log.ran_s) >= ALL_MAX_S:
            raise QueryTooSlow
        limit = _SIMILAR_MAX if query.conditions else _FREQUENT_MAX
        try:
            values = await log.values(query, wanted.parameter.column, limit, TIME_MAX_S)
        except QueryTooSlow:
            continue  # a suggestion less
        for value, _ in values:
            if len(value) <= SIMILAR_CHARS_MAX:
                similar[_first_parts(value, term) if term.is_prefix else value] = None
    # In a thread: comparing 700 values of this length may take over 100 ms.
    nearest = await log.read(lambda *_: _most_alike(term.text, list(similar), cutoff), Query())
    if nearest is None:
        return None
    return f"{literal(nearest)}*" if term.is_prefix else literal(nearest)


def _first_parts(value: str, beginning: Term) -> str:
    """As much of `value` as `beginning` has of it: the repository of a subject, the scope."""
    separator = next((each for each in ":/" if beginning.text.endswith(each)), "")
    if not separator:
        return value[: len(beginning.text)]
    parts = value.split(separator)
    return separator.join(parts[: beginning.text.count(separator)]) + separator


def _most_alike(text: str, values: Sequence[str], cutoff: float) -> str | None:
    """The value of the same name in another spelling or scope, or else the most similar one."""
    spellings: dict[str, str] = {}
    for value in values:
        spellings.setdefault(_folded(value), value)
    for value in values:
        spellings.setdefault(_folded(value.rpartition("/")[2]), value)
    nearest = get_close_matches(_folded(text), spellings, 1, cutoff)
    return spellings[nearest[0]] if nearest else None


def _folded(text: str) -> str:
    return _SEPARATORS.sub("-", text.casefold()).strip("-")
