"""Events and filters in the words that people read, which the search understands as well."""

from typing import Final

from analytics.model.events import Event
from analytics.model.filter_parameters import FILTER_PARAMETERS

EVENT_LABELS: Final[dict[str, str]] = {
    Event.OSS_FIRST_PARTY: "First-party install",
    Event.INSTALL_ALLOWED: "Install allowed",
    Event.BLOCKLIST_HIT: "Blocked by blocklist",
    Event.COOLDOWN_ACTIVE: "Blocked: too new",
    Event.OIDC_BINDING_CREATED: "Binding created",
    Event.OIDC_BINDING_REVOKED: "Binding revoked",
    Event.OAUTH_LOGIN_SUCCEEDED: "Signed in by OAuth",
    Event.PASSKEY_AUTHENTICATION_SUCCEEDED: "Signed in by passkey",
    Event.LINK_SIGN_IN_SUCCEEDED: "Signed in by link",
    Event.SIGN_IN_FAILED: "Sign-in failed",
    Event.SIGNED_OUT: "Signed out",
    Event.PASSKEY_REGISTERED: "Passkey registered",
    Event.PASSKEY_REMOVED: "Passkey removed",
    Event.SESSION_ISSUED: "Session issued",
    Event.SESSION_REVOKED: "Sessions ended",
    Event.ORG_CREATED: "Organisation created",
    Event.ORG_TIER_CHANGED: "Tier changed",
    Event.LEGAL_HOLD_CHANGED: "Legal hold changed",
    Event.ROLE_OVERRIDE_CHANGED: "Role override changed",
    Event.SIGN_IN_DOMAIN_CHANGED: "Sign-in domain changed",
    Event.MEMBER_ADDED: "Member added",
    Event.MEMBER_ROLE_CHANGED: "Member’s role changed",
    Event.MEMBER_REMOVED: "Member removed",
    Event.PROJECT_CREATED: "Project created",
    Event.TEAM_CREATED: "Team created",
    Event.TEAM_ADMIN_CHANGED: "Team admin changed",
    Event.API_KEY_CREATED: "API key created",
    Event.API_KEY_REVOKED: "API key revoked",
    Event.AUDIT_EXPORTED: "Export started",
    Event.AUDIT_EXPORT_FINISHED: "Export finished",
    Event.AUDIT_IMPORTED: "Rows imported",
    Event.AUDIT_PRUNED: "Old days dropped",
}
"""Each event in plain words, no two alike."""

FILTER_LABELS: Final = {"since": "Since", "until": "Until"} | {
    parameter.name: parameter.label for parameter in FILTER_PARAMETERS
}
"""Each filter's name, as people read it."""


def event_label(event: str) -> str:
    """`event` in plain words, or unchanged if it is unknown."""
    return EVENT_LABELS.get(event, event)
