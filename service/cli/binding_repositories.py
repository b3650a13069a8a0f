"""The bindings of one repository, in any organisation of a data dir."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from service.cli.backend import Form
from service.cli.context import CommandContext
from service.cli.local_backend import binding_form, parse_instant_option
from service.core.errors import Invalid, NotFound
from service.core.text_rules import parse_reason
from service.store.organisations import get_org, get_org_by_id
from service.store.tables import Organisation
from service.trust.bindings.changes import revoke_binding
from service.trust.bindings.repository import BindingState, list_by_repository
from service.trust.bindings.rules import parse_repository_id


async def list_repository(
    context: CommandContext, repository_id: str, state: str | None, as_of: str | None
) -> list[Form]:
    """Its bindings in all organisations; by default the active ones."""
    wanted = BindingState(state) if state else BindingState.ACTIVE
    instant = parse_instant_option(as_of)
    async with context.services.store.read() as session:
        bindings = await list_by_repository(
            session, parse_repository_id(repository_id), wanted, instant
        )
        slugs = {
            tenant_id: (await get_org_by_id(session, tenant_id)).slug
            for tenant_id in {binding.tenant_id for binding in bindings}
        }
    return [binding_form(slugs[binding.tenant_id], binding) for binding in bindings]


async def revoke_repository(
    context: CommandContext,
    repository_id: str,
    issuer: str,
    slug: str | None,
    reason: str | None,
    *,
    confirm: Callable[[Sequence[tuple[str, Form]]], None],
) -> list[tuple[str, str]]:
    """Revoke its active bindings, in the organisation `slug` or in all, once `confirm` returns.

    Returns the slug and the id of each. Raises NotFound if there are none, Invalid if they were
    changed concurrently.
    """
    why = parse_reason(reason)
    wanted = _Repository(parse_repository_id(repository_id), issuer, slug)
    async with context.services.store.read() as session:
        listed = await wanted.active(session)
    confirm([(org.slug, form) for org, form in listed])
    async with context.services.store.write() as work:
        # Exactly the bindings that were listed.
        if [form["id"] for _, form in await wanted.active(work.session)] != [
            form["id"] for _, form in listed
        ]:
            raise Invalid("the bindings of the repository were changed concurrently: try again")
        for org, form in listed:
            await revoke_binding(work, org, form["id"], why, context.operator)
    return [(org.slug, form["id"]) for org, form in listed]


@dataclass(frozen=True, slots=True)
class _Repository:
    """A repository of an issuer, in the organisation `slug` or in all."""

    repository_id: str
    issuer: str
    slug: str | None

    async def active(self, session: AsyncSession) -> list[tuple[Organisation, Form]]:
        """Its active bindings, each with its organisation. Raises NotFound if there are none."""
        only = None if self.slug is None else await get_org(session, self.slug)
        bindings = []
        for binding in await list_by_repository(session, self.repository_id):
            if binding.issuer == self.issuer and (only is None or binding.tenant_id == only.id):
                org = await get_org_by_id(session, binding.tenant_id)
                bindings.append((org, binding_form(org.slug, binding)))
        if not bindings:
            # Most likely a typo, which must not look like success during an incident.
            where = "any organisation" if self.slug is None else self.slug
            raise NotFound(
                f"no active binding of repository {self.repository_id} of {self.issuer} in {where}"
            )
        return bindings
