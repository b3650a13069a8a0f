"""Roles, and the capabilities they grant."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final


class Capability(StrEnum):
    """A permission that an endpoint requires."""

    OIDC_READ = "oidc:r"
    OIDC_WRITE = "oidc:w"
    AUDIT_READ = "audit:r"
    AUDIT_EXPORT = "audit:export"
    POLICY_READ = "policy:r"
    POLICY_WRITE = "policy:w"
    STREAM_READ = "stream:r"
    STREAM_WRITE = "stream:w"
    ALERT_WRITE = "alert:w"
    ORG_ADMIN = "org:admin"
    PACKAGES_INSTALL = "packages:install"
    AUDIT_INGEST = "audit:ingest"


class Role(StrEnum):
    """A member's role in an organisation, highest first."""

    OWNER = "owner"
    ADMIN = "admin"
    AUDITOR = "auditor"
    MEMBER = "member"


_OF_THE_LOG: Final = frozenset(
    {Capability.AUDIT_READ, Capability.AUDIT_EXPORT, Capability.ALERT_WRITE}
)

ROLE_DEFAULTS: Final[dict[Role, frozenset[Capability]]] = {
    Role.OWNER: frozenset(Capability),
    Role.ADMIN: _OF_THE_LOG,
    Role.AUDITOR: _OF_THE_LOG,
    Role.MEMBER: frozenset(),
}
"""The capabilities each role grants; an organisation's overrides only add to them."""

READING_SCOPES: Final = (
    Capability.AUDIT_READ,
    Capability.AUDIT_EXPORT,
    Capability.OIDC_READ,
    Capability.POLICY_READ,
)
"""The scopes of keys that read the whole organisation. None of them changes anything."""

UNSCOPED_RIGHTS: Final = (Capability.PACKAGES_INSTALL, Capability.AUDIT_INGEST)
"""What a key may do that was issued before scopes were required."""

UNSCOPED_WORDS: Final = "send rows, install (no scopes: rotate it)"
"""In words, what a key may do that was issued before scopes were required."""

KEY_SCOPES: Final = (*READING_SCOPES, *UNSCOPED_RIGHTS)
"""The capabilities that an API key can be issued with. None changes settings, or issues keys."""

ORG_BINDING_ROLES: Final = frozenset({Role.OWNER, Role.ADMIN})
"""Roles that, with oidc:w, may change organisation-level bindings."""


def granted(role: Role, overrides: Mapping[str, Sequence[str]]) -> frozenset[Capability]:
    """The capabilities of `role` in an organisation with these role overrides."""
    return ROLE_DEFAULTS[role] | {Capability(name) for name in overrides.get(role, ())}


def covers(role: Role, other: Role, overrides: Mapping[str, Sequence[str]]) -> bool:
    """True if `role` ranks no lower than `other` and grants all its capabilities.

    Rank matters apart from capabilities: no override makes a member an owner, and only owners and
    admins may change organisation-level bindings (ORG_BINDING_ROLES).
    """
    ranks = tuple(Role)
    is_higher = ranks.index(other) < ranks.index(role)
    return not is_higher and granted(other, overrides) <= granted(role, overrides)
