"""The event catalogue: everything that can happen, and the envelope each event carries.

An envelope is what the row says beyond its columns. It goes whole into `payload`, and shortened
to 256 code points into `decision_reason` (see `analytics.model.decision_reason`).
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from analytics.model.instants import parse_instant


class Decision(StrEnum):
    """The outcome of an install request."""

    ALLOWED = "ALLOWED"
    BLOCKED = "BLOCKED"


class Event(StrEnum):
    """Every event string a row can have."""

    OSS_FIRST_PARTY = "oss_first_party"
    INSTALL_ALLOWED = "install_allowed"
    BLOCKLIST_HIT = "blocklist_hit"
    COOLDOWN_ACTIVE = "cooldown_active"
    OIDC_BINDING_CREATED = "oidc_binding_created"
    OIDC_BINDING_REVOKED = "oidc_binding_revoked"
    OAUTH_LOGIN_SUCCEEDED = "oauth_login_succeeded"
    PASSKEY_AUTHENTICATION_SUCCEEDED = "passkey_authentication_succeeded"
    LINK_SIGN_IN_SUCCEEDED = "link_sign_in_succeeded"
    SIGN_IN_FAILED = "sign_in_failed"
    SIGNED_OUT = "signed_out"
    PASSKEY_REGISTERED = "passkey_registered"
    PASSKEY_REMOVED = "passkey_removed"
    SESSION_ISSUED = "session_issued"
    SESSION_REVOKED = "session_revoked"
    ORG_CREATED = "org_created"
    ORG_TIER_CHANGED = "org_tier_changed"
    LEGAL_HOLD_CHANGED = "legal_hold_changed"
    ROLE_OVERRIDE_CHANGED = "role_override_changed"
    SIGN_IN_DOMAIN_CHANGED = "sign_in_domain_changed"
    MEMBER_ADDED = "member_added"
    MEMBER_ROLE_CHANGED = "member_role_changed"
    MEMBER_REMOVED = "member_removed"
    PROJECT_CREATED = "project_created"
    TEAM_CREATED = "team_created"
    TEAM_ADMIN_CHANGED = "team_admin_changed"
    API_KEY_CREATED = "api_key_created"
    API_KEY_REVOKED = "api_key_revoked"
    AUDIT_EXPORTED = "audit_exported"
    AUDIT_EXPORT_FINISHED = "audit_export_finished"
    AUDIT_IMPORTED = "audit_imported"
    AUDIT_PRUNED = "audit_pruned"


IdentityProviderName = Literal["github", "google", "microsoft"]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one event says. A subclass names its event; installs also name their decision."""

    event: ClassVar[Event]
    decision: ClassVar[Decision | None] = None
    ingestible: ClassVar[bool] = False


class OssFirstParty(Envelope, frozen=True, kw_only=True):
    """An install was allowed because the package comes from a first-party registry."""

    event = Event.OSS_FIRST_PARTY
    decision = Decision.ALLOWED
    ingestible = True
    registry: str


class InstallAllowed(Envelope, frozen=True, kw_only=True):
    """An install was allowed: no rule spoke against it."""

    event = Event.INSTALL_ALLOWED
    decision = Decision.ALLOWED
    ingestible = True


class BlocklistHit(Envelope, frozen=True, kw_only=True):
    """An install was blocked by a blocklist rule."""

    event = Event.BLOCKLIST_HIT
    decision = Decision.BLOCKED
    ingestible = True
    rule_id: str
    source: Literal["osv", "operator"]


class CooldownActive(Envelope, frozen=True, kw_only=True):
    """An install was blocked because the version is too young."""

    event = Event.COOLDOWN_ACTIVE
    decision = Decision.BLOCKED
    ingestible = True
    published_at: str
    min_age_days: Count

    def __post_init__(self) -> None:
        """Raise ValueError unless `published_at` is an RFC 3339 instant."""
        try:
            parse_instant(self.published_at)
        except ValueError as error:
            raise ValueError("published_at must be an RFC 3339 instant") from error


