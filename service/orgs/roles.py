"""Roles of an organisation: what each may do by default, and what it is granted beyond that."""

from collections.abc import Sequence
from typing import Annotated, Final, Self

from msgspec import Meta

from analytics.model.org_envelopes import RoleOverrideChanged
from analytics.model.rows import AuditContext
from service.access.roles import ROLE_DEFAULTS, Capability, Role
from service.core.errors import Conflict
from service.core.text_rules import check_choice
from service.store.store import UnitOfWork
from service.store.tables import Organisation
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Request

OVERRIDE_MOVED: Final = Conflict.of("the role was changed concurrently; its current value is shown")

_ADMIN: Final = Capability.ORG_ADMIN

_CapabilityName = Annotated[
    str, Meta(extra_json_schema={"enum": [capability.value for capability in Capability]})
]

resource = Resource("roles", "/roles", Tag.ORGANISATION, BaseServices)


class Grants(Request):
    """What a role may do beyond its defaults, all of it.

    With `before`, the grants that the change is based on, it is refused if they have changed.
    """

    capabilities: list[_CapabilityName]
    before: list[_CapabilityName] | None = None


class RoleEntry(Answer):
    """A role: its capabilities by default, and those that the organisation grants beyond them."""

    role: str
    defaults: list[str]
    granted: list[str]

    @classmethod
    def of(cls, role: Role, org: Organisation) -> Self:
        """A role in the API's representation."""
        defaults = ROLE_DEFAULTS[role]
        return cls(
            role=role.value,
            defaults=[each.value for each in Capability if each in defaults],
            granted=granted_beyond(role, org),
        )


class RoleList(Answer):
    """The roles, highest first."""

    org: str
    roles: list[RoleEntry]


@resource.get("list_roles", needs=_ADMIN, returns=RoleList)
async def list_(call: Call[BaseServices]) -> RoleList:
    """List the roles, and what each may do."""
    return RoleList(org=call.org.slug, roles=[RoleEntry.of(role, call.org) for role in Role])


@resource.put(
    "grant_capabilities",
    "/<role>",
    needs=_ADMIN,
    body=Grants,
    example={"capabilities": ["oidc:r"]},
    returns=RoleEntry,
    is_sensitive=True,
    refuses=[Conflict],
)
async def grant(call: WriteCall[BaseServices], body: Grants, role: str) -> RoleEntry:
    """Grant a role these capabilities beyond its defaults; they replace its earlier grants.

    Neither the role nor a capability may exceed the caller's own.
    """
    to = Role(check_choice("role", role, Role))
    call.caller.require_outranks(to, call.org)
    for name in set(body.capabilities) & set(Capability):
        call.caller.require(Capability(name), call.org)
    # In the transaction of the change: the grants cannot change between this check and the write.
    if body.before is not None and sorted(body.before) != granted_beyond(to, call.org):
        raise OVERRIDE_MOVED
    await set_role_override(call.work, call.org, to, body.capabilities, call.by)
    return RoleEntry.of(to, call.org)


def granted_beyond(role: Role, org: Organisation) -> list[str]:
    """The capabilities that the organisation grants `role` beyond its defaults, in order."""
    return sorted(org.role_overrides.get(role, ()))


async def set_role_override(
    work: UnitOfWork, org: Organisation, role: str, capabilities: Sequence[str], by: AuditContext
) -> None:
    """Grant `role` exactly `capabilities` beyond its defaults. Raises Invalid."""
    role = check_choice("role", role, Role)
    granted = sorted({check_choice("capability", name, Capability) for name in capabilities})
    before = org.role_overrides.get(role, [])
    if before == granted:
        return
    others = {name: names for name, names in org.role_overrides.items() if name != role}
    org.role_overrides = {**others, role: granted} if granted else others
    work.record(
        org.id,
        RoleOverrideChanged(role=role, capabilities_before=before, capabilities_after=granted),
        by,
    )
