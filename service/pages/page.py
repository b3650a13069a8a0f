"""Declares pages with forms: shown, submitted to actions of the API, and shown again with errors.

For each form this is done here, in this order: authenticate (401), find the organisation (404),
authorise and check the form's token (403), run the action with the fields in one transaction, then
redirect with a confirmation, or show the page again with what was typed and each error at its
field.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.callers import Caller
from service.access.roles import Capability
from service.core.errors import Conflict, Invalid, NotFound, Refusal, SignInAgain
from service.pages.form_auth import Form, own_form
from service.pages.navigation import may, render_page
from service.pages.people.one_time_form import consume_form, one_time_form
from service.pages.people.page import DONE_PARAMETER, IssuedSecret
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

View = Mapping[str, object]
Load = Callable[[Call[DashboardServices]], Awaitable[View]]

ANYWHERE: Final = ""
"""The field of errors that are of no single one."""


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
    ) -> None:
        self._endpoint = f"{blueprint.name}.{name}"
        self._blueprint = blueprint
        self._template = template
        self._load = load
        self._needs = needs
        self._done = done
        self._takes = takes
        self._has_one_time_form = False
        blueprint.add_url_rule(path, name, self._get, methods=["GET"])

    def form(
        self,
        path: str,
        name: str,
        action: Action[_S, _Parsed, _Answer],
        done: str | Callable[[_Answer], str | IssuedSecret],
        *,
        field: str = ANYWHERE,
        then: "Page | None" = None,
        is_once: bool = False,
    ) -> None:
        """Send a form to `path`: run `action` with its fields, then confirm what was `done`.

        That is a code, for the page `then` (by default this one), or a new secret, which only this
        response shows. Such a form `is_once`: reloading the response, which resends the form,
        creates no second secret. Errors of no field are shown at `field`.
        """
        self._has_one_time_form |= is_once

        async def submit(slug: str, **variables: str) -> ResponseReturnValue:
            services = group_of(DashboardServices)
            caller, org = await _authorize(services, slug, action.needs)
            form = await own_form(services.settings, caller)
            before = partial(_consume, services, form) if is_once else None
            try:
                answer = await action.run(caller, org, _given(action, form), variables, before)
            except (Invalid, Conflict, NotFound, SignInAgain) as refusal:
                self._require(caller, org)
                return await self._show(services, caller, org, _refused(form, refusal, field))
            said = done(answer) if callable(done) else done
            if isinstance(said, IssuedSecret):
                return await self._show(services, caller, org, FormState(), said)
            return redirect((then or self)._address(caller, org, said, self), 303)

        self._blueprint.add_url_rule(path, name, submit, methods=["POST"])

    async def _get(self, slug: str) -> ResponseReturnValue:
        services = group_of(DashboardServices)
        caller, org = await _authorize(services, slug, self._needs)
        parameters = query_parameters(request, (*self._takes, DONE_PARAMETER))
        done = self._done.get(only(parameters, DONE_PARAMETER) or "")
        given = {name: only(parameters, name) or "" for name in self._takes}
        return await self._show(
            services, caller, org, FormState(request.path, Form(given)), done=done
        )

    async def _show(
        self,
        services: DashboardServices,
        caller: Caller,
        org: Organisation,
        state: FormState,
        issued_secret: IssuedSecret | None = None,
        done: str | None = None,
    ) -> ResponseReturnValue:
        """The page for `caller`, as of now."""
        has_once = self._has_one_time_form
        return await render_page(
            services.settings,
            caller,
            org,
            self._template,
            state.status,
            **await self._load(Call(services, caller, org)),
            form_state=state,
            issued_secret=issued_secret,
            done=done,
            back=url_for(self._endpoint, slug=org.slug),
            sign_in_ways=services.sign_in.ways_again(),
            once=one_time_form(services.settings, caller, services.clock()) if has_once else None,
        )

    def _require(self, caller: Caller, org: Organisation) -> None:
        """Raise Forbidden unless `caller`, whose form is bound to this page, may open it."""
        if self._needs is not None:
            caller.require(self._needs, org)

    def _address(self, caller: Caller, org: Organisation, done: str, sent_from: "Page") -> str:
        """The page with the confirmation `done`; or if `caller` may not open it, another one."""
        for page in (self, sent_from):
            if page._needs is None or may(caller, page._needs, org):
                return url_for(page._endpoint, slug=org.slug, done=done)
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
