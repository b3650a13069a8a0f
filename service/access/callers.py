"""The caller of a request, whichever way they proved who they are."""

from dataclasses import dataclass
from typing import Protocol

from analytics.rows import Stamp, VerdictSource
from service.access.capabilities import ORG_BINDING_ROLES, Capability, Role, granted
from service.errors import (
    CrossSite,
    Forbidden,
    KeyOfAnotherOrg,
    LacksCapability,
    NotForSessions,
    NotOrgAdmin,
    NotTeamAdmin,
)
from service.store.tables import Organisation

ADMIN_TOKEN_ACTOR = "system:admin-token"  # noqa: S105 - an actor's name, not a secret
CLI_ACTOR = "system:cli"
MAINTENANCE_ACTOR = "system:maintenance"


def member_actor(identity_provider: str, member_id: str) -> str:
    """A member as `actor` and `addedBy` name them: under their home provider, always."""
    return f"{identity_provider}:{member_id}"


@dataclass(frozen=True, slots=True)
class Door:
    """How a request came in: what its audit rows say besides the actor."""

    verdict_source: VerdictSource
    request_id: str | None = None
    source_ip: str | None = None


class Caller(Protocol):
    """Somebody who may act on organisations."""

    @property
    def stamp(self) -> Stamp:
        """What the audit rows of this caller's actions say of who acted."""

    def require(self, capability: Capability, org: Organisation) -> None:
        """Raise Forbidden unless the caller has `capability` in `org`."""

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Raise Forbidden unless the caller may create bindings of this level.

        `team_id` is None for organisation-level bindings.
        """

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """Raise Forbidden unless the caller may revoke bindings of this level."""


class Sender(Protocol):
    """Somebody who may, or may not, send audit rows."""

    @property
    def stamp(self) -> Stamp:
        """What the rows say of who sent them."""

    def require_sending_rights(self, org: Organisation) -> None:
        """Raise Forbidden unless the caller may send rows of this organisation."""


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """A machine with an API key of one organisation. It sends audit rows, and nothing else."""

    key_id: str
    tenant_id: str
    door: Door
    project_id: str | None = None

    @property
    def stamp(self) -> Stamp:
        """The key by its id."""
        return Stamp(
            actor=self.key_id,
            actor_source="api_key",
            verdict_source=self.door.verdict_source,
            request_id=self.door.request_id,
            source_ip=self.door.source_ip,
        )

    def require_sending_rights(self, org: Organisation) -> None:
        """A key opens its own organisation only."""
        if org.id != self.tenant_id:
            raise KeyOfAnotherOrg


@dataclass(frozen=True, slots=True)
class Operator:
    """The platform itself: the admin token over HTTP, or the command line. May do everything."""

    stamp: Stamp

    def require(self, capability: Capability, org: Organisation) -> None:
        """Never refuse."""

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Never refuse."""

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """Never refuse."""

    def require_sending_rights(self, org: Organisation) -> None:
        """Never refuse."""


def admin_token_caller(door: Door) -> Operator:
    """Whoever sent the admin token. It counts as the organisation's own (`actor_tenant_id`)."""
    return Operator(
        Stamp(
            actor=ADMIN_TOKEN_ACTOR,
            actor_source="admin_token",
            verdict_source=door.verdict_source,
            request_id=door.request_id,
            source_ip=door.source_ip,
        )
    )


def cli_caller(platform_tenant_id: str) -> Operator:
    """The operator at the command line: the platform acting across tenants."""
    return Operator(
        Stamp(
            actor=CLI_ACTOR,
            actor_source="system",
            verdict_source=VerdictSource.CLI,
            actor_tenant_id=platform_tenant_id,
        )
    )


def service_stamp(platform_tenant_id: str) -> Stamp:
    """What rows say of what the service does in an organisation by itself, asked by nobody."""
    return Stamp(
        actor=MAINTENANCE_ACTOR,
        actor_source="system",
        verdict_source=VerdictSource.SYSTEM,
        actor_tenant_id=platform_tenant_id,
    )


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A member with a session in their browser, or with its cookie in a script."""

    session_id: str
    member_id: str
    tenant_id: str
    role: Role
    identity_provider: str
    admin_of: frozenset[str]
    door: Door
    is_cross_site: bool

    @property
    def stamp(self) -> Stamp:
        """The member under their home provider, however they signed in."""
        return Stamp(
            actor=member_actor(self.identity_provider, self.member_id),
            actor_source="session",
            verdict_source=self.door.verdict_source,
            request_id=self.door.request_id,
            source_ip=self.door.source_ip,
        )

    def require(self, capability: Capability, org: Organisation) -> None:
        """Refuse members of other organisations, other sites' requests and lacking roles."""
        if self.is_cross_site:
            raise CrossSite
        if org.id != self.tenant_id or capability not in granted(self.role, org.role_overrides):
            raise LacksCapability(capability)

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Owners and admins at the organisation's level; in a team, its admins alone."""
        if org.id != self.tenant_id:
            raise Forbidden
        if team_id is None and self.role not in ORG_BINDING_ROLES:
            raise NotOrgAdmin
        if team_id is not None and team_id not in self.admin_of:
            raise NotTeamAdmin

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """As for creating; besides, owners and admins may end any team's binding."""
        if self.role not in ORG_BINDING_ROLES or org.id != self.tenant_id:
            self.require_binding_rights(org, team_id)

    def require_sending_rights(self, org: Organisation) -> None:
        """History is not written from a browser."""
        raise NotForSessions