class OidcBindingCreated(Envelope, frozen=True, kw_only=True):
    """A trust binding was created."""

    event = Event.OIDC_BINDING_CREATED
    binding_id: str
    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    origin: Literal["org_admin", "team_admin", "platform_admin"]
    project_id: str | None
    team_id: str | None
    by_user_id: str


class OidcBindingRevoked(Envelope, frozen=True, kw_only=True):
    """A trust binding was revoked."""

    event = Event.OIDC_BINDING_REVOKED
    binding_id: str
    revoked_reason: str | None
    by_user_id: str


class OauthLoginSucceeded(Envelope, frozen=True, kw_only=True):
    """A member signed in to the dashboard through an identity provider."""

    event = Event.OAUTH_LOGIN_SUCCEEDED
    member_id: str
    is_new_member: bool
    provider: IdentityProviderName


class PasskeyAuthenticationSucceeded(Envelope, frozen=True, kw_only=True):
    """A member signed in to the dashboard with a passkey."""

    event = Event.PASSKEY_AUTHENTICATION_SUCCEEDED
    member_id: str
    credential_id: str
    counter_before: Count
    counter_after: Count

    def __post_init__(self) -> None:
        """Raise ValueError unless the counter went up by exactly one."""
        if self.counter_after != self.counter_before + 1:
            raise ValueError("counter_after must be counter_before + 1")


class LinkSignInSucceeded(Envelope, frozen=True, kw_only=True):
    """A member signed in with a one-time link."""

    event = Event.LINK_SIGN_IN_SUCCEEDED
    member_id: str


class SignInFailed(Envelope, frozen=True, kw_only=True):
    """A sign-in was refused."""

    event = Event.SIGN_IN_FAILED
    method: Literal["link", "oauth", "passkey"]
    reason: str


class SignedOut(Envelope, frozen=True, kw_only=True):
    """A member ended their session."""

    event = Event.SIGNED_OUT
    member_id: str
    session_id: str


class PasskeyRegistered(Envelope, frozen=True, kw_only=True):
    """A member registered a passkey."""

    event = Event.PASSKEY_REGISTERED
    member_id: str
    credential_id: str


class PasskeyRemoved(Envelope, frozen=True, kw_only=True):
    """A passkey was removed."""

    event = Event.PASSKEY_REMOVED
    member_id: str
    credential_id: str


class SessionIssued(Envelope, frozen=True, kw_only=True):
    """A sign-in link or a session cookie was issued for a member."""

    event = Event.SESSION_ISSUED
    member_id: str
    method: Literal["link", "cookie"]


class SessionRevoked(Envelope, frozen=True, kw_only=True):
    """Sessions of a member were ended, by themselves or by somebody who may."""

    event = Event.SESSION_REVOKED
    member_id: str
    sessions: Count


class OrgCreated(Envelope, frozen=True, kw_only=True):
    """The organisation came to be."""

    event = Event.ORG_CREATED
    slug: str
    tier: str


class OrgTierChanged(Envelope, frozen=True, kw_only=True):
    """The organisation's tier, and with it its retention, changed."""

    event = Event.ORG_TIER_CHANGED
    tier_before: str
    tier_after: str


class LegalHoldChanged(Envelope, frozen=True, kw_only=True):
    """A legal hold was set or lifted."""

    event = Event.LEGAL_HOLD_CHANGED
    held: bool
    reason: str | None


class RoleOverrideChanged(Envelope, frozen=True, kw_only=True):
    """A role was granted other capabilities beyond its defaults than before."""

    event = Event.ROLE_OVERRIDE_CHANGED
    role: str
    capabilities_before: list[str]
    capabilities_after: list[str]


class SignInDomainChanged(Envelope, frozen=True, kw_only=True):
    """The people of a domain may, or may no longer, sign in without an invitation."""

    event = Event.SIGN_IN_DOMAIN_CHANGED
    domain: str
    identity_provider: IdentityProviderName
    is_allowed: bool


class MemberAdded(Envelope, frozen=True, kw_only=True):
    """Somebody became a member."""

    event = Event.MEMBER_ADDED
    member_id: str
    email: str
    role: str
    identity_provider: IdentityProviderName


