"""The caller of a request, whichever way they proved who they are."""

from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from analytics.model.rows import AuditContext, VerdictSource
from service.errors import (
    CrossSite,
    Forbidden,
    KeyOfAnotherOrg,
    LacksCapability,
    NotForSessions,
    NotMember,
    NotOrgAdmin,
    NotTeamAdmin,
    RoleBeyondOwn,
)
from service.orgs.roles import (
    ORG_BINDING_ROLES,
    Capability,
    Role,
    covers,
    granted,
)
from service.store.tables import Organisation
from service.verifier.attribution import Attribution

ADMIN_TOKEN_ACTOR = "system:admin-token"  # noqa: S105 - an actor's name, not a secret
CLI_ACTOR = "system:cli"
MAINTENANCE_ACTOR = "system:maintenance"


def member_actor(identity_provider: str, member_id: str) -> str:
    """A member as `actor` and `addedBy` name them: under their home provider, always."""
    return f"{identity_provider}:{member_id}"


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """How a request came in: what its audit rows say besides the actor.

    `ci` is the CI job that it came from, if it brought a token that proves it. `user_agent` is for
    the session that may begin with it, and in no row.
    """

    verdict_source: VerdictSource
    request_id: str | None = None
    source_ip: str | None = None
    ci: Attribution | None = None
    user_agent: str | None = None

    def audit_context(self, actor: str, actor_source: str) -> AuditContext:
        """What the audit rows of a request by `actor` say."""
        audit_context = AuditContext(
            actor=actor,
            actor_source=actor_source,
            verdict_source=self.verdict_source,
            request_id=self.request_id,
            source_ip=self.source_ip,
        )
        if self.ci is None:
            return audit_context
        return audit_context.of_ci_job(self.ci.issuer.provider, self.ci.binding_id, self.ci.ci)


class Principal(Protocol):
    """Whoever sent a request, once they have proved who they are."""

    @property
    def origin(self) -> RequestOrigin:
        """How their request came in."""

    @property
    def audit_context(self) -> AuditContext:
        """What the audit rows of their actions say of who acted."""

    def belongs_to(self, org: Organisation) -> bool:
        """True if their credential is one for `org`."""

    def with_ci(self, ci: Attribution | None) -> Self:
        """The same, their request coming from this CI job, or from none that is proved."""


class Caller(Principal, Protocol):
    """Somebody who may act on organisations."""

    def require_membership(self, org: Organisation) -> None:
        """Raise Forbidden unless the caller has anything to do with `org` at all."""

    def require(self, capability: Capability, org: Organisation) -> None:
        """Raise Forbidden unless the caller has `capability` in `org`."""

    def require_outranks(self, role: Role, org: Organisation) -> None:
        """Raise Forbidden unless the caller may decide over those who have `role` in `org`.

        That is: make somebody one of them, change or end their membership, or let anybody in under
        their name. Who could do so with a role beyond their own would have what it can do.
        """

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Raise Forbidden unless the caller may create bindings of this level.

        `team_id` is None for organisation-level bindings.
        """

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """Raise Forbidden unless the caller may revoke bindings of this level."""


class IngestPrincipal(Principal, Protocol):
    """Somebody who may, or may not, send audit rows."""

    def require_sending_rights(self, org: Organisation) -> None:
        """Raise Forbidden unless the caller may send rows of this organisation."""


@dataclass(frozen=True, slots=True)
class _FromRequest:
    """Whoever it was, they came through a door."""

    origin: RequestOrigin = field(kw_only=True)

    def with_ci(self, ci: Attribution | None) -> Self:
        """The same, their request coming from this CI job, or from none that is proved."""
        return replace(self, origin=replace(self.origin, ci=ci))


@dataclass(frozen=True, slots=True)
class ApiKeyPrincipal(_FromRequest):
    """A machine with an API key of one organisation. It sends audit rows, and nothing else."""

    key_id: str
    tenant_id: str
    project_id: str | None

    @property
    def audit_context(self) -> AuditContext:
        """The key by its id."""
        return self.origin.audit_context(self.key_id, "api_key")

    def belongs_to(self, org: Organisation) -> bool:
        """A key is for one organisation."""
        return org.id == self.tenant_id

    def require_sending_rights(self, org: Organisation) -> None:
        """A key opens its own organisation only."""
        if not self.belongs_to(org):
            raise KeyOfAnotherOrg


@dataclass(frozen=True, slots=True)
class Operator(_FromRequest):
    """The platform itself: the admin token over HTTP, or the command line. May do everything."""

    actor: str
    actor_source: str
    actor_tenant_id: str | None = None

    @property
    def audit_context(self) -> AuditContext:
        """The credential by its name."""
        audit_context = self.origin.audit_context(self.actor, self.actor_source)
        return replace(audit_context, actor_tenant_id=self.actor_tenant_id)

    def belongs_to(self, org: Organisation) -> bool:
        """To every one."""
        return True

    def require_membership(self, org: Organisation) -> None:
        """Never refuse."""

    def require(self, capability: Capability, org: Organisation) -> None:
        """Never refuse."""

    def require_outranks(self, role: Role, org: Organisation) -> None:
        """Never refuse."""

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Never refuse."""

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """Never refuse."""

    def require_sending_rights(self, org: Organisation) -> None:
        """Never refuse."""


