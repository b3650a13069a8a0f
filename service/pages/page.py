"""Declares pages: who may open them, which parameters they take, and the forms on them.

For each page this is done here, in this order: authenticate (401), find the organisation (404),
authorise (403), refuse unknown parameters and parse the others (400), load, render. For each form:
the same up to the rights, then check the form's token (403), run its action with the fields in one
transaction, and redirect with a confirmation, or show the page again with what was typed and each
error at its field.

A path without an organisation belongs to the member who is signed in: its handler receives an
`OwnCall`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue
from werkzeug.datastructures import MultiDict

from analytics.model.filters import only
from analytics.model.rows import VerdictSource
from service.access.callers import Caller, MemberPrincipal, is_allowed
from service.access.cross_site import FORM_TOKEN_FIELD, check_form_token
from service.access.refusals import NotOrgAdmin, NotTeamAdmin, SignInAgain
from service.access.roles import Capability
from service.access.sign_in.completion import consume
from service.access.sign_in.signed_cookie import SignedValue, Signer, expiry
from service.core.errors import Conflict, Invalid, NotFound, Refusal
from service.core.secrets import new_token
from service.core.settings import Settings
from service.pages.navigation import page_context
from service.pages.services import DashboardServices
from service.pages.streaming import streamed
from service.store.organisations import get_org_by_id
from service.store.store import UnitOfWork
from service.store.tables import Member
from service.web.dependencies import BaseServices, group_of
from service.web.endpoint import VARIABLE, Action, Call, Taken
from service.web.models import Answer, Parameters, Request, form_values, model_of
from service.web.paging import FIND_CHARS_MAX, list_after
from service.web.request_parsing import all_parameters
from service.web.templates import render_template

_S = TypeVar("_S", bound=BaseServices)
_Parsed = TypeVar("_Parsed")
_Answer = TypeVar("_Answer", bound=Answer)
_Row = TypeVar("_Row")

PageCall: TypeAlias = Call[DashboardServices]
Form = MultiDict[str, str]
View = Mapping[str, object]
Fields = Callable[[Form], dict[str, Any]]
"""Makes what an action receives of a form whose fields are not those of its model."""
Check = Callable[[PageCall, Form], None]
"""Raises what is to be said of a form before its action runs."""
Load = Callable[..., Awaitable[View | ResponseReturnValue]]
"""Makes a page of its call, its parsed query if it takes one, and the variables of its path.

A `status` among its values is the response's. A response in place of values is sent as it is.
"""

PageHandler = Callable[..., Awaitable[ResponseReturnValue]]

_SHOWN: Final = (Invalid, Conflict, NotFound, SignInAgain, NotOrgAdmin, NotTeamAdmin)
"""The refusals that are said on the page of the form; all others are a page of their own."""

ANYWHERE: Final = ""
"""The field of errors that are of no single one."""

DONE_PARAMETER: Final = "done"

_ONCE_FIELD: Final = "once"

FORM_SPENT: Final = Conflict.of("this form was already submitted or has expired: reload its page")

ROWS_MAX: Final = 50
"""How many rows of a list one page shows."""

PLACE: Final = ("find", "after")
"""The parameters that select the part of a list: what rows contain, and the row before them."""


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

    `load` and `key` are as in `list_after`.
    """
    find, after = (_here().get(name, "") for name in PLACE)
    rows, next_after = await list_after(load, key, find, after, ROWS_MAX)
    return ListPart(rows, find, after, next_after)


def _here() -> dict[str, str]:
    """The part of the list that the current request selects. Raises Invalid.

    Every form of the page repeats it, so it must be shorter than a URL may be.
    """
    place = {name: request.args[name] for name in PLACE if request.args.get(name)}
    for name, value in place.items():
        if len(value) > FIND_CHARS_MAX:
            raise Invalid(f"{name} must be at most {FIND_CHARS_MAX} characters", field=name)
    return place


