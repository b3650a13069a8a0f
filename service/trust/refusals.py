"""Refusals of requests about trust bindings, and of the tokens that they are explained with."""

from typing import Final

from service.core.errors import Conflict, Invalid, NotFound
from service.web.refusals import NOT_AN_OBJECT, UNKNOWN_FIELD

ISSUER_MISSING: Final = Invalid.of("issuer is required (string)", field="issuer")
ISSUER_NOT_ALLOWED: Final = Invalid.of(
    "issuer is not on the allowlist: {value}", field="issuer", value="https://ci.example"
)
SUB_PATTERN_MISSING: Final = Invalid.of("sub_pattern is required (string)", field="sub_pattern")
SUB_PATTERN_INVALID: Final = Invalid.of(
    "sub_pattern must be 1..1024 chars with no whitespace / control characters",
    field="sub_pattern",
)
REPOSITORY_ID_NOT_DIGITS: Final = Invalid.of(
    "repository_id must be a positive integer string", field="repository_id"
)
REPOSITORY_ID_NOT_INTEGER: Final = Invalid.of(
    "repository_id must be a positive integer or its string form", field="repository_id"
)
REPOSITORY_ID_MISSING: Final = Invalid.of(
    "repository_id is required for issuer {value}",
    field="repository_id",
    value="https://ci.example",
)
EVENT_NAMES_NOT_STRINGS: Final = Invalid.of(
    "event_names must be an array of strings", field="event_names"
)
TOO_MANY_EVENT_NAMES: Final = Invalid.of(
    "event_names must have at most {limit} entries", field="event_names", limit=64
)
EVENT_NAME_INVALID: Final = Invalid.of(
    "every event_names entry must be a non-whitespace 1..64-char string", field="event_names"
)
ORIGIN_MISSING: Final = Invalid.of("origin is required (string)", field="origin")
ORIGIN_NOT_ALLOWED: Final = Invalid.of(
    "origin must be 'org_admin' or 'team_admin' on this surface", field="origin"
)
PROJECT_ID_NOT_STRING: Final = Invalid.of("project_id must be a string", field="project_id")
PROJECT_NOT_FOUND: Final = Invalid.of("project_id not found for this org", field="project_id")
TEAM_ID_NOT_STRING: Final = Invalid.of("team_id must be a string", field="team_id")
TEAM_NOT_FOUND: Final = Invalid.of("team_id not found for this org", field="team_id")
TEAM_ID_MISSING: Final = Invalid.of("team_id is required for origin=team_admin", field="team_id")
CONDITIONS_NOT_TEXTS: Final = Invalid.of(
    "conditions must be an object of claims and their exact values (strings)", field="conditions"
)
CONDITION_UNKNOWN: Final = Invalid.of(
    "conditions has an unknown claim: {value}: use {known}",
    field="conditions",
    value="branch",
    known="environment, ref",
)
CONDITION_VALUE_INVALID: Final = Invalid.of(
    "the condition on {value} must be 1..{limit} chars with no control characters, and no space at"
    " either end",
    field="conditions",
    value="environment",
    limit=1024,
)
OUTSIDE_ENVELOPE: Final = Invalid.of(
    "team_admin binding falls outside any active org_admin envelope"
    " — ask an org admin to expand the trust envelope first"
)
TOO_MANY_BINDINGS: Final = Invalid.of(
    "limit of {limit} active bindings reached: revoke one first", limit=10_000
)

CREATE_REFUSALS: Final[tuple[type[Invalid], ...]] = (
    NOT_AN_OBJECT,
    ISSUER_MISSING,
    ISSUER_NOT_ALLOWED,
    SUB_PATTERN_MISSING,
    SUB_PATTERN_INVALID,
    REPOSITORY_ID_NOT_DIGITS,
    REPOSITORY_ID_NOT_INTEGER,
    REPOSITORY_ID_MISSING,
    EVENT_NAMES_NOT_STRINGS,
    TOO_MANY_EVENT_NAMES,
    EVENT_NAME_INVALID,
    ORIGIN_MISSING,
    ORIGIN_NOT_ALLOWED,
    PROJECT_ID_NOT_STRING,
    PROJECT_NOT_FOUND,
    TEAM_ID_NOT_STRING,
    TEAM_NOT_FOUND,
    TEAM_ID_MISSING,
    CONDITIONS_NOT_TEXTS,
    CONDITION_UNKNOWN,
    CONDITION_VALUE_INVALID,
    UNKNOWN_FIELD,
    OUTSIDE_ENVELOPE,
    TOO_MANY_BINDINGS,
)
"""Every 400 a create can answer with, in the order in which faults are reported."""

TOKEN_NOT_STRING: Final = Invalid.of("token must be a string", field="token")
CLAIMS_NOT_OBJECT: Final = Invalid.of("claims must be a JSON object", field="claims")
NEITHER_TOKEN_NOR_CLAIMS: Final = Invalid.of("give either token or claims")
AS_OF_IN_FUTURE: Final = Invalid.of("asOf must not be in the future", field="asOf")
BINDING_IDS_NOT_STRINGS: Final = Invalid.of(
    "binding_ids must be an array of strings", field="binding_ids"
)


class BindingNotFound(NotFound):
    """The id is unknown, another organisation's, or revoked already."""

    text = "Binding not found for this org (or already revoked)"


REPOSITORY_NOT_BOUND: Final = NotFound.of(
    "no active binding of repository {repository_id} of {issuer} for this org",
    repository_id="123456789",
    issuer="https://ci.example",
)
"""The organisation has no active binding of the repository; the text names it."""


NO_SUCH_BINDING: Final = NotFound.of("Binding not found for this org")
REJECTED_NOT_FOUND: Final = NotFound.of(
    "Rejected subject not found for this org (or forgotten by now)"
)


class BindingExists(Conflict):
    """The slot is taken."""

    text = "An active binding already exists for this (issuer, sub, repository_id)"


REPOSITORY_CHANGED: Final = Conflict.of(
    "the bindings of this repository were changed concurrently: list them again"
)
