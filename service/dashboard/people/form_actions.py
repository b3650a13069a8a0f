"""Changes to an organisation by one of its own: each one transaction, and nobody beyond their role.

A step is what one form does: a function of the `Change`, which is over all it may touch.
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
    """One open transaction on `org`, by `caller` as they are inside it, and the form they sent."""

    work: UnitOfWork
    org: Organisation
    caller: Caller
    form: Form
    public_url: str

    @property
    def by(self) -> AuditContext:
        """What audit rows say of who acted."""
        return self.caller.audit_context

    def typed(self, name: str) -> str:
        """What the field `name` holds, without the spaces around it that nobody sees."""
        return self.form.get(name, "").strip()

    async def member(self, name: str) -> Member:
        """The member with this id or address, over whom the caller may decide.

        Raises NotFound, Forbidden. Steps get members here alone, so that none forgets to ask.
        """
        member = await get_member(self.work.session, self.org, name)
        self.caller.require_outranks(Role(member.role), self.org)
        return member

    def role(self, name: str) -> str:
        """The role `name`, which the caller may give. Raises Invalid, Forbidden."""
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
    """Do what the form of the current request asks, then lead back to `page`.

    `step` says what it has done by a code of the page. Where it refuses, the page says so beside
    the field that the refusal names, or beside `field`.
    """
    caller, org, form = await authorize_form(services, slug, Capability.ORG_ADMIN)
    page.here()  # what cannot be led back to is refused before anything is done
    done = await _attempt(services, caller, org, form, step, field)
    if isinstance(done, FormState):
        return await page.show(services, caller, org, form_state=done), done.status
    return redirect(page.address(org, done), 303)


async def issue_secret(
    services: DashboardServices,
    slug: str,
    page: OrgPage,
    step: Callable[[Change], Awaitable[IssuedSecret]],
    field: str | None = None,
) -> ResponseReturnValue:
    """The same for a form that makes a secret: the answer shows it, and is the only one that does.

    Such a form works once: to reload the answer, which sends the form again, makes no second one.
    """
    caller, org, form = await authorize_form(services, slug, Capability.ORG_ADMIN)
    page.here()

    async def once(change: Change) -> IssuedSecret:
        await spend_form(services.settings, change.work, change.caller, form)
        return await step(change)

    issued_secret = await _attempt(services, caller, org, form, once, field)
    if isinstance(issued_secret, FormState):
        return await page.show(
            services, caller, org, form_state=issued_secret
        ), issued_secret.status
    return await page.show(services, caller, org, issued_secret=issued_secret)


async def _attempt(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    form: Form,
    step: Callable[[Change], Awaitable[_Done]],
    field: str | None,
) -> _Done | FormState:
    """What `step` returns once it is committed, or the form to show again; nothing was changed."""
    try:
        async with services.store.write() as work:
            present, present_org = await services.access.reauthorize(
                work.session, caller, org, Capability.ORG_ADMIN
            )
            return await step(
                Change(work, present_org, present, form, services.settings.public_url)
            )
    except (Invalid, Conflict, NotFound) as refusal:
        return refused(request.path, form, refusal, field)
