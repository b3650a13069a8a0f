"""The envelopes of sign-ins and of changes of an organisation: people, sessions, teams, keys."""

from typing import Literal

import msgspec

from analytics.model.events import Count, Envelope, Event

IdentityProviderName = Literal["github", "google", "microsoft"]


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


class DeviceSignInSucceeded(Envelope, frozen=True, kw_only=True):
    """A member signed in a command line, by approving it in a browser."""

    event = Event.DEVICE_SIGN_IN_SUCCEEDED
    member_id: str
    session_id: str
    approved_in: str


class SignInFailed(Envelope, frozen=True, kw_only=True):
    """A sign-in was refused."""

    event = Event.SIGN_IN_FAILED
    method: Literal["link", "oauth", "passkey", "device"]
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
    """Sessions of a member were ended, by the member or by an administrator."""

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
    """A person became a member."""

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
    """A member was removed; their sessions ended with it."""

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


class AdminTokenChanged(Envelope, frozen=True, kw_only=True):
    """The operator put a new admin token beside the previous one, or retired the previous one."""

    event = Event.ADMIN_TOKEN_CHANGED
    change: Literal["rotated", "retired"]


class ApiKeyCreated(Envelope, frozen=True, kw_only=True):
    """An API key was issued. Older rows have neither `scopes` nor `expires_at`."""

    event = Event.API_KEY_CREATED
    key_id: str
    name: str
    project_id: str | None
    scopes: list[str] | msgspec.UnsetType = msgspec.UNSET
    expires_at: str | msgspec.UnsetType | None = msgspec.UNSET


class ApiKeyRotated(Envelope, frozen=True, kw_only=True):
    """An API key was issued in place of another, which works until `expires_at`."""

    event = Event.API_KEY_ROTATED
    key_id: str
    new_key_id: str
    expires_at: str


class InstallTokenIssued(Envelope, frozen=True, kw_only=True):
    """A CI job exchanged its token for an install token, which works until `expires_at`."""

    event = Event.INSTALL_TOKEN_ISSUED
    install_token_id: str
    key_id: str
    binding_id: str
    expires_at: str


class ApiKeyRevoked(Envelope, frozen=True, kw_only=True):
    """An API key was revoked."""

    event = Event.API_KEY_REVOKED
    key_id: str
