"""Values in a query that no row has: a misspelt name must not look like an all-clear."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Final

from analytics.model.columns import FilterParameter
from analytics.model.filters import Condition, Query, Term, literal
from analytics.model.schema import FILTER_PARAMETERS
from service.audit.refusals import QueryTooSlow
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


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """A value that no row within the retention has in its column, in the syntax of a filter.

    `nearest` is a similar value that rows have; `also_in` the other parameters whose rows have it.
    """

    parameter: str
    value: str
    nearest: str | None
    also_in: list[str]


async def unknown_values(log: TenantLog, query: Query) -> list[UnknownValue]:
    """The values of `query` that no row of `log` has.

    Raises QueryTooSlow, WAITED_TOO_LONG, StoreFault.
    """
    timed = replace(log, ran_s=[])
    try:
        async with asyncio.timeout(ALL_MAX_S + log.queries.wait_max_s):
            return [
                await _described(timed, parameter, term)
                for parameter, term in list(_wanted(query))[:VALUES_MAX]
                if not await _has(timed, parameter, term)
            ]
    except TimeoutError as error:
        raise WAITED_TOO_LONG from error


def _wanted(query: Query) -> Iterator[tuple[FilterParameter, Term]]:
    """The values that rows must have, of columns in which any text may occur."""
    by_column = {parameter.column: parameter for parameter in _OPEN}
    for condition in query.conditions:
        if condition.column in by_column:
            for term in condition.wanted:
                yield by_column[condition.column], term


async def _has(log: TenantLog, parameter: FilterParameter, term: Term) -> bool:
    if sum(log.ran_s) >= ALL_MAX_S:
        raise QueryTooSlow
    query = Query(conditions=(Condition(parameter.column, (term,)),))
    rows = await log.page(query, 1, time_max_s=TIME_MAX_S)
    return bool(rows.num_rows)


async def _described(log: TenantLog, parameter: FilterParameter, term: Term) -> UnknownValue:
    others = [each for each in _OPEN if each.name in _ELSEWHERE and each is not parameter]
    exact = Term(term.text, is_prefix=False, is_negated=False)
    also_in = [each.name for each in others if not term.is_prefix and await _has(log, each, exact)]
    text = f"{literal(term.text)}*" if term.is_prefix else literal(term.text)
    return UnknownValue(parameter.name, text, await _nearest(log, parameter, term), also_in)


async def _nearest(log: TenantLog, parameter: FilterParameter, term: Term) -> str | None:
    """The value most like `term` among those that begin as it does; none for a long `term`."""
    start = term.text[:_SIMILAR_PREFIX]
    if not start or len(term.text) > SIMILAR_CHARS_MAX:
        return None
    beginning = Condition(parameter.column, (Term(start, is_prefix=True, is_negated=False),))
    values = await log.values(
        Query(conditions=(beginning,)), parameter.column, _SIMILAR_MAX, TIME_MAX_S
    )
    similar = [value for value, _ in values if len(value) <= SIMILAR_CHARS_MAX]
    # In a thread: comparing 200 values of this length may take over 100 ms.
    nearest = await log.compute(partial(get_close_matches, term.text, similar, 1))
    return literal(nearest[0]) if nearest else None
