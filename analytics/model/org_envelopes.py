"""The envelopes of sign-ins and of changes of an organisation: people, sessions, teams, keys."""

from typing import Literal

import msgspec

from analytics.model.events import Count, Envelope, Event


class OauthLoginSucceeded(Envelope, frozen=True, kw_only=True):
    """A member signed in to the dashboard through an identity provider."""

    event = Event("oauth_login_succeeded")
    label = "Signed in by OAuth"
    icon = "sign-in"
    changes_org = False
    member_id: str
    is_new_member: bool
    provider: str


class PasskeyAuthenticationSucceeded(Envelope, frozen=True, kw_only=True):
    """A member signed in to the dashboard with a passkey."""

    event = Event("passkey_authentication_succeeded")
    label = "Signed in by passkey"
    icon = "sign-in"
    changes_org = False
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

    event = Event("link_sign_in_succeeded")
    label = "Signed in by link"
    icon = "sign-in"
    changes_org = False
    member_id: str


class DeviceSignInSucceeded(Envelope, frozen=True, kw_only=True):
    """A member signed in a command line, by approving it in a browser."""

    event = Event("device_sign_in_succeeded")
    label = "Signed in a command line"
    icon = "sign-in"
    changes_org = False
    member_id: str
    session_id: str
    approved_in: str


class SignInFailed(Envelope, frozen=True, kw_only=True):
    """A sign-in was refused."""

    event = Event("sign_in_failed")
    label = "Sign-in failed"
    icon = "alert"
    changes_org = False
    method: Literal["link", "oauth", "passkey", "device"]
    reason: str


class SignedOut(Envelope, frozen=True, kw_only=True):
    """A member ended their session."""

    event = Event("signed_out")
    label = "Signed out"
    icon = "sign-in"
    changes_org = False
    member_id: str
    session_id: str


class PasskeyRegistered(Envelope, frozen=True, kw_only=True):
    """A member registered a passkey."""

    event = Event("passkey_registered")
    label = "Passkey registered"
    icon = "key"
    member_id: str
    credential_id: str


class PasskeyRemoved(Envelope, frozen=True, kw_only=True):
    """A passkey was removed."""

    event = Event("passkey_removed")
    label = "Passkey removed"
    icon = "key"
    member_id: str
    credential_id: str


class SessionIssued(Envelope, frozen=True, kw_only=True):
    """A sign-in link or a session cookie was issued for a member."""

    event = Event("session_issued")
    label = "Session issued"
    icon = "sign-in"
    member_id: str
    method: Literal["link", "cookie"]


class SessionRevoked(Envelope, frozen=True, kw_only=True):
    """Sessions of a member were ended, by the member or by an administrator."""

    event = Event("session_revoked")
    label = "Sessions ended"
    icon = "sign-in"
    member_id: str
    sessions: Count


class OrgCreated(Envelope, frozen=True, kw_only=True):
    """The organisation came to be."""

    event = Event("org_created")
    label = "Organisation created"
    slug: str
    tier: str


class OrgTierChanged(Envelope, frozen=True, kw_only=True):
    """The organisation's tier, and with it its retention, changed."""

    event = Event("org_tier_changed")
    label = "Tier changed"
    tier_before: str
    tier_after: str


class LegalHoldChanged(Envelope, frozen=True, kw_only=True):
    """A legal hold was set or lifted."""

    event = Event("legal_hold_changed")
    label = "Legal hold changed"
    held: bool
    reason: str | None


class RoleOverrideChanged(Envelope, frozen=True, kw_only=True):
    """A role was granted other capabilities beyond its defaults than before."""

    event = Event("role_override_changed")
    label = "Role override changed"
    icon = "user"
    role: str
    capabilities_before: list[str]
    capabilities_after: list[str]


class SignInDomainChanged(Envelope, frozen=True, kw_only=True):
    """The people of a domain may, or may no longer, sign in without an invitation."""

    event = Event("sign_in_domain_changed")
    label = "Sign-in domain changed"
    domain: str
    identity_provider: str
    is_allowed: bool


class MemberAdded(Envelope, frozen=True, kw_only=True):
    """A person became a member."""

    event = Event("member_added")
    label = "Member added"
    icon = "user"
    member_id: str
    email: str
    role: str
    identity_provider: str


class MemberRoleChanged(Envelope, frozen=True, kw_only=True):
    """A member's role changed; if it rose, their sessions ended with it."""

    event = Event("member_role_changed")
    label = "Member’s role changed"
    icon = "user"
    member_id: str
    role_before: str
    role_after: str


class MemberRemoved(Envelope, frozen=True, kw_only=True):
    """A member was removed; their sessions ended with it."""

    event = Event("member_removed")
    label = "Member removed"
    icon = "user"
    member_id: str
    role: str


class ProjectCreated(Envelope, frozen=True, kw_only=True):
    """A project was created."""

    event = Event("project_created")
    label = "Project created"
    project_id: str
    name: str


class TeamCreated(Envelope, frozen=True, kw_only=True):
    """A team was created."""

    event = Event("team_created")
    label = "Team created"
    icon = "user"
    team_id: str
    name: str


class TeamAdminChanged(Envelope, frozen=True, kw_only=True):
    """A member became, or ceased to be, an admin of a team."""

    event = Event("team_admin_changed")
    label = "Team admin changed"
    icon = "user"
    team_id: str
    member_id: str
    is_admin: bool


class AdminTokenChanged(Envelope, frozen=True, kw_only=True):
    """The operator put a new admin token beside the previous one, or retired the previous one."""

    event = Event("admin_token_changed")
    label = "Admin token changed"
    icon = "key"
    change: Literal["rotated", "retired"]


class ApiKeyCreated(Envelope, frozen=True, kw_only=True):
    """An API key was issued. Older rows have neither `scopes` nor `expires_at`."""

    event = Event("api_key_created")
    label = "API key created"
    icon = "key"
    key_id: str
    name: str
    project_id: str | None
    scopes: list[str] | msgspec.UnsetType = msgspec.UNSET
    expires_at: str | msgspec.UnsetType | None = msgspec.UNSET


class ApiKeyRotated(Envelope, frozen=True, kw_only=True):
    """An API key was issued in place of another, which works until `expires_at`."""

    event = Event("api_key_rotated")
    label = "API key rotated"
    icon = "key"
    key_id: str
    new_key_id: str
    expires_at: str


class ApiKeyRevoked(Envelope, frozen=True, kw_only=True):
    """An API key was revoked."""

    event = Event("api_key_revoked")
    label = "API key revoked"
    icon = "key"
    key_id: str


class MachineTokenIssued(Envelope, frozen=True, kw_only=True):
    """A member got a token to install with from a machine, which works until `expires_at`."""

    event = Event("machine_token_issued")
    label = "Machine token issued"
    icon = "key"
    machine_token_id: str
    member_id: str
    name: str
    expires_at: str


class MachineTokenRevoked(Envelope, frozen=True, kw_only=True):
    """A member's machine token was revoked, by the member or by an administrator."""

    event = Event("machine_token_revoked")
    label = "Machine token revoked"
    icon = "key"
    machine_token_id: str
    member_id: str


class InstallTokenIssued(Envelope, frozen=True, kw_only=True):
    """A CI job exchanged its token for an install token, which works until `expires_at`."""

    event = Event("install_token_issued")
    label = "Install token issued"
    icon = "key"
    install_token_id: str
    key_id: str
    binding_id: str
    expires_at: str
