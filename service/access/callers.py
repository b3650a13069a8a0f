"""The callers of requests, by kind of credential."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol, Self

from analytics.model.rows import AuditContext, VerdictSource
from service.access.refusals import (
    CROSS_SITE,
    KEY_OF_ANOTHER_ORG,
    LACKS_CAPABILITY,
    NOT_FOR_KEYS,
    NOT_FOR_SESSIONS,
    NOT_MEMBER,
    ROLE_BEYOND_OWN,
    NotOrgAdmin,
    NotTeamAdmin,
)
from service.access.roles import (
    ORG_BINDING_ROLES,
    UNSCOPED_RIGHTS,
    Capability,
    Role,
    covers,
    granted,
)
from service.ci.verifier.attribution import Attribution
from service.core.errors import Forbidden
from service.store.tables import Organisation

ADMIN_TOKEN_ACTOR = "system:admin-token"  # noqa: S105 - an actor's name, not a secret
CLI_ACTOR = "system:cli"
MAINTENANCE_ACTOR = "system:maintenance"

OPERATOR_SCOPE: Final = "countersign.operator"
"""The member of an ASGI scope that names the operator of a command in this process.

A server fills scopes with members of its own, none of which a client names.
"""


def is_allowed(check: Callable[..., None], *arguments: object) -> bool:
    """Whether `check`, one of a caller's `require` methods, raises no Forbidden."""
    try:
        check(*arguments)
    except Forbidden:
        return False
    return True


def member_actor(identity_provider: str, member_id: str) -> str:
    """A member as named in `actor` and `addedBy`: always with their home provider."""
    return f"{identity_provider}:{member_id}"


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """How a request came in: the parts of its audit rows other than the actor.

    `ci` is the CI job that the request's token proves. `user_agent` is stored only with a session
    that the request starts, in no audit row.
    """

    verdict_source: VerdictSource
    request_id: str | None = None
    source_ip: str | None = None
    ci: Attribution | None = None
    user_agent: str | None = None

    def audit_context(self, actor: str, actor_source: str) -> AuditContext:
        """The audit context of a request by `actor`."""
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
    """The authenticated sender of a request."""

    @property
    def origin(self) -> RequestOrigin:
        """How the request came in."""

    @property
    def audit_context(self) -> AuditContext:
        """The audit context of the sender's actions."""

    @property
    def limited_as(self) -> str:
        """The key or session whose concurrent queries are limited; empty for the operator."""

    def belongs_to(self, org: Organisation) -> bool:
        """True if the credential is valid for `org`."""

    def with_ci(self, ci: Attribution | None) -> Self:
        """A copy whose request comes from the CI job `ci`, or from no proven one."""


class Caller(Principal, Protocol):
    """A principal that may act on organisations."""

    def require_membership(self, org: Organisation) -> None:
        """Raise Forbidden unless the caller belongs to `org`."""

    def require(self, capability: Capability, org: Organisation) -> None:
        """Raise Forbidden unless the caller has `capability` in `org`."""

    def require_outranks(self, role: Role, org: Organisation) -> None:
        """Raise Forbidden unless the caller may manage members with `role` in `org`.

        Managing means granting the role, changing or ending such a membership, or issuing sign-ins
        for it. Otherwise a caller could gain the rights of a role beyond their own.
        """

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Raise Forbidden unless the caller may create bindings of `team_id` (None: of `org`)."""

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """Raise Forbidden unless the caller may revoke bindings of `team_id` (None: of `org`)."""


class IngestPrincipal(Principal, Protocol):
    """A principal that may send audit rows, if its rights allow."""

    def require_sending_rights(self, org: Organisation) -> None:
        """Raise Forbidden unless the principal may send audit rows of `org`."""


@dataclass(frozen=True, slots=True)
class _FromRequest:
    """Common part of principals: the origin of their request."""

    origin: RequestOrigin = field(kw_only=True)

    def with_ci(self, ci: Attribution | None) -> Self:
        """A copy whose request comes from the CI job `ci`, or from no proven one."""
        return replace(self, origin=replace(self.origin, ci=ci))


@dataclass(frozen=True, slots=True)
class ApiKeyPrincipal(_FromRequest):
    """A machine with an API key of one organisation.

    It may do only what its scopes name. Keys that are older than scopes have none: they may send
    audit rows and install.
    """

    key_id: str
    tenant_id: str
    project_id: str | None
    scopes: frozenset[str] = frozenset()

    @property
    def limited_as(self) -> str:
        """The key."""
        return self.key_id

    @property
    def audit_context(self) -> AuditContext:
        """The audit context, with the key's id as the actor."""
        return self.origin.audit_context(self.key_id, "api_key")

    def belongs_to(self, org: Organisation) -> bool:
        """True for the key's organisation."""
        return org.id == self.tenant_id

    def require_sending_rights(self, org: Organisation) -> None:
        """Allow only the key's organisation; of keys with scopes, those with audit:ingest."""
        self._require(Capability.AUDIT_INGEST, org, self.scopes or UNSCOPED_RIGHTS)

    def require_install_rights(self, org: Organisation) -> None:
        """Allow only the key's organisation; of keys with scopes, those with packages:install."""
        self._require(Capability.PACKAGES_INSTALL, org, self.scopes or UNSCOPED_RIGHTS)

    def require(self, capability: Capability, org: Organisation) -> None:
        """Allow the key's scopes in its organisation."""
        self._require(capability, org, self.scopes)

    def _require(self, capability: Capability, org: Organisation, rights: Collection[str]) -> None:
        if not self.belongs_to(org):
            raise KEY_OF_ANOTHER_ORG
        if capability not in rights:
            raise LACKS_CAPABILITY(value=capability)

    def require_membership(self, org: Organisation) -> None:
        """Refuse: a key is no member."""
        raise NOT_FOR_KEYS

    def require_outranks(self, role: Role, org: Organisation) -> None:
        """Refuse: keys manage no members."""
        raise NOT_FOR_KEYS

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Refuse: keys only read."""
        raise NOT_FOR_KEYS

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """Refuse: keys only read."""
        raise NOT_FOR_KEYS


@dataclass(frozen=True, slots=True)
class Operator(_FromRequest):
    """The platform operator, by admin token or at the command line. All actions are allowed."""

    actor: str
    actor_source: str
    actor_tenant_id: str | None = None

    @property
    def is_platform(self) -> bool:
        """True if the operator acts for the platform, not in the organisation's own name."""
        return self.actor_tenant_id is not None

    @property
    def limited_as(self) -> str:
        """Empty: the operator is not limited."""
        return ""

    @property
    def audit_context(self) -> AuditContext:
        """The audit context, with the credential's name as the actor."""
        audit_context = self.origin.audit_context(self.actor, self.actor_source)
        return replace(audit_context, actor_tenant_id=self.actor_tenant_id)

    def belongs_to(self, org: Organisation) -> bool:
        """True for every organisation."""
        return True

    def require_membership(self, org: Organisation) -> None:
        """Always allow."""

    def require(self, capability: Capability, org: Organisation) -> None:
        """Always allow."""

    def require_outranks(self, role: Role, org: Organisation) -> None:
        """Always allow."""

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Always allow."""

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """Always allow."""

    def require_sending_rights(self, org: Organisation) -> None:
        """Always allow."""


def admin_token_caller(origin: RequestOrigin) -> Operator:
    """The sender of the admin token; audit rows treat it as the organisation's own."""
    return Operator(ADMIN_TOKEN_ACTOR, "admin_token", origin=origin)