def admin_token_caller(origin: RequestOrigin) -> Operator:
    """Whoever sent the admin token. It counts as the organisation's own (`actor_tenant_id`)."""
    return Operator(ADMIN_TOKEN_ACTOR, "admin_token", origin=origin)


def cli_caller(platform_tenant_id: str) -> Operator:
    """The operator at the command line: the platform acting across tenants."""
    return Operator(
        CLI_ACTOR, "system", platform_tenant_id, origin=RequestOrigin(VerdictSource.CLI)
    )


def service_context(platform_tenant_id: str) -> AuditContext:
    """What rows say of what the service does in an organisation by itself, asked by nobody."""
    return AuditContext(
        actor=MAINTENANCE_ACTOR,
        actor_source="system",
        verdict_source=VerdictSource.SYSTEM,
        actor_tenant_id=platform_tenant_id,
    )


@dataclass(frozen=True, slots=True)
class MemberPrincipal(_FromRequest):
    """A member with a session in their browser, or with its cookie in a script."""

    session_id: str
    member_id: str
    tenant_id: str
    role: Role
    identity_provider: str
    admin_of: frozenset[str]
    is_cross_site: bool

    @property
    def audit_context(self) -> AuditContext:
        """The member under their home provider, however they signed in."""
        return self.origin.audit_context(
            member_actor(self.identity_provider, self.member_id), "session"
        )

    def belongs_to(self, org: Organisation) -> bool:
        """A member is one of one organisation."""
        return org.id == self.tenant_id

    def require_membership(self, org: Organisation) -> None:
        """Refuse members of other organisations and other sites' requests."""
        if self.is_cross_site:
            raise CrossSite
        if not self.belongs_to(org):
            raise NotMember

    def require(self, capability: Capability, org: Organisation) -> None:
        """Refuse members of other organisations, other sites' requests and lacking roles."""
        if self.is_cross_site:
            raise CrossSite
        capabilities = granted(self.role, org.role_overrides)
        if not self.belongs_to(org) or capability not in capabilities:
            raise LacksCapability(capability)

    def require_outranks(self, role: Role, org: Organisation) -> None:
        """Refuse where a role goes beyond their own."""
        if not self.belongs_to(org) or not covers(self.role, role, org.role_overrides):
            raise RoleBeyondOwn

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Owners and admins at the organisation's level; in a team, its admins alone."""
        if not self.belongs_to(org):
            raise Forbidden
        if team_id is None and self.role not in ORG_BINDING_ROLES:
            raise NotOrgAdmin
        if team_id is not None and team_id not in self.admin_of:
            raise NotTeamAdmin

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """As for creating; besides, owners and admins may end any team's binding."""
        if self.role not in ORG_BINDING_ROLES or not self.belongs_to(org):
            self.require_binding_rights(org, team_id)

    def require_sending_rights(self, org: Organisation) -> None:
        """History is not written from a browser."""
        raise NotForSessions
