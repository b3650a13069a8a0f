"""Changes to an organisation by its members: one transaction each, within the caller's role.

A step is what one form does: a function of the `Change`, through which it does everything.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from quart import redirect, request
from quart.typing import ResponseReturnValue

from analytics.model.rows import AuditContext
from service.access.callers import Caller
from service.dashboard.form_auth import Form, authorize_form
from service.dashboard.people.form_state import FormState, refused
from service.dashboard.people.one_time_form import spend_form
from service.dashboard.people.page import IssuedSecret, OrgPage
from service.dashboard.services import DashboardServices
from service.errors import Conflict, Invalid, NotFound
from service.orgs.repository import get_member
from service.orgs.roles import Capability, Role
from service.store.store import UnitOfWork
from service.store.tables import Member, Organisation

_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class Change:
    """One open transaction on `org` by `caller`, whose rights were read in it, and their form."""

    work: UnitOfWork
    org: Organisation
    caller: Caller
    form: Form
    public_url: str

    @property
    def by(self) -> AuditContext:
        """The caller and the origin in audit rows of the change."""
        return self.caller.audit_context

    def typed(self, name: str) -> str:
        """The text of the field `name`, without surrounding whitespace."""
        return self.form.get(name, "").strip()

    async def member(self, name: str) -> Member:
        """The member with this id or address, if the caller may manage them.

        Raises NotFound, Forbidden. Steps get members only here, so that none skips the check.
        """
        member = await get_member(self.work.session, self.org, name)
        self.caller.require_outranks(Role(member.role), self.org)
        return member

    def role(self, name: str) -> str:
        """The role `name`, if the caller may assign it. Raises Invalid, Forbidden."""
        if name not in set(Role):
            raise Invalid(f"role must be one of {', '.join(Role)}", field="role")
        self.caller.require_outranks(Role(name), self.org)
        return name


async def submit(
    services: DashboardServices,
    slug: str,
    page: OrgPage,
    step: Callable[[Change], Awaitable[str]],
    field: str | None = None,
) -> ResponseReturnValue:
    """Run `step` for the form of the current request, then redirect to `page`.

    `step` returns the page's code for what was done. Its errors are shown at the field that they
    name, or at `field`.
    """
    caller, org, form = await authorize_form(services, slug, Capability.ORG_ADMIN)
    page.here()  # rejects a request that cannot be redirected back before anything is done
    done = await _attempt(services, caller, org, form, step, field)
    if isinstance(done, FormState):
        return await page.show(services, caller, org, form_state=done)
    return redirect(page.address(org, done), 303)


async def issue_secret(
    services: DashboardServices,
    slug: str,
    page: OrgPage,
    step: Callable[[Change], Awaitable[IssuedSecret]],
    field: str | None = None,
) -> ResponseReturnValue:
    """The same for a form that creates a secret, which only this response shows.

    Such a form works once: reloading the response, which resends the form, creates no second one.
    """
    caller, org, form = await authorize_form(services, slug, Capability.ORG_ADMIN)
    page.here()

    async def once(change: Change) -> IssuedSecret:
        await spend_form(services.settings, change.work, change.caller, form)
        return await step(change)

    issued_secret = await _attempt(services, caller, org, form, once, field)
    if isinstance(issued_secret, FormState):
        return await page.show(services, caller, org, form_state=issued_secret)
    return await page.show(services, caller, org, issued_secret=issued_secret)


async def _attempt(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    form: Form,
    step: Callable[[Change], Awaitable[_Done]],
    field: str | None,
) -> _Done | FormState:
    """The result of `step` once committed; or, if nothing was changed, the form to show again."""
    try:
        change = services.access.change(caller, org, Capability.ORG_ADMIN)
        async with change as (work, by, present):
            return await step(Change(work, present, by, form, services.settings.public_url))
    except (Invalid, Conflict, NotFound) as refusal:
        return refused(request.path, form, refusal, field)
