"""Refusals of requests about trust bindings, and of the tokens that they are explained with."""

from service.core.errors.base import Conflict, Forbidden, Invalid, NotFound
from service.core.errors.requests import NotAnObject, UnknownField


class IssuerMissing(Invalid):
    """`issuer` is missing or not a string."""

    field = "issuer"
    text = "issuer is required (string)"


class IssuerNotAllowed(Invalid):
    """`issuer` is not accepted here; the text repeats it."""

    field = "issuer"
    text = "issuer is not on the allowlist: {value}"


class SubPatternMissing(Invalid):
    """`sub_pattern` is missing or not a string."""

    field = "sub_pattern"
    text = "sub_pattern is required (string)"


class SubPatternInvalid(Invalid):
    """`sub_pattern` is empty, too long, or has invisible characters."""

    field = "sub_pattern"
    text = "sub_pattern must be 1..1024 chars with no whitespace / control characters"


class RepositoryIdNotDigits(Invalid):
    """`repository_id` is a string, but not of 1 to 32 digits, or zero."""

    field = "repository_id"
    text = "repository_id must be a positive integer string"


class RepositoryIdNotInteger(Invalid):
    """`repository_id` is neither a string nor a positive integer."""

    field = "repository_id"
    text = "repository_id must be a positive integer or its string form"


class RepositoryIdMissing(Invalid):
    """`repository_id` is missing where the issuer requires it; the text names the issuer."""

    field = "repository_id"
    text = "repository_id is required for issuer {value}"


class EventNamesNotStrings(Invalid):
    """`event_names` is not an array of strings."""

    field = "event_names"
    text = "event_names must be an array of strings"


class TooManyEventNames(Invalid):
    """`event_names` is too long."""

    field = "event_names"
    text = "event_names must have at most 64 entries"


class EventNameInvalid(Invalid):
    """An event name is empty, too long, or has invisible characters."""

    field = "event_names"
    text = "every event_names entry must be a non-whitespace 1..64-char string"


class OriginMissing(Invalid):
    """`origin` is missing or not a string."""

    field = "origin"
    text = "origin is required (string)"


class OriginNotAllowed(Invalid):
    """`origin` is not one that the API accepts."""

    field = "origin"
    text = "origin must be 'org_admin' or 'team_admin' on this surface"


class ProjectIdNotString(Invalid):
    """`project_id` is not a string."""

    field = "project_id"
    text = "project_id must be a string"


class ProjectNotFound(Invalid):
    """`project_id` is not a project of the organisation."""

    field = "project_id"
    text = "project_id not found for this org"


class TeamIdNotString(Invalid):
    """`team_id` is not a string."""

    field = "team_id"
    text = "team_id must be a string"


class TeamNotFound(Invalid):
    """`team_id` is not a team of the organisation."""

    field = "team_id"
    text = "team_id not found for this org"


class TeamIdMissing(Invalid):
    """A team's binding does not say which team."""

    field = "team_id"
    text = "team_id is required for origin=team_admin"


class TokenNotString(Invalid):
    """`token` is not a string."""

    field = "token"
    text = "token must be a string"


class ClaimsNotObject(Invalid):
    """`claims` is not a JSON object."""

    field = "claims"
    text = "claims must be a JSON object"


class NeitherTokenNorClaims(Invalid):
    """The body has neither `token` nor `claims`, or both."""

    text = "give either token or claims"


class BindingIdsNotStrings(Invalid):
    """`binding_ids` is not an array of strings."""

    field = "binding_ids"
    text = "binding_ids must be an array of strings"


class OutsideEnvelope(Invalid):
    """A team binding without the organisation's own binding above it."""

    text = (
        "team_admin binding falls outside any active org_admin envelope"
        " — ask an org admin to expand the trust envelope first"
    )


class NotTeamAdmin(Forbidden):
    """The caller does not administer the team the binding belongs to."""

    field = "team_id"
    text = "caller is not an admin of this team"


class NotOrgAdmin(Forbidden):
    """Organisation-level bindings are for owners and admins."""

    field = "origin"
    text = "organisation-level bindings are changed by owners and admins only"


class CiTokenRefused(Forbidden):
    """The CI token was rejected; the text begins with the verifier's failure code."""

    text = "missing_token: send the CI job's token in x-service-ci-oidc"


class TooManyBindings(Invalid):
    """The organisation has as many active bindings as it may."""

    text = "limit of {limit} active bindings reached: revoke one first"


class BindingNotFound(NotFound):
    """The id is unknown, another organisation's, or revoked already."""

    text = "Binding not found for this org (or already revoked)"


class NoSuchBinding(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Binding not found for this org"


class RepositoryNotBound(NotFound):
    """The organisation has no active binding of the repository; the text names it."""

    text = "no active binding of repository {repository_id} of {issuer} for this org"


class RejectedNotFound(NotFound):
    """No such rejected subject: another organisation's, or forgotten by now."""

    text = "Rejected subject not found for this org (or forgotten by now)"


class BindingExists(Conflict):
    """The slot is taken."""

    text = "An active binding already exists for this (issuer, sub, repository_id)"


class RepositoryChanged(Conflict):
    """The repository's active bindings are not those that the request names."""

    text = "the bindings of this repository were changed concurrently: list them again"


CREATE_REFUSALS: tuple[type[Invalid], ...] = (
    NotAnObject,
    IssuerMissing,
    IssuerNotAllowed,
    SubPatternMissing,
    SubPatternInvalid,
    RepositoryIdNotDigits,
    RepositoryIdNotInteger,
    RepositoryIdMissing,
    EventNamesNotStrings,
    TooManyEventNames,
    EventNameInvalid,
    OriginMissing,
    OriginNotAllowed,
    ProjectIdNotString,
    ProjectNotFound,
    TeamIdNotString,
    TeamNotFound,
    TeamIdMissing,
    UnknownField,
    OutsideEnvelope,
    TooManyBindings,
)
"""Every 400 a create can answer with, in the order in which faults are reported."""
