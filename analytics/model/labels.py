"""Events, filters and CI jobs in plain words.

The search understands these words, too, so that what a page shows can be typed there.
"""

import re
from typing import Final

from analytics.model.events import Event
from analytics.model.schema import FILTER_PARAMETERS

EVENT_LABELS: Final[dict[str, str]] = {
    Event.OSS_FIRST_PARTY: "First-party install",
    Event.INSTALL_ALLOWED: "Install allowed",
    Event.BLOCKLIST_HIT: "Blocked: denied",
    Event.INSTALL_WOULD_BLOCK: "Allowed: would be blocked",
    Event.INSTALL_CUT: "Install cut off",
    Event.ARTIFACT_CHANGED: "Blocked: file changed",
    Event.COOLDOWN_ACTIVE: "Blocked: too new",
    Event.OIDC_BINDING_CREATED: "Binding created",
    Event.OIDC_BINDING_REVOKED: "Binding revoked",
    Event.OAUTH_LOGIN_SUCCEEDED: "Signed in by OAuth",
    Event.PASSKEY_AUTHENTICATION_SUCCEEDED: "Signed in by passkey",
    Event.LINK_SIGN_IN_SUCCEEDED: "Signed in by link",
    Event.DEVICE_SIGN_IN_SUCCEEDED: "Signed in a command line",
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
    Event.ADMIN_TOKEN_CHANGED: "Admin token changed",
    Event.API_KEY_CREATED: "API key created",
    Event.API_KEY_ROTATED: "API key rotated",
    Event.API_KEY_REVOKED: "API key revoked",
    Event.INSTALL_TOKEN_ISSUED: "Install token issued",
    Event.POLICY_CHANGED: "Policy changed",
    Event.POLICY_EXCEPTION_REQUESTED: "Policy exception requested",
    Event.POLICY_EXCEPTION_DECIDED: "Policy exception decided",
    Event.BLOCKLIST_IMPORTED: "Blocklist imported",
    Event.ARTIFACT_ACCEPTED: "Changed file accepted",
    Event.AUDIT_EXPORTED: "Export started",
    Event.AUDIT_EXPORT_FINISHED: "Export finished",
    Event.AUDIT_IMPORTED: "Rows imported",
    Event.AUDIT_PRUNED: "Old days dropped",
    Event.CLOCK_ACCEPTED: "Clock confirmed",
    Event.AUDIT_SEGMENT_RESTORED: "Damaged rows restored",
    Event.AUDIT_SEGMENT_LOST: "Damaged rows given up",
}
"""Each event in plain words, no two alike."""

FILTER_LABELS: Final = {"since": "Since", "until": "Until"} | {
    parameter.name: parameter.label for parameter in FILTER_PARAMETERS
}
"""Each filter's name, as people read it."""


def event_label(event: str) -> str:
    """`event` in plain words, or unchanged if it is unknown."""
    return EVENT_LABELS.get(event, event)


_GITHUB_JOB: Final = re.compile(r"repo:(?P<path>[^:]+):(?P<rest>.+)", re.DOTALL)
_GITLAB_JOB: Final = re.compile(
    r"project_path:(?P<path>[^:]+):ref_type:(?P<type>branch|tag):ref:(?P<ref>.+)", re.DOTALL
)
_GITHUB_REFS: Final = {
    "ref:refs/heads/": "",
    "ref:refs/tags/": "tag ",
    "environment:": "environment ",
}
"""The ways in which a subject of GitHub Actions names its ref or environment, and their labels."""

_SEPARATOR: Final = " \N{MIDDLE DOT} "


def job_label(subject: str) -> str | None:
    """The repository and ref of a CI subject, `acme/app · main`; None for other subjects."""
    if match := _GITHUB_JOB.fullmatch(subject):
        rest = match["rest"]
        for prefix, label in _GITHUB_REFS.items():
            if rest.startswith(prefix):
                rest = f"{label}{rest.removeprefix(prefix)}"
                break
        return f"{match['path']}{_SEPARATOR}{rest}"
    if match := _GITLAB_JOB.fullmatch(subject):
        label = "tag " if match["type"] == "tag" else ""
        return f"{match['path']}{_SEPARATOR}{label}{match['ref']}"
    return None


def job_subjects(label: str) -> list[str]:
    """The CI subjects that `job_label` may have shown as `label`; empty if there are none."""
    path, separator, rest = label.partition(_SEPARATOR)
    if not path or not separator or not rest:
        return []
    tag, branch = rest.removeprefix("tag "), "ref:refs/heads/" + rest
    candidates = [
        f"repo:{path}:{rest}",
        f"repo:{path}:{branch}",
        f"repo:{path}:ref:refs/tags/{tag}",
        f"repo:{path}:environment:{rest.removeprefix('environment ')}",
        f"project_path:{path}:ref_type:branch:ref:{rest}",
        f"project_path:{path}:ref_type:tag:ref:{tag}",
    ]
    return [subject for subject in candidates if job_label(subject) == label]
