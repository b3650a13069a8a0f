"""A page of an organisation with forms: shown, redirected to, and shown again with errors."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from quart import request, url_for
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller, is_allowed
from service.access.roles import Role
from service.core.errors import Invalid
from service.pages.navigation import render_page
from service.pages.people.form_state import EMPTY_FORM, FormState
from service.pages.people.one_time_form import one_time_form
from service.pages.services import DashboardServices
from service.store.tables import Organisation

DONE_PARAMETER: Final = "done"
ROWS_MAX: Final = 50
"""How many rows of a list one page shows."""

PLACE: Final = ("find", "after")
PLACE_CHARS_MAX: Final = 255
"""No member's address is longer."""

_Row = TypeVar("_Row")

LoadView = Callable[
    [DashboardServices, AsyncSession, Caller, Organisation], Awaitable[dict[str, Any]]
]


@dataclass(frozen=True, slots=True)
class IssuedSecret:
    """A secret that only one response shows, what it belongs to, and an example of its use."""

    whose: str
    secret: str = field(repr=False)
    example: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class ListPart(Generic[_Row]):
    """The part of a long list that a page shows: what contains `find`, from after `after` on.

    The next part begins after `next_after`; None if this is the last.
    """

    rows: Sequence[_Row]
    find: str
    after: str
    next_after: str | None


@dataclass(frozen=True, slots=True)
class OrgPage:
    """One such page: its data, and the confirmations of its forms by code.

    `place` are the parameters that select the part of a long list to show: PLACE, or none.
    """

    endpoint: str
    template: str
    load: LoadView
    done: Mapping[str, str]
    place: tuple[str, ...] = ()

    def address(self, org: Organisation, done: str) -> str:
        """The address to redirect to after the form of the current request."""
        values: dict[str, Any] = {**self.here(), DONE_PARAMETER: done}
        return url_for(self.endpoint, slug=org.slug, **values)

    def here(self) -> dict[str, str]:
        """The part of the list that the current request selects. Raises Invalid.

        Every form of the page repeats it, so it must be shorter than a URL may be.
        """
        given = {name: request.args[name] for name in self.place if request.args.get(name)}
        for name, value in given.items():
            if len(value) > PLACE_CHARS_MAX:
                raise Invalid(f"{name} must be at most {PLACE_CHARS_MAX} characters", field=name)
        return given

    async def part(
        self, load: Callable[[str, str, int], Awaitable[Sequence[_Row]]], key: Callable[[_Row], str]
    ) -> ListPart[_Row]:
        """The part of the list that the current request selects.

        `load` is given what rows must contain, what they must come after, and their number.
        """
        find, after = (self.here().get(name, "") for name in PLACE)
        rows = await load(find, after, ROWS_MAX + 1)
        shown = rows[:ROWS_MAX]
        return ListPart(shown, find, after, key(shown[-1]) if len(rows) > len(shown) else None)

    async def show(
        self,
        services: DashboardServices,
        caller: Caller,
        org: Organisation,
        *,
        form_state: FormState = EMPTY_FORM,
        issued_secret: IssuedSecret | None = None,
    ) -> tuple[str, int]:
        """The page for `caller`, as of now, and its status."""
        async with services.store.read() as session:
            view = await self.load(services, session, caller, org)
        return await render_page(
            services.settings,
            caller,
            org,
            self.template,
            form_state.status,
            **view,
            form_state=form_state,
            issued_secret=issued_secret,
            here=self.here(),
            back=url_for(self.endpoint, slug=org.slug),
            sign_in_ways=services.sign_in.ways_again(),
            done=self.done.get(request.args.get(DONE_PARAMETER, "")),
            once=one_time_form(services.settings, caller, services.clock()),
        )


def may_decide_over(caller: Caller, role: str, org: Organisation) -> bool:
    """Whether `caller` may manage `role`. Only for display; actions are authorized again."""
    return is_allowed(caller.require_outranks, Role(role), org)
