"""The list of bindings: filtered, as of now or an earlier instant, a page at a time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final
from urllib.parse import urlencode

from quart import Blueprint

from service.access.roles import Capability
from service.core.errors import Invalid
from service.pages.page import FormState, Page, PageCall, View
from service.pages.state import from_picker
from service.pages.trust.binding_view import ShownBinding, show_bindings
from service.trust.bindings.listing import BindingFilter, list_page, parse_as_of, parse_state
from service.trust.bindings.repository import BindingState, count_by_state
from service.trust.bindings.rules import SUB_PATTERN_MAX
from service.trust.refusals import AS_OF_IN_FUTURE

blueprint = Blueprint("dashboard_bindings", __name__, url_prefix="/admin/ui/orgs/<slug>/bindings")

UNUSED: Final = "unused"
"""The state of active bindings that have admitted no token yet, on this page."""

_FILTERS: Final[tuple[str, ...]] = ("text", "state", "asOf")
_PLACES: Final = ("after", "before")
PARAMETERS: Final = (*_FILTERS, *_PLACES)


@Page(
    blueprint,
    "",
    "bindings.html",
    needs=Capability.OIDC_READ,
    done={
        "revoked_repository": "The repository is revoked: none of its bindings matches a token now."
    },
    takes=PARAMETERS,
    reads_form=True,
)
async def bindings_page(call: PageCall, state: FormState) -> View:
    """Which CI jobs are trusted, or were at an earlier instant.

    Raises Invalid, NO_SUCH_BINDING for parameters that its forms never send.
    """
    view = await load_bindings_view(call, state.typed)
    return {"page": view, "status": Invalid.status if view["faults"] else state.status}


async def load_bindings_view(call: PageCall, typed: Mapping[str, str]) -> View:
    """The page's data for the parameters that are `typed`; an empty one is none.

    `newer`, `older` and those that `of_state` returns are query strings, `as_of` is None for now.
    `counts` are those of the states that the page can be narrowed to, of any text.
    """
    now, org = call.services.clock(), call.org
    parameters = {name: text for name in PARAMETERS if (text := typed.get(name))}
    faults: dict[str, str] = {}
    as_of = _as_of(from_picker(parameters.get("asOf", "")), now, faults)
    if len(parameters.get("text", "")) > SUB_PATTERN_MAX:
        faults["text"] = f"text must be at most {SUB_PATTERN_MAX} chars"
    state = parameters.get("state")
    matching = BindingFilter(
        state=BindingState.ACTIVE if state == UNUSED else parse_state(state),
        as_of=as_of,
        text=parameters.get("text"),
        is_unused=state == UNUSED,
    )
    filters = {name: parameters[name] for name in _FILTERS if name in parameters}
    view = {
        "parameters": parameters,
        "faults": faults,
        "as_of": None if faults else as_of,
        "of_state": partial(_of_state, filters),
    }
    if faults:
        return view
    async with call.read() as session:
        page = await list_page(
            session,
            org.id,
            matching,
            after=parameters.get("after"),
            before=parameters.get("before"),
        )
        rows = await show_bindings(session, org.id, page.bindings, now, as_of)
        counts = await count_by_state(session, org.id) if as_of is None else {}
    return view | {
        "rows": rows,
        "by_repository": _by_repository(rows),
        "total": page.total,
        "newer": _turned(filters, before=rows[0]) if page.has_newer and rows else None,
        "older": _turned(filters, after=rows[-1]) if page.has_older else None,
        "counts": counts,
    }


def _by_repository(rows: Sequence[ShownBinding]) -> list[tuple[str, list[ShownBinding]]]:
    """The rows by repository, that of the newest one first; empty for other subjects."""
    groups: dict[tuple[str, str], list[ShownBinding]] = {}
    for row in rows:
        groups.setdefault((row.binding.issuer, row.parts[0]), []).append(row)
    return [(repository, own) for (_, repository), own in groups.items()]


def _of_state(filters: Mapping[str, str], state: str) -> str:
    """The query string for those in `state`, or for all if it is empty."""
    kept = {name: text for name, text in filters.items() if name != "state"}
    return urlencode({**kept, "state": state} if state else kept)


def _as_of(text: str, now: datetime, faults: dict[str, str]) -> datetime | None:
    """The requested instant; None, with an entry in `faults`, if it is invalid or in the future."""
    try:
        as_of = parse_as_of(text or None)
    except Invalid as error:
        faults["asOf"] = error.text
        return None
    if as_of is not None and as_of > now:
        faults["asOf"] = AS_OF_IN_FUTURE.text
        return None
    return as_of


def _turned(filters: Mapping[str, str], **place: ShownBinding) -> str:
    return urlencode({**filters, **{name: row.binding.id for name, row in place.items()}})
