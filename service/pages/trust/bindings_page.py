"""The list of bindings: filtered, as of now or an earlier instant, a page at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from analytics.model.filters import only
from service.core.errors import Invalid
from service.pages.trust.binding_view import ShownBinding, show_bindings
from service.store.tables import Organisation
from service.trust.bindings.listing import BindingFilter, list_page, parse_as_of, parse_state
from service.trust.bindings.rules import SUB_PATTERN_MAX
from service.trust.bindings.services import BindingServices

_FILTERS: Final[tuple[str, ...]] = ("text", "state", "asOf")
_PLACES: Final = ("after", "before")
PARAMETERS: Final = (*_FILTERS, *_PLACES)


@dataclass(frozen=True, slots=True)
class BindingsView:
    """The template's data. `newer` and `older` are query strings, `as_of` is None for now."""

    given: Mapping[str, str]
    faults: Mapping[str, str]
    as_of: datetime | None = None
    rows: tuple[ShownBinding, ...] = ()
    total: int = 0
    newer: str | None = None
    older: str | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return Invalid.status if self.faults else 200

    @property
    def is_narrowed(self) -> bool:
        """Whether there may be bindings that are not listed."""
        return any(name in self.given for name in PARAMETERS)

    @property
    def others(self) -> str:
        """The query string for revoked ones as of the same instant."""
        return urlencode({**self.given, "state": "revoked"})


async def load_bindings_view(
    services: BindingServices, org: Organisation, parameters: Mapping[str, list[str]]
) -> BindingsView:
    """The page's data for these parameters.

    Raises InvalidQuery, Invalid, BindingNotFound for parameters that its forms never send.
    """
    now = services.clock()
    given = {name: text for name in PARAMETERS if (text := only(parameters, name))}
    faults: dict[str, str] = {}
    as_of = _as_of(given.get("asOf"), now, faults)
    if len(given.get("text", "")) > SUB_PATTERN_MAX:
        faults["text"] = f"text must be at most {SUB_PATTERN_MAX} chars"
    matching = BindingFilter(
        state=parse_state(given.get("state")), as_of=as_of, text=given.get("text")
    )
    if faults:
        return BindingsView(given, faults)
    async with services.store.read() as session:
        page = await list_page(
            session, org.id, matching, after=given.get("after"), before=given.get("before")
        )
        rows = await show_bindings(session, org.id, page.bindings, now, as_of)
    filters = {name: given[name] for name in _FILTERS if name in given}
    return BindingsView(
        given,
        faults,
        as_of,
        tuple(rows),
        page.total,
        newer=_turned(filters, before=rows[0]) if page.has_newer and rows else None,
        older=_turned(filters, after=rows[-1]) if page.has_older else None,
    )


def _as_of(text: str | None, now: datetime, faults: dict[str, str]) -> datetime | None:
    """The requested instant; None, with an entry in `faults`, if it is invalid or in the future."""
    try:
        as_of = parse_as_of(text)
    except Invalid as error:
        faults["asOf"] = error.text
        return None
    if as_of is not None and as_of > now:
        faults["asOf"] = "asOf must not be in the future"
        return None
    return as_of


def _turned(filters: Mapping[str, str], **place: ShownBinding) -> str:
    return urlencode({**filters, **{name: row.binding.id for name, row in place.items()}})