def cli_caller(platform_tenant_id: str) -> Operator:
    """The operator at the command line: acts for the platform across tenants."""
    return Operator(
        CLI_ACTOR, "system", platform_tenant_id, origin=RequestOrigin(VerdictSource.CLI)
    )


def service_context(platform_tenant_id: str) -> AuditContext:
    """The audit context of the service's own maintenance in an organisation."""
    return AuditContext(
        actor=MAINTENANCE_ACTOR,
        actor_source="system",
        verdict_source=VerdictSource.SYSTEM,
        actor_tenant_id=platform_tenant_id,
    )


@dataclass(frozen=True, slots=True)
class MemberPrincipal(_FromRequest):
    """A member with a session, in a browser or with its cookie in a script.

    `authenticated_at` is when they last proved who they are.
    """

    session_id: str
    member_id: str
    tenant_id: str
    role: Role
    identity_provider: str
    authenticated_at: datetime
    admin_of: frozenset[str]
    is_cross_site: bool

    @property
    def limited_as(self) -> str:
        """The session."""
        return self.session_id

    @property
    def audit_context(self) -> AuditContext:
        """The audit context, with the member under their home provider, however they signed in."""
        return self.origin.audit_context(
            member_actor(self.identity_provider, self.member_id), "session"
        )

    def belongs_to(self, org: Organisation) -> bool:
        """True for the member's organisation."""
        return org.id == self.tenant_id

    def require_membership(self, org: Organisation) -> None:
        """Refuse members of other organisations and cross-site requests."""
        if self.is_cross_site:
            raise CROSS_SITE
        if not self.belongs_to(org):
            raise NOT_MEMBER

    def require(self, capability: Capability, org: Organisation) -> None:
        """Refuse members of other organisations, cross-site requests and insufficient roles."""
        if self.is_cross_site:
            raise CROSS_SITE
        capabilities = granted(self.role, org.role_overrides)
        if not self.belongs_to(org) or capability not in capabilities:
            raise LACKS_CAPABILITY(value=capability)

    def require_outranks(self, role: Role, org: Organisation) -> None:
        """Refuse roles beyond the member's own."""
        if not self.belongs_to(org) or not covers(self.role, role, org.role_overrides):
            raise ROLE_BEYOND_OWN

    def require_binding_rights(self, org: Organisation, team_id: str | None) -> None:
        """Allow owners and admins at organisation level; in a team, only the team's admins."""
        if not self.belongs_to(org):
            raise Forbidden
        if team_id is None and self.role not in ORG_BINDING_ROLES:
            raise NotOrgAdmin
        if team_id is not None and team_id not in self.admin_of:
            raise NotTeamAdmin

    def require_revoke_rights(self, org: Organisation, team_id: str | None) -> None:
        """As for creating; owners and admins may also revoke any team's binding."""
        # Revoking takes trust back, which must not depend on a team's admin being there.
        if self.role not in ORG_BINDING_ROLES or not self.belongs_to(org):
            self.require_binding_rights(org, team_id)

    def require_sending_rights(self, org: Organisation) -> None:
        """Refuse: sessions do not send audit rows."""
        raise NOT_FOR_SESSIONS
