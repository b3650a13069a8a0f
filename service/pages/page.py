"""Declares pages with forms: shown, submitted to actions of the API, and shown again with errors.

For each form this is done here, in this order: authenticate (401), find the organisation (404),
authorise and check the form's token (403), run the action with the fields in one transaction, then
redirect with a confirmation, or show the page again with what was typed and each error at its
field.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.callers import Caller
from service.access.refusals import SignInAgain
from service.access.roles import Capability
from service.core.errors import Conflict, Invalid, NotFound, Refusal
from service.pages.form_auth import Form, own_form
from service.pages.navigation import may, render_page
from service.pages.one_time_form import consume_form, one_time_form
from service.pages.services import DashboardServices
from service.store.store import UnitOfWork
from service.store.tables import Organisation
from service.web.dependencies import group_of
from service.web.endpoint import Action, Call, Services
from service.web.models import Answer, Request, form_values, model_of
from service.web.request_parsing import query_parameters

_S = TypeVar("_S", bound=Services)
_Parsed = TypeVar("_Parsed")
_Answer = TypeVar("_Answer", bound=Answer)
_Row = TypeVar("_Row")

View = Mapping[str, object]
Fields = Callable[[Form], dict[str, Any]]
"""Makes what an action receives of a form whose fields are not those of its model."""
Load = Callable[[Call[DashboardServices]], Awaitable[View]]

ANYWHERE: Final = ""
"""The field of errors that are of no single one."""

DONE_PARAMETER: Final = "done"

ROWS_MAX: Final = 50
"""How many rows of a list one page shows."""

PLACE: Final = ("find", "after")
"""The parameters that select the part of a list: what rows contain, and the row before them."""

PLACE_CHARS_MAX: Final = 255
"""No member's address is longer."""


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


async def list_part(
    load: Callable[[str, str, int], Awaitable[Sequence[_Row]]], key: Callable[[_Row], str]
) -> ListPart[_Row]:
    """The part of a list that the current request selects. Raises Invalid.

    `load` is given what rows must contain, what they must come after, and their number.
    """
    find, after = (_here().get(name, "") for name in PLACE)
    rows = await load(find, after, ROWS_MAX + 1)
    shown = rows[:ROWS_MAX]
    return ListPart(shown, find, after, key(shown[-1]) if len(rows) > len(shown) else None)


def _here() -> dict[str, str]:
    """The part of the list that the current request selects. Raises Invalid.

    Every form of the page repeats it, so it must be shorter than a URL may be.
    """
    given = {name: request.args[name] for name in PLACE if request.args.get(name)}
    for name, value in given.items():
        if len(value) > PLACE_CHARS_MAX:
            raise Invalid(f"{name} must be at most {PLACE_CHARS_MAX} characters", field=name)
    return given


@dataclass(frozen=True, slots=True)
class FormState:
    """What was typed into the form that is sent to `path`, and its errors by field."""

    path: str = ""
    typed: Form = field(default_factory=Form)
    faults: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    needs_sign_in: bool = False
    """Whether the member has to sign in again before they send the form."""

    @property
    def texts(self) -> list[str]:
        """All errors."""
        return list(self.faults.values())

    def text_in(self, path: str, name: str, otherwise: str = "") -> str:
        """The text of the field `name` in the form that is sent to `path`."""
        return self.typed.get(name, otherwise) if path == self.path else otherwise

    def fault_in(self, path: str, name: str) -> str | None:
        """The error of that field, or None."""
        return self.faults.get(name) if path == self.path else None


