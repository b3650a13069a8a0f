"""Autocompletion of a filter's field: values that begin with the typed text."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from analytics.model.filters import (
    BOUND_PARAMETERS,
    FILTER_COLUMNS,
    Condition,
    Term,
    literal,
    only,
    parse_query,
    parse_term,
)
from analytics.model.schema import FILTER_PARAMETERS
from service.audit.services import AuditServices
from service.audit.tenant_log import open_log
from service.core.errors import Invalid
from service.pages.state import parse_state
from service.store.tables import Organisation

COMPLETED: Final = tuple(
    parameter.name for parameter in FILTER_PARAMETERS if parameter.field.is_completed
)
"""The filters whose values are looked up; the others have few values."""

PARAMETERS: Final = ("name", "prefix", "last", *BOUND_PARAMETERS)
VALUES_MAX: Final = 20
PREFIX_CHARS_MAX: Final = 1_024
TIME_MAX_S: Final = 1.0
"""Later suggestions would be useless to a user who is typing."""


async def complete(
    services: AuditServices, org: Organisation, parameters: Mapping[str, list[str]]
) -> list[str]:
    """Values of the filter `name` that begin with `prefix`, most frequent first, as field texts.

    Only from the requested window, and within the retention of `org`. Raises InvalidQuery, Invalid,
    QueryTooSlow, StoreFault.
    """
    name = only(parameters, "name")
    if name not in COMPLETED:
        raise Invalid(f"name must be one of {', '.join(COMPLETED)}", field="name")
    typed = _typed(name, only(parameters, "prefix") or "")
    beginning = Condition(FILTER_COLUMNS[name], (replace(typed, is_prefix=True, is_negated=False),))
    window = {key: values for key, values in parameters.items() if key not in {"name", "prefix"}}
    state, now = parse_state(window), services.clock()
    state.check_window()
    query = replace(parse_query(state.as_of(now).filters), conditions=(beginning,))
    log = await open_log(services.store, services.lake, org, now)
    values = await log.values(query, beginning.column, VALUES_MAX, TIME_MAX_S)
    return [f"{'!' if typed.is_negated else ''}{literal(value)}" for value, _ in values]


def _typed(name: str, text: str) -> Term:
    if len(text) > PREFIX_CHARS_MAX:
        raise Invalid(f"prefix must be at most {PREFIX_CHARS_MAX} characters", field="prefix")
    return parse_term(name, text)
