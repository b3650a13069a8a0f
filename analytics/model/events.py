"""The event catalogue: everything that is recorded, and the base class of all envelopes.

An envelope is what the row says beyond its columns. It goes whole into `payload`, and shortened
to 256 code points into `decision_reason` (see `analytics.model.decision_reason`).
"""

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec


class Decision(StrEnum):
    """The outcome of an install request."""

    ALLOWED = "ALLOWED"
    BLOCKED = "BLOCKED"


class Event(StrEnum):
    """Every value of a row's `event`."""

    OSS_FIRST_PARTY = "oss_first_party"
    INSTALL_ALLOWED = "install_allowed"
    BLOCKLIST_HIT = "blocklist_hit"
    COOLDOWN_ACTIVE = "cooldown_active"
    INSTALL_WOULD_BLOCK = "install_would_block"
    INSTALL_CUT = "install_cut"
    ARTIFACT_CHANGED = "artifact_changed"
    OIDC_BINDING_CREATED = "oidc_binding_created"
    OIDC_BINDING_REVOKED = "oidc_binding_revoked"
    OAUTH_LOGIN_SUCCEEDED = "oauth_login_succeeded"
    PASSKEY_AUTHENTICATION_SUCCEEDED = "passkey_authentication_succeeded"
    LINK_SIGN_IN_SUCCEEDED = "link_sign_in_succeeded"
    DEVICE_SIGN_IN_SUCCEEDED = "device_sign_in_succeeded"
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
    ADMIN_TOKEN_CHANGED = "admin_token_changed"  # noqa: S105 - an event, not a secret
    API_KEY_CREATED = "api_key_created"
    API_KEY_ROTATED = "api_key_rotated"
    API_KEY_REVOKED = "api_key_revoked"
    INSTALL_TOKEN_ISSUED = "install_token_issued"  # noqa: S105 - an event, not a secret
    POLICY_CHANGED = "policy_changed"
    POLICY_EXCEPTION_REQUESTED = "policy_exception_requested"
    POLICY_EXCEPTION_DECIDED = "policy_exception_decided"
    BLOCKLIST_IMPORTED = "blocklist_imported"
    ARTIFACT_ACCEPTED = "artifact_accepted"
    AUDIT_EXPORTED = "audit_exported"
    AUDIT_EXPORT_FINISHED = "audit_export_finished"
    AUDIT_IMPORTED = "audit_imported"
    AUDIT_PRUNED = "audit_pruned"
    CLOCK_ACCEPTED = "clock_accepted"
    AUDIT_SEGMENT_RESTORED = "audit_segment_restored"
    AUDIT_SEGMENT_LOST = "audit_segment_lost"


Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one event says. A subclass names its event; installs also name their decision."""

    event: ClassVar[Event]
    decision: ClassVar[Decision | None] = None
    ingestible: ClassVar[bool] = False
