"""Roles and capabilities: who may do what."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final


class Capability(StrEnum):
    """What an endpoint can ask for."""

    OIDC_READ = "oidc:r"
    OIDC_WRITE = "oidc:w"
    AUDIT_READ = "audit:r"
    AUDIT_EXPORT = "audit:export"
    ORG_ADMIN = "org:admin"


class Role(StrEnum):
    """What a member is in an organisation, from the highest down."""

    OWNER = "owner"
    ADMIN = "admin"
    AUDITOR = "auditor"
    MEMBER = "member"


ROLE_DEFAULTS: Final[dict[Role, frozenset[Capability]]] = {
    Role.OWNER: frozenset(Capability),
    Role.ADMIN: frozenset({Capability.AUDIT_READ, Capability.AUDIT_EXPORT}),
    Role.AUDITOR: frozenset({Capability.AUDIT_READ, Capability.AUDIT_EXPORT}),
    Role.MEMBER: frozenset(),
}
"""What a role grants by itself; an organisation's overrides only ever add to it."""

ORG_BINDING_ROLES: Final = frozenset({Role.OWNER, Role.ADMIN})
"""Roles that, with oidc:w, may change organisation-level bindings."""


def granted(role: Role, overrides: Mapping[str, Sequence[str]]) -> frozenset[Capability]:
    """What `role` may do in an organisation with these role overrides."""
    return ROLE_DEFAULTS[role] | {Capability(name) for name in overrides.get(role, ())}


def covers(role: Role, other: Role, overrides: Mapping[str, Sequence[str]]) -> bool:
    """True if nothing that `other` may do, under these role overrides, is beyond `role`.

    The order of the roles counts besides: no override makes an owner of somebody, and owners and
    admins alone may change organisation-level bindings (ORG_BINDING_ROLES).
    """
    ranks = tuple(Role)
    is_higher = ranks.index(other) < ranks.index(role)
    return not is_higher and granted(other, overrides) <= granted(role, overrides)
