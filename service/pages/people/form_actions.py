"""Changes to an organisation by its members: one transaction each, within the caller's role.

A step is what one form does: a function of the `Change`, through which it does everything.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from quart import redirect, request
from quart.typing import ResponseReturnValue

from analytics.model.rows import AuditContext
from service.access.callers import Caller
from service.access.roles import Capability, Role
from service.core.errors import Conflict, Invalid, NotFound, SignInAgain
from service.core.settings import Settings
from service.pages.form_auth import Form, authorize_form
from service.pages.people.form_state import refused
from service.pages.people.one_time_form import consume_form
from service.pages.people.page import IssuedSecret, OrgPage
from service.pages.services import DashboardServices
from service.store.organisations import get_member
from service.store.store import UnitOfWork
from service.store.tables import Member, Organisation


@dataclass(frozen=True, slots=True)
class Change:
    """One open transaction on `org` by `caller`, whose rights were read in it, and their form."""

    work: UnitOfWork
    org: Organisation
    caller: Caller
    form: Form
    settings: Settings

    @property
    def public_url(self) -> str:
        """The address of this service."""
        return self.settings.public_url

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
    step: Callable[[Change], Awaitable[str | IssuedSecret]],
    field: str | None,
    *,
    is_once: bool,
    is_sensitive: bool,
) -> ResponseReturnValue:
    """Run `step` for the form of the current request, then redirect to `page`.

    `step` returns the page's code for what was done, or a new secret, which only this response
    shows. Such a form `is_once`: reloading the response, which resends the form, creates no second
    secret. One that `is_sensitive` needs a recent sign-in; without it the page asks for one, and
    shows what was typed. Errors of `step` are shown at the field that they name, or at `field`.
    """
    caller, org, form = await authorize_form(services, slug, Capability.ORG_ADMIN)
    page.here()  # rejects a request that cannot be redirected back before anything is done
    try:
        transaction = services.access.change(
            caller, org, Capability.ORG_ADMIN, is_sensitive=is_sensitive
        )
        async with transaction as (work, by, present):
            change = Change(work, present, by, form, services.settings)
            if is_once:
                await consume_form(services.settings, work, by, form)
            done = await step(change)
    except (Invalid, Conflict, NotFound, SignInAgain) as refusal:
        form_state = refused(request.path, form, refusal, field)
        return await page.show(services, caller, org, form_state=form_state)
    if isinstance(done, IssuedSecret):
        return await page.show(services, caller, org, issued_secret=done)
    return redirect(page.address(org, done), 303)