@dataclass(frozen=True, slots=True)
class FormState:
    """What was typed into the form that is sent to `path`, and its errors by field.

    Where several forms go to one address, `path` is what tells them apart.
    """

    path: str = ""
    typed: Form = field(default_factory=Form)
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)
    status: int = 200
    needs_sign_in: bool = False
    """Whether the member has to sign in again before they send the form."""

    refusal: Refusal | None = None
    """Why the form was refused, if it was sent."""

    @property
    def texts(self) -> list[str]:
        """All errors."""
        return [text for texts in self.faults.values() for text in texts]

    def text_in(self, path: str, name: str, otherwise: str = "") -> str:
        """The text of the field `name` in the form that is sent to `path`."""
        return self.typed.get(name, otherwise) if path == self.path else otherwise

    def fault_in(self, path: str, name: str) -> str | None:
        """The errors of that field, or None."""
        texts = self.faults.get(name) if path == self.path else None
        return "; ".join(texts) if texts else None


@dataclass(frozen=True, slots=True)
class OwnCall(Call[DashboardServices]):
    """A call by a member for what is theirs, such as their sessions."""

    caller: MemberPrincipal

    @asynccontextmanager
    async def change(
        self, *, is_sensitive: bool = False
    ) -> AsyncIterator[tuple[UnitOfWork, MemberPrincipal, Member]]:
        """One write transaction, and the member as they are in it.

        Raises Unauthenticated, and if the change `is_sensitive`, SignInAgain.
        """
        async with self.services.store.write() as work:
            present, member = await self.services.access.reauthorize_self(
                work.session, self.caller, is_sensitive=is_sensitive
            )
            yield work, present, member


class _Access(NamedTuple):
    """What callers need for a page: `needs` or `alternative`; None: every member may open it.

    With `also` they need both capabilities.
    """

    needs: Capability | None
    alternative: Capability | None = None
    keeps_alive: bool = True
    also: Capability | None = None

    async def call(self, slug: str | None) -> PageCall:
        """The current request's call, in the organisation or for the member's own page.

        Raises Unauthenticated, OrgNotFound, Forbidden, in this order.
        """
        services = group_of(DashboardServices)
        if slug is None:
            member = await services.access.authorize_self()
            async with services.store.read() as session:
                own_org = await get_org_by_id(session, member.tenant_id)
            return OwnCall(services, member, own_org)
        if self.needs is None:
            caller, org = await services.access.authorize_member(slug)
        else:
            caller, org = await services.access.authorize(
                slug,
                self.needs,
                VerdictSource.DASHBOARD,
                alternative=self.alternative,
                keeps_alive=self.keeps_alive,
            )
        if self.also is not None:
            caller.require(self.also, org)
        return Call(services, caller, org)

    def require(self, call: PageCall) -> None:
        """Raise Forbidden unless the caller has what is needed, `alternative` apart."""
        for needed in (self.needs, self.also):
            if needed is not None:
                call.caller.require(needed, call.org)