class Page:
    """A page for callers with `needs` (None: for every member).

    `done` has the confirmations of its forms by code. `takes` are parameters that fill its form in.
    One that `is_list` shows a part of a list (`list_part`), to which its forms lead back.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        name: str,
        path: str,
        template: str,
        load: Load,
        *,
        needs: Capability | None,
        done: Mapping[str, str],
        takes: Sequence[str] = (),
        is_list: bool = False,
    ) -> None:
        self._endpoint = f"{blueprint.name}.{name}"
        self._blueprint = blueprint
        self._template = template
        self._load = load
        self._needs = needs
        self._done = done
        self._takes = takes
        self._is_list = is_list
        self._has_one_time_form = False
        blueprint.add_url_rule(path, name, self._get, methods=["GET"])

    def form(
        self,
        path: str,
        name: str,
        action: Action[_S, _Parsed, _Answer],
        done: str | Callable[[_Answer], str],
        *,
        field: str = ANYWHERE,
        fields: Fields | None = None,
        then: "Page | None" = None,
    ) -> None:
        """Send a form to `path`: run `action` with its fields, then confirm what was `done`.

        That is a code, for the page `then` (by default this one). Errors of no field are shown at
        `field`.
        """

        async def confirm(call: Call[DashboardServices], answer: _Answer) -> ResponseReturnValue:
            said = done(answer) if callable(done) else done
            return redirect((then or self)._address(call.caller, call.org, said, self), 303)

        self._add(path, name, action, confirm, field, fields)

    def secret_form(
        self,
        path: str,
        name: str,
        action: Action[_S, _Parsed, _Answer],
        issued: Callable[[Call[DashboardServices], _Answer], IssuedSecret],
        *,
        field: str = ANYWHERE,
        fields: Fields | None = None,
    ) -> None:
        """As `form`, for an action that creates a secret, which only its response shows.

        The form works once: reloading the response, which resends it, creates no second secret.
        """
        self._has_one_time_form = True

        async def show(call: Call[DashboardServices], answer: _Answer) -> ResponseReturnValue:
            return await self._show(call, FormState(), issued(call, answer))

        self._add(path, name, action, show, field, fields, is_once=True)

    def _add(
        self,
        path: str,
        name: str,
        action: Action[_S, _Parsed, _Answer],
        answered: Callable[[Call[DashboardServices], _Answer], Awaitable[ResponseReturnValue]],
        field: str,
        fields: Fields | None,
        *,
        is_once: bool = False,
    ) -> None:
        """Send a form to `path`; see `form`."""

        async def submit(slug: str, **variables: str) -> ResponseReturnValue:
            services = group_of(DashboardServices)
            caller, org = await _authorize(services, slug, action.needs)
            form = await own_form(services.settings, caller)
            self._here()  # rejects what cannot be redirected back before anything is done
            call = Call(services, caller, org)
            given = _given(action, form) if fields is None else fields(form)
            before = partial(_consume, services, form) if is_once else None
            try:
                answer = await action.run(caller, org, given, variables, before)
            except (Invalid, Conflict, NotFound, SignInAgain) as refusal:
                self._require(caller, org)
                return await self._show(call, _refused(form, refusal, field))
            return await answered(call, answer)

        self._blueprint.add_url_rule(path, name, submit, methods=["POST"])

    async def _get(self, slug: str) -> ResponseReturnValue:
        services = group_of(DashboardServices)
        caller, org = await _authorize(services, slug, self._needs)
        place = PLACE if self._is_list else ()
        parameters = query_parameters(request, (*self._takes, *place, DONE_PARAMETER))
        done = self._done.get(only(parameters, DONE_PARAMETER) or "")
        given = {name: only(parameters, name) or "" for name in self._takes}
        state = FormState(request.path, Form(given))
        return await self._show(Call(services, caller, org), state, done=done)

    async def _show(
        self,
        call: Call[DashboardServices],
        state: FormState,
        issued_secret: IssuedSecret | None = None,
        done: str | None = None,
    ) -> ResponseReturnValue:
        """The page for the caller, as of now."""
        services, caller = call.services, call.caller
        has_once = self._has_one_time_form
        return await render_page(
            services.settings,
            caller,
            call.org,
            self._template,
            state.status,
            **await self._load(call),
            form_state=state,
            issued_secret=issued_secret,
            done=done,
            here=self._here(),
            back=url_for(self._endpoint, slug=call.org.slug),
            sign_in_ways=services.sign_in.ways_again(),
            once=one_time_form(services.settings, caller, services.clock()) if has_once else None,
        )

    def _here(self) -> dict[str, str]:
        return _here() if self._is_list else {}

    def _require(self, caller: Caller, org: Organisation) -> None:
        """Raise Forbidden unless `caller`, whose form is bound to this page, may open it."""
        if self._needs is not None:
            caller.require(self._needs, org)

    def _address(self, caller: Caller, org: Organisation, done: str, sent_from: "Page") -> str:
        """The page with the confirmation `done`; or if `caller` may not open it, another one."""
        for page in (self, sent_from):
            if page._needs is None or may(caller, page._needs, org):
                place: dict[str, Any] = page._here() if page is sent_from else {}
                return url_for(page._endpoint, slug=org.slug, **place, done=done)
        return url_for("dashboard.overview_page", slug=org.slug)


def bind_form(
    blueprint: Blueprint,
    path: str,
    name: str,
    action: Action[_S, _Parsed, _Answer],
    target: Callable[[str, _Answer], str],
) -> None:
    """Send a form to `path`: run `action` with its fields, then redirect to `target`.

    That is given the organisation's slug and the answer. Refusals are error pages.
    """

    async def submit(slug: str, **variables: str) -> ResponseReturnValue:
        services = group_of(DashboardServices)
        caller, org = await _authorize(services, slug, action.needs)
        form = await own_form(services.settings, caller)
        answer = await action.run(caller, org, _given(action, form), variables)
        return redirect(target(slug, answer), 303)

    blueprint.add_url_rule(path, name, submit, methods=["POST"])


async def _authorize(
    services: DashboardServices, slug: str, needs: Capability | None
) -> tuple[Caller, Organisation]:
    """The caller of a page or form of `slug`, and the organisation."""
    if needs is None:
        return await services.access.authorize_member(slug)
    return await services.authorize(slug, needs)


async def _consume(
    services: DashboardServices, form: Form, work: UnitOfWork, caller: Caller
) -> None:
    await consume_form(services.settings, work, caller, form)


def _given(action: Action[_S, _Parsed, _Answer], form: Form) -> dict[str, Any]:
    """The fields of `form` that the action's body has."""
    if action.body is None:
        return {}
    model = model_of(action.body)
    assert isinstance(model, type)  # noqa: S101 - as Parsed says, forms are bound to requests
    assert issubclass(model, Request)  # noqa: S101
    return form_values(model, form)


def _refused(form: Form, refusal: Refusal, otherwise: str) -> FormState:
    """The form of the current request after `refusal`: each fault is at its field, if there is."""
    if isinstance(refusal, SignInAgain):
        faults = {ANYWHERE: refusal.text}
        return FormState(request.path, form, faults, refusal.status, needs_sign_in=True)
    faults = {}
    for fault in (refusal, *refusal.further):
        place = fault.field if fault.field is not None and fault.field in form else otherwise
        faults.setdefault(place, fault.text)
    return FormState(request.path, form, faults, refusal.status)
