"""The active filters in words, each with the link that removes it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analytics.model.filters import FILTER_COLUMNS, InvalidQuery, parse_term
from analytics.model.labels import FILTER_LABELS, event_label
from service.dashboard.state import State


@dataclass(frozen=True, slots=True)
class Chip:
    """One active filter: `label` `relation` `value`, and the link to the page without it."""

    label: str
    relation: str
    value: str
    remove: str


def active_chips(state: State, actors: Mapping[str, str]) -> list[Chip]:
    """All filters of `state` that exclude rows, the window first; `actors` have these names."""
    return [*_window_chips(state), *_value_chips(state, actors)]


def actors_of(state: State) -> list[str]:
    """The actors that filters of `state` name."""
    return [_meaning("actor", value)[1] for value in state.given.get("actor", ())]


def _window_chips(state: State) -> Iterator[Chip]:
    for name, relation in (("last", "last"), ("since", "since"), ("until", "until")):
        for value in state.given.get(name, ()):
            yield Chip("Time", relation, value, state.removing(name, value).href)


def _value_chips(state: State, actors: Mapping[str, str]) -> Iterator[Chip]:
    for name in FILTER_COLUMNS:
        for value in state.given.get(name, ()):
            relation, text = _meaning(name, value)
            shown = text
            if name == "event":
                shown = event_label(text)
            elif name == "actor":
                shown = actors.get(text, text)
            yield Chip(FILTER_LABELS[name], relation, shown, state.removing(name, value).href)


def _meaning(name: str, value: str) -> tuple[str, str]:
    try:
        term = parse_term(name, value)
    except InvalidQuery:
        return "is", value
    if term.is_prefix:
        return ("does not begin with" if term.is_negated else "begins with"), term.text
    return ("is not" if term.is_negated else "is"), term.text
