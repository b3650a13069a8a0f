"""Labels of the pages: events and columns in plain words, and shortened values."""

from typing import Final

from analytics.model.events import Event

EVENT_WORDS: Final[dict[str, str]] = {
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

FILTER_WORDS: Final[dict[str, str]] = {
    "since": "Since",
    "until": "Until",
    "event": "Event",
    "package": "Package",
    "version": "Version",
    "decision": "Decision",
    "actor": "Actor",
    "actor_source": "Actor source",
    "subject": "Subject",
    "oidc_binding_id": "Binding",
    "verdict_source": "Surface",
    "request_id": "Request",
    "source_ip": "Source address",
    "ecosystem": "Ecosystem",
    "repository_id": "Repository",
    "run_id": "CI run",
    "token_id": "CI token",
}
"""Each filter's name on the page."""

PROVIDER_WORDS: Final = {"github": "GitHub", "google": "Google", "microsoft": "Microsoft"}
"""Names of the identity providers for sign-in."""

CI_PROVIDERS: Final = {"github": "GitHub", "gitlab": "GitLab", "circleci": "CircleCI"}
CI_SOURCE_PREFIX: Final = "oidc_"
ACTOR_SOURCES: Final = (
    f"{CI_SOURCE_PREFIX}*",
    *(f"{CI_SOURCE_PREFIX}{provider}" for provider in CI_PROVIDERS),
    "api_key",
    "session",
    "admin_token",
    "system",
)
"""Completions of `actor_source`."""


def event_words(event: str) -> str:
    """`event` in plain words, or unchanged if it is unknown."""
    return EVENT_WORDS.get(event, event)


def ci_words(actor_source: str) -> str | None:
    """The CI provider of a row's actor, or None if the actor is not a CI job."""
    if not actor_source.startswith(CI_SOURCE_PREFIX):
        return None
    provider = actor_source.removeprefix(CI_SOURCE_PREFIX)
    return CI_PROVIDERS.get(provider, provider)


def cut(text: str, length: int = 64) -> str:
    """`text` in at most `length` characters; longer text is shortened in the middle.

    Both ends of a CI subject are informative: the repository in front, the branch at the end.
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


def grouped(number: int) -> str:
    """`number` with separators between thousands."""
    return f"{number:,}"