class Page:
    """A page for callers with `needs`, or `alternative` (None: for every member), and with `also`.

    It decorates the function that loads it, whose name is the endpoint's.

    `done` has the confirmations of its forms by code. `takes` are parameters that fill its form in,
    all others are parsed as `query`. One that `is_list` shows a part of a list (`list_part`), to
    which its forms lead back. One that `is_streamed` is sent in parts (`service.pages.streaming`).
    If what a page shows depends on what was typed, `reads_form`: its loader receives the FormState.
    """

    _load: Load
    _endpoint: str

    def __init__(
        self,
        blueprint: Blueprint,
        path: str,
        template: str,
        *,
        needs: Capability | None,
        alternative: Capability | None = None,
        also: Capability | None = None,
        done: Mapping[str, str] | None = None,
        takes: Sequence[str] = (),
        query: Parameters[Any] | None = None,
        is_list: bool = False,
        is_streamed: bool = False,
        reads_form: bool = False,
    ) -> None:
        self._blueprint = blueprint
        self._path = path
        self._template = template
        self._access = _Access(needs, alternative, also=also)
        self._done = done or {}
        self._takes = takes
        self._sent = Taken(query)
        self._is_list = is_list
        self._is_streamed = is_streamed
        self._reads_form = reads_form
        self._has_one_time_form = False

    def __call__(self, load: Load) -> Self:
        """Register the page that `load` loads."""
        self._sent.check(load, _own_part(self._path), int(self._reads_form))
        self._load = load
        self._endpoint = f"{self._blueprint.name}.{load.__name__}"
        self._blueprint.add_url_rule(self._path, load.__name__, self._get, methods=["GET"])
        return self

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
        at: Callable[[_Answer, Form], Mapping[str, str]] | None = None,
        gone: "Page | None" = None,
        check: Check | None = None,
    ) -> None:
        """Send a form to `path`: run `action` with its fields, then confirm what was `done`.

        That is a code, for the page `then` (by default this one), where `at` says: the variables of
        its path and its parameters. Errors of no field are shown at `field`. What is not found is
        said on the page `gone` (by default this one). What `check` raises is said before it runs.
        """

        async def confirm(
            call: PageCall,
            answer: _Answer,
            form: Form,
            variables: Mapping[str, str],
        ) -> ResponseReturnValue:
            code = done(answer) if callable(done) else done
            place = {} if at is None else at(answer, form)
            return redirect((then or self)._address(call, code, self, variables, place), 303)

        self._add(path, name, action, confirm, field, fields, gone=gone, check=check)

    def secret_form(
        self,
        path: str,
        name: str,
        action: Action[_S, _Parsed, _Answer],
        issued: Callable[[PageCall, _Answer], IssuedSecret],
        *,
        field: str = ANYWHERE,
        fields: Fields | None = None,
    ) -> None:
        """As `form`, for an action that creates a secret, which only its response shows.

        The form works once: reloading the response, which resends it, creates no second secret.
        """
        self._has_one_time_form = True

        async def show(
            call: PageCall, answer: _Answer, _: Form, variables: Mapping[str, str]
        ) -> ResponseReturnValue:
            return await self.show(call, FormState(), variables, issued(call, answer))

        self._add(path, name, action, show, field, fields, is_once=True)

    def _add(
        self,
        path: str,
        name: str,
        action: Action[_S, _Parsed, _Answer],
        answered: Callable[
            [PageCall, _Answer, Form, Mapping[str, str]],
            Awaitable[ResponseReturnValue],
        ],
        field: str,
        fields: Fields | None,
        *,
        gone: "Page | None" = None,
        check: Check | None = None,
        is_once: bool = False,
    ) -> None:
        """Send a form to `path`; see `form`."""
        read = fields or _fields_of(action)

        @page_post(self._blueprint, path, needs=action.needs, name=name)
        async def submit(call: PageCall, form: Form, **variables: str) -> ResponseReturnValue:
            self._here()  # rejects what cannot be redirected back before anything is done
            before = partial(_consume, call.services.settings, form) if is_once else None
            try:
                if check is not None:
                    check(call, form)
                answer = await action.run(call.caller, call.org, read(form), variables, before)
            except _SHOWN as refusal:
                page = gone if gone is not None and isinstance(refusal, NotFound) else self
                page.require(call)
                return await page.show(call, _refused(form, refusal, field), variables)
            return await answered(call, answer, form, variables)

    async def _get(self, slug: str | None = None, **variables: str) -> ResponseReturnValue:
        call = await self._access.call(slug)
        place = PLACE if self._is_list else ()
        own = (*self._takes, *place, *((DONE_PARAMETER,) if self._done else ()))
        query = self._sent.sent_query(own)
        parameters = all_parameters(request)
        done = self._done.get(only(parameters, DONE_PARAMETER) or "")
        typed = {name: only(parameters, name) or "" for name in self._takes}
        state = FormState(request.path, Form(typed))
        return await self.show(call, state, variables, done=done, query=query)

    async def show(
        self,
        call: PageCall,
        state: FormState,
        variables: Mapping[str, str],
        issued_secret: IssuedSecret | None = None,
        done: str | None = None,
        query: tuple[Any, ...] | None = None,
        **more: Any,  # noqa: ANN401 - each template has its own
    ) -> ResponseReturnValue:
        """The page for the caller, as of now, with `more` values; by default without parameters."""
        if query is None:
            query = () if self._sent.query is None else (self._sent.query.parse_texts({}),)
        own = self._own(variables)
        read = (state,) if self._reads_form else ()
        view = await self._load(call, *query, *read, **own)
        if not isinstance(view, Mapping):
            return view
        sign_in = call.services.sign_in
        values: dict[str, Any] = {
            "form_state": state,
            "issued_secret": issued_secret,
            "done": done,
            "here": self._here(),
            "back": self._url(call, own),
            "sign_in_ways": {
                "has_passkeys": sign_in.relying_party is not None,
                "providers": sign_in.providers.values(),
            },
            "once": _one_time_form(call) if self._has_one_time_form else None,
            **view,
            **more,
            **page_context(call.services, call.caller, call.org),
        }
        status = values.pop("status", state.status)
        if self._is_streamed:
            return await streamed(self._template, status, **values)
        return await render_template(self._template, **values), status

    def require(self, call: PageCall) -> None:
        """Raise Forbidden unless the caller, whose form is bound to this page, may open it."""
        self._access.require(call)

    def address(self, call: PageCall, done: str, **variables: str) -> str:
        """The page with the confirmation `done`, or the overview if the caller may not open it."""
        return self._address(call, done, self, variables, {})

    def _here(self) -> dict[str, str]:
        return _here() if self._is_list else {}

    def _own(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Those `variables` of a form's path that are this page's, too."""
        return {name: variables[name] for name in VARIABLE.findall(_own_part(self._path))}

    def _url(self, call: PageCall, variables: Mapping[str, str], **parameters: str) -> str:
        values: dict[str, Any] = {**self._own(variables), **parameters}
        if not isinstance(call, OwnCall):
            values["slug"] = call.org.slug
        return url_for(self._endpoint, **values)

    def _address(
        self,
        call: PageCall,
        done: str,
        sent_from: "Page",
        variables: Mapping[str, str],
        at: Mapping[str, str],
    ) -> str:
        """The page with the confirmation `done`; or if the caller may not open it, another one."""
        for page, place in ((self, at), (sent_from, {})):
            if is_allowed(page._access.require, call):
                parameters = {**(page._here() if page is sent_from else {}), **place, "done": done}
                return page._url(call, {**variables, **place}, **parameters)
        return url_for("dashboard.overview_page", slug=call.org.slug)


def page_get(
    blueprint: Blueprint,
    path: str,
    *,
    needs: Capability | None,
    alternative: Capability | None = None,
    query: Parameters[Any] | None = None,
    keeps_alive: bool = True,
) -> Callable[[PageHandler], PageHandler]:
    """Register a handler of what a page or its script requests beside the page itself.

    Requests that a page repeats by itself do not keep a session alive (`keeps_alive`).
    """
    access, takes = _Access(needs, alternative, keeps_alive), Taken(query)

    def register(handler: PageHandler) -> PageHandler:
        takes.check(handler, _own_part(path))

        async def route(slug: str | None = None, **variables: str) -> ResponseReturnValue:
            call = await access.call(slug)
            return await handler(call, *takes.sent_query(), **variables)

        blueprint.add_url_rule(path, handler.__name__, route, methods=["GET"])
        return handler

    return register


def page_post(
    blueprint: Blueprint,
    path: str,
    *,
    needs: Capability | None,
    name: str | None = None,
    is_limited: bool = False,
) -> Callable[[PageHandler], PageHandler]:
    """Register a handler of a form, which receives its fields once its token is checked.

    For what `Page.form` cannot do: a form whose answer is a page of its own. One that `is_limited`
    counts as an attempt of its address.
    """
    access = _Access(needs)

    def register(handler: PageHandler) -> PageHandler:
        async def submit(slug: str | None = None, **variables: str) -> ResponseReturnValue:
            call = await access.call(slug)
            if is_limited:
                call.services.sign_in.attempts.count(call.caller.origin.source_ip)
            form = await _own_form(call.services.settings, call.caller)
            return await handler(call, form, **variables)

        blueprint.add_url_rule(path, name or handler.__name__, submit, methods=["POST"])
        return handler

    return register


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
    read = _fields_of(action)

    @page_post(blueprint, path, needs=action.needs, name=name)
    async def submit(call: PageCall, form: Form, **variables: str) -> ResponseReturnValue:
        answer = await action.run(call.caller, call.org, read(form), variables)
        return redirect(target(call.org.slug, answer), 303)


async def _own_form(settings: Settings, caller: Caller) -> Form:
    """The form of the current request. Raises FOREIGN_FORM unless it was shown to this session.

    The admin token needs no form token: browsers do not send its header by themselves.
    """
    form: Form = await request.form
    if isinstance(caller, MemberPrincipal):
        check_form_token(form.get(FORM_TOKEN_FIELD), settings.secret_key, caller.session_id)
    return form


def _own_part(path: str) -> str:
    """`path` without the organisation, which is no argument of a handler."""
    return path.replace("<slug>", "")


def _fields_of(action: Action[_S, _Parsed, _Answer]) -> Fields:
    """How the fields of a form become what `action` receives. Raises TypeError if they cannot."""
    if action.query is not None:
        raise TypeError(f"{action.handler.__name__} takes parameters, which no form has")
    if action.body is None:
        return lambda _: {}
    model = model_of(action.body)
    if not (isinstance(model, type) and issubclass(model, Request)):
        raise TypeError(f"the body of {action.handler.__name__} is no Request")
    return partial(form_values, model)


def _refused(form: Form, refusal: Refusal, otherwise: str) -> FormState:
    """The form of the current request after `refusal`: each fault is at its field, if there is."""
    if isinstance(refusal, SignInAgain):
        texts = {ANYWHERE: [refusal.text]}
        return FormState(
            request.path, form, texts, refusal.status, needs_sign_in=True, refusal=refusal
        )
    faults: dict[str, list[str]] = {}
    for fault in (refusal, *refusal.further):
        place = fault.field if fault.field is not None and fault.field in form else otherwise
        faults.setdefault(place, []).append(fault.text)
    return FormState(request.path, form, faults, refusal.status, refusal=refusal)


class _OneTimeForm(SignedValue, frozen=True, kw_only=True):
    """A form of one session's page; `session_id` is None for the admin token."""

    session_id: str | None


def _one_time_form(call: PageCall) -> str:
    """The value of _ONCE_FIELD in a form shown to the caller, valid as long as a session can be."""
    settings, now = call.services.settings, call.services.clock()
    expires_at = expiry(now, timedelta(seconds=settings.session_absolute_s))
    form = _OneTimeForm(id=new_token(), expires_at=expires_at, session_id=_session_id(call.caller))
    return _signer(settings).sign(form)


async def _consume(settings: Settings, form: Form, work: UnitOfWork, caller: Caller) -> None:
    """Mark `form` as used, as part of this transaction. Raises FORM_SPENT."""
    sent = _signer(settings).read(form.get(_ONCE_FIELD), _OneTimeForm, work.now)
    # Bound to the session: an unused form of another one must not create a secret here.
    if sent is None or sent.session_id != _session_id(caller) or not await consume(work, sent):
        raise FORM_SPENT


def _signer(settings: Settings) -> Signer:
    return Signer(settings.secret_key, "one-time form")


def _session_id(caller: Caller) -> str | None:
    return caller.session_id if isinstance(caller, MemberPrincipal) else None