class MemberRoleChanged(Envelope, frozen=True, kw_only=True):
    """A member's role changed; if it rose, their sessions ended with it."""

    event = Event.MEMBER_ROLE_CHANGED
    member_id: str
    role_before: str
    role_after: str


class MemberRemoved(Envelope, frozen=True, kw_only=True):
    """Somebody ceased to be a member; their sessions ended with it."""

    event = Event.MEMBER_REMOVED
    member_id: str
    role: str


class ProjectCreated(Envelope, frozen=True, kw_only=True):
    """A project was created."""

    event = Event.PROJECT_CREATED
    project_id: str
    name: str


class TeamCreated(Envelope, frozen=True, kw_only=True):
    """A team was created."""

    event = Event.TEAM_CREATED
    team_id: str
    name: str


class TeamAdminChanged(Envelope, frozen=True, kw_only=True):
    """A member became, or ceased to be, an admin of a team."""

    event = Event.TEAM_ADMIN_CHANGED
    team_id: str
    member_id: str
    is_admin: bool


class ApiKeyCreated(Envelope, frozen=True, kw_only=True):
    """An API key was issued."""

    event = Event.API_KEY_CREATED
    key_id: str
    name: str
    project_id: str | None


class ApiKeyRevoked(Envelope, frozen=True, kw_only=True):
    """An API key was revoked."""

    event = Event.API_KEY_REVOKED
    key_id: str


class AuditExported(Envelope, frozen=True, kw_only=True):
    """Rows were about to be taken away: which ones, in what format, how many."""

    event = Event.AUDIT_EXPORTED
    export_id: str
    format: str
    filters: dict[str, list[str]]
    rows: Count


class AuditExportFinished(Envelope, frozen=True, kw_only=True):
    """An export ended: whole, with its digest, or broken off."""

    event = Event.AUDIT_EXPORT_FINISHED
    export_id: str
    complete: bool
    rows: Count
    bytes: Count
    sha256: str | None


class AuditImported(Envelope, frozen=True, kw_only=True):
    """Rows with a history of their own were loaded from a file."""

    event = Event.AUDIT_IMPORTED
    source: str
    rows: Count
    refused: Count
    sha256: str
    first_day: str
    last_day: str


class AuditPruned(Envelope, frozen=True, kw_only=True):
    """Days past retention were dropped."""

    event = Event.AUDIT_PRUNED
    first_day: str
    last_day: str
    days: list[str]
    rows: Count


ENVELOPES: Final[dict[Event, type[Envelope]]] = {
    envelope.event: envelope for envelope in Envelope.__subclasses__()
}


_PASSING: Final = frozenset(
    {
        Event.OAUTH_LOGIN_SUCCEEDED,
        Event.PASSKEY_AUTHENTICATION_SUCCEEDED,
        Event.LINK_SIGN_IN_SUCCEEDED,
        Event.SIGN_IN_FAILED,
        Event.SIGNED_OUT,
        Event.AUDIT_EXPORTED,
        Event.AUDIT_EXPORT_FINISHED,
    }
)
"""Sign-ins and exports: they leave the organisation as it was."""

ADMIN_EVENTS: Final = tuple(
    event
    for event, envelope in ENVELOPES.items()
    if envelope.decision is None and event not in _PASSING
)
"""What changes an organisation: who may do what, what is trusted, which rows there are."""


class VerifiedCi(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a verified CI token said: `ci`, beside the envelope's own keys in `payload`."""

    sub: str
    repository_id: str | msgspec.UnsetType | None = msgspec.UNSET
    event_name: str | msgspec.UnsetType | None = msgspec.UNSET
    run_id: str | msgspec.UnsetType | None = msgspec.UNSET
    jti: str | msgspec.UnsetType | None = msgspec.UNSET


def parse_envelope(event: Event, keys: object) -> Envelope:
    """The envelope `keys` spell for `event`: every key there, of its type, and no other.

    Raises msgspec.ValidationError, whose text names the key.
    """
    return msgspec.convert(keys, ENVELOPES[event], strict=True)
