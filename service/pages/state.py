"""The audit page's state, which is entirely in its URL, so that links reproduce the page."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from analytics.model.filters import BOUND_PARAMETERS, FILTER_COLUMNS, VALUES_MAX, Order, literal
from analytics.model.instants import parse_since, parse_until
from analytics.model.retention import RETENTION_DAYS, Tier, retention_floor
from service.audit.query_service import PAGE_PARAMETERS
from service.audit.search import check_window, window_length
from service.store.tables import Organisation

WINDOWS: Final[dict[str, timedelta]] = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
}
"""The windows up to now that the page offers, as values of `last`."""

COLUMNS: Final = {
    "package": "Package",
    "job": "CI job or subject",
    "actor": "Key or person",
    "run": "CI run",
    "address": "Address",
    "surface": "Surface",
}
"""The columns to choose from, beside the time and the event."""

COLUMNS_DEFAULT: Final = ("package", "job", "actor")

VIEWS: Final = ("no-chart", "roomy")
"""How the page may be shown otherwise: without its chart, with rows of 40 pixels."""

ROWS_DEFAULT: Final = "50"
"""Rows on a page; with 100 of them the page would be too large."""

BACK_MAX: Final = 20
"""How many previous pages a URL remembers; at some 90 bytes each, it stays within all limits."""

CHARS_MAX: Final = 8 * 1024
"""Maximum length of a URL: a page has a hundred links, and each repeats nearly all of it."""

_FORGOTTEN: Final = "-"
_TIME: Final = ("last", *BOUND_PARAMETERS)
SEARCHED: Final = "searched"
"""The text of the search that the filters were read from, if it says something else than they."""

_PLACE: Final = ("cursor", "back", SEARCHED)
"""The position of a page in the rows; any change of the filters starts at the first page."""

_LISTS: Final = ("columns", "view")
"""Each is one value in links, such as `columns=package,run`; forms send one for each choice."""

_SHOWN: Final = ("last", "back", *_LISTS, SEARCHED)
"""What concerns the page alone, and not the query."""

_KNOWN: Final = (*_TIME, *FILTER_COLUMNS, "order", "limit", *_LISTS)

_PICKED: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", re.ASCII)
"""What browsers send of a date picker."""


def from_picker(text: str) -> str:
    """The instant of a date picker, or `text` as it is."""
    picked = _PICKED.fullmatch(text)
    return text if picked is None else f"{text}{'' if picked[1] else ':00'}Z"


def in_picker(text: str, name: str = "since") -> str | None:
    """The instant `text` as a date picker shows it; None if it cannot. `name` is its parameter."""
    try:
        at = bound(name, from_picker(text)) if text else None
    except ValueError:
        return None
    if at is None or at.microsecond:
        return None if at else ""
    return at.isoformat()[: 19 if at.second else 16]


def bound(name: str, text: str) -> datetime:
    """The instant that `text` names as the parameter `name`. Raises ValueError."""
    return (parse_until if name == "until" else parse_since)(text)


Values = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PageState:
    """The state in the page's URL: parameters and their values, none of them empty.

    `path` is the audit page's, for links from another page; its own links need none.
    """

    parameters: Mapping[str, Values]
    path: str = ""

    @property
    def filters(self) -> dict[str, list[str]]:
        """The parameters that select and order the rows: no paging, no `last`, no columns."""
        excluded = {*_SHOWN, *PAGE_PARAMETERS}
        return {
            name: list(values) for name, values in self.parameters.items() if name not in excluded
        }

    @property
    def filters_and_window(self) -> dict[str, list[str]]:
        """The parameters that select rows, `last` among them."""
        names = (*_TIME, *FILTER_COLUMNS)
        return {name: list(self.parameters[name]) for name in names if name in self.parameters}

    @property
    def saved(self) -> str:
        """What a saved search keeps: the filters, the window, the order and the columns."""
        return urlencode(self._but(*_PLACE, "view").parameters, doseq=True)

    @property
    def query_parameters(self) -> dict[str, list[str]]:
        """The parameters of the query for one page of rows."""
        paging = {name: list(self.parameters.get(name, ())) for name in PAGE_PARAMETERS}
        return self.filters | {name: values for name, values in paging.items() if values}

    @property
    def is_filtered(self) -> bool:
        """Whether any filter may exclude rows."""
        return any(name in self.parameters for name in (*_TIME, *FILTER_COLUMNS))

    @property
    def is_too_long(self) -> bool:
        """Whether the page would be too large: every link repeats the parameters."""
        counted = sum(len(values) for values in self.parameters.values())
        return counted > VALUES_MAX + BACK_MAX or len(self.href) > CHARS_MAX

    @property
    def last(self) -> str | None:
        """The requested window up to now, if any: see `window_length`, unless it is invalid."""
        return self._one("last")

    @property
    def columns(self) -> list[str]:
        """The columns to show, in their order; the default ones without a valid choice."""
        given = self._listed("columns")
        return [name for name in COLUMNS if name in given] or list(COLUMNS_DEFAULT)

    @property
    def view(self) -> list[str]:
        """Those of VIEWS that are chosen."""
        return [name for name in VIEWS if name in self._listed("view")]

    @property
    def is_first_page(self) -> bool:
        """Whether this is the first page of the rows."""
        return "cursor" not in self.parameters

    @property
    def is_live(self) -> bool:
        """Whether newly accepted rows belong on top of this page."""
        is_newest_first = self._one("order") in {None, Order.NEWEST_FIRST}
        return self.is_first_page and is_newest_first and "until" not in self.parameters

    @property
    def href(self) -> str:
        """The link to this state."""
        return f"{self.path}?{urlencode(self.parameters, doseq=True)}"

    @property
    def carried(self) -> list[tuple[str, str]]:
        """Hidden fields of a form that adds filters; the bounds have their own fields."""
        carried = {**self.parameters, **dict.fromkeys((*BOUND_PARAMETERS, *_PLACE, "columns"), ())}
        return [(name, value) for name in _KNOWN for value in carried.get(name, ())]

    def without_invalid(self, faulty: str | None) -> "PageState":
        """The first page of these rows without unknown parameters and the `faulty` one."""
        unknown = [name for name in self.parameters if name not in _KNOWN or name == faulty]
        return self._but(*_PLACE, *unknown)

    def first_page(self) -> "PageState":
        """The first page of the same rows."""
        return self._but(*_PLACE)

    @property
    def window(self) -> "PageState":
        """The same window without a filter."""
        return replace(
            self,
            parameters={name: self.parameters[name] for name in _TIME if name in self.parameters},
        )

    def live(self, seq: int) -> "PageState":
        """Those of these rows that are accepted after `seq`."""
        return self._but(*_PLACE)._with("after", (str(seq),))

    def only(self, name: str, *values: str) -> "PageState":
        """Those of these rows whose `name` is exactly one of `values`."""
        return self._but(*_PLACE)._with(name, tuple(map(literal, values)))

    def excluding(self, name: str, *values: str) -> "PageState":
        """Those of these rows whose `name` is none of `values`."""
        left = (*self.parameters.get(name, ()), *(f"!{literal(value)}" for value in values))
        return self._but(*_PLACE)._with(name, tuple(dict.fromkeys(left)))

    def about(self, name: str, value: str) -> "PageState":
        """All rows of the same window whose `name` is exactly `value`, without other filters.

        A link to all rows of a request must include those that the current filters exclude.
        """
        return self._but(*_PLACE, *FILTER_COLUMNS)._with(name, (literal(value),))

    @property
    def search(self) -> str | None:
        """The text of the search that the filters were read from, if that is to be shown."""
        return self._one(SEARCHED)

    def instead(
        self, parameters: Mapping[str, Iterable[str]], others: Mapping[str, Sequence[str]]
    ) -> "PageState":
        """These rows with the filters `others` in place of `parameters`."""
        state = self._but(*_PLACE)
        for name, values in parameters.items():
            for each in values:
                state = state.removing(name, each)
        for name, values in others.items():
            state = state._with(name, (*state.parameters.get(name, ()), *values))
        return state

    def searched(
        self, parameters: Mapping[str, Iterable[str]], text: str | None = None
    ) -> "PageState":
        """The first page of these rows with the filters `parameters`, which replace all others.

        `text` is what they were read from, if it says something else.
        """
        layout = {
            name: self.parameters[name] for name in ("order", *_LISTS) if name in self.parameters
        }
        if text is not None:
            layout[SEARCHED] = (text,)
        return replace(self, parameters={**{n: tuple(v) for n, v in parameters.items()}, **layout})

    def removing(self, name: str, value: str) -> "PageState":
        """These rows and those that this value of the filter excluded."""
        others = tuple(other for other in self.parameters.get(name, ()) if other != value)
        bare = self._but(*_PLACE, name)
        return bare._with(name, others) if others else bare

    def of_all_time(self) -> "PageState":
        """These filters without a window."""
        return self._but(*_PLACE, *_TIME)

    def within(self, window: str) -> "PageState":
        """These filters over the window up to now."""
        return self.of_all_time()._with("last", (window,))

    def between(self, since: str, until: str) -> "PageState":
        """These filters over an exact window."""
        return self.of_all_time()._with("since", (since,))._with("until", (until,))

    def toggling(self, view: str) -> "PageState":
        """The same rows with `view`, or without it if it is chosen."""
        chosen = [name for name in VIEWS if (name in self.view) != (name == view)]
        return self._with("view", (",".join(chosen),)) if chosen else self._but("view")

    def check_window(self) -> None:
        """Raise InvalidQuery if `last` is no length of time."""
        check_window(self.last)

    def as_of(self, now: datetime) -> "PageState":
        """The same with `last` resolved to an instant, as cursors need it.

        It is a full second, so that the same link gives the same page for a while.
        """
        length = window_length(self.last or "")
        if length is None:
            return self
        since = (now - length).replace(microsecond=0, tzinfo=None)
        return self._but("last")._with("since", (f"{since.isoformat()}Z",))

    def older(self, cursor: str) -> "PageState":
        """The next page of the same rows, which remembers the previous pages."""
        back = (*self.parameters.get("back", ()), *self.parameters.get("cursor", ()))
        if len(back) > BACK_MAX:
            back = (_FORGOTTEN, *back[-BACK_MAX + 1 :])
        turned = self._with("cursor", (cursor,))
        return turned._with("back", back) if back else turned

    def newer(self) -> "PageState | None":
        """The page before this one; None on the first page, and if it is not remembered."""
        if self.is_first_page:
            return None
        *back, cursor = self.parameters.get("back", ()) or ("",)
        if cursor == _FORGOTTEN:
            return None
        before = self._but("cursor", "back")
        if cursor:
            before = before._with("cursor", (cursor,))
        return before._with("back", tuple(back)) if back else before

    def _listed(self, name: str) -> list[str]:
        return (self._one(name) or "").split(",")

    def _one(self, name: str) -> str | None:
        values = self.parameters.get(name, ())
        return values[0] if values else None

    def _but(self, *names: str) -> "PageState":
        return replace(
            self,
            parameters={
                name: values for name, values in self.parameters.items() if name not in names
            },
        )

    def _with(self, name: str, values: Values) -> "PageState":
        return replace(self, parameters={**self.parameters, name: values})


def parse_state(parameters: Mapping[str, Iterable[str]]) -> PageState:
    """The state of a URL's parameters.

    Empty values, which forms send for empty fields, and repeated ones are dropped. Exact bounds
    take precedence over `last`, as they were typed.
    """
    cleaned = {
        name: tuple(dict.fromkeys(value for value in values if value))
        for name, values in parameters.items()
    }
    known = {name: values for name, values in cleaned.items() if values}
    for name in BOUND_PARAMETERS:
        if name in known:
            known[name] = tuple(map(from_picker, known[name]))
    for name in _LISTS:
        if name in known:
            known[name] = (",".join(known[name]),)
    if known.get("columns") == (",".join(COLUMNS_DEFAULT),):
        del known["columns"]
    if any(name in known for name in BOUND_PARAMETERS):
        known.pop("last", None)
    return PageState(known)


def retention_window(org: Organisation, now: datetime) -> dict[str, Any]:
    """How far back the rows of `org` are shown as of `now`: days and floor of None are no limit."""
    tier = Tier(org.tier)
    return {"tier": tier, "days": RETENTION_DAYS[tier], "floor": retention_floor(tier, now)}
