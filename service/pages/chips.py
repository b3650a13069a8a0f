"""The active filters in words, each with the link that removes it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analytics.model.filters import FILTER_COLUMNS, InvalidQuery, parse_term
from analytics.model.labels import FILTER_LABELS, event_label
from service.pages.display_names import NAMED_FILTERS, may_be_named
from service.pages.state import State


@dataclass(frozen=True, slots=True)
class Chip:
    """One active filter: `label` `relation` `value`, and the link to the page without it."""

    label: str
    relation: str
    value: str
    remove: str


def active_chips(state: State, names: Mapping[str, str]) -> list[Chip]:
    """All filters of `state` that exclude rows, the window first; members and keys by `names`."""
    return [*_window_chips(state), *_value_chips(state, names)]


def named_by(filters: Mapping[str, Sequence[str]]) -> set[str]:
    """The actors and subjects that `filters` name."""
    return may_be_named(
        _meaning(name, value)[1] for name in NAMED_FILTERS for value in filters.get(name, ())
    )


def _window_chips(state: State) -> Iterator[Chip]:
    for name, relation in (("last", "last"), ("since", "since"), ("until", "until")):
        for value in state.given.get(name, ()):
            yield Chip("Time", relation, value, state.removing(name, value).href)


def _value_chips(state: State, names: Mapping[str, str]) -> Iterator[Chip]:
    for name in FILTER_COLUMNS:
        for value in state.given.get(name, ()):
            relation, text = _meaning(name, value)
            # A CI job by its whole subject: two may share a label.
            shown = event_label(text) if name == "event" else text
            if name in NAMED_FILTERS:
                shown = names.get(text, text)
            yield Chip(FILTER_LABELS[name], relation, shown, state.removing(name, value).href)


def _meaning(name: str, value: str) -> tuple[str, str]:
    try:
        term = parse_term(name, value)
    except InvalidQuery:
        return "is", value
    if term.is_prefix:
        return ("does not begin with" if term.is_negated else "begins with"), term.text
    return ("is not" if term.is_negated else "is"), term.text
