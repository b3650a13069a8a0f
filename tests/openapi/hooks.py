"""What schemathesis is told besides the document.

A schema cannot say which cursors this service has signed, which projects exist, or that one
parameter must be less than another. A request that fits the schema may be refused for exactly
these reasons, each named here by its text; for anything else a 400 is a failure.
"""

import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

STATE_DEPENDENT = (
    "cursor is not valid for this query",
    "since must be before until",
    "at most 100 filter values in one query",
    "more than 10000 buckets: ",
    "asOf must not be in the future",
    "asOf is before the organisation was created",
    "compress does not go with parquet, which is compressed already",
    "issuer is not on the allowlist: ",
    "project_id not found for this org",
    "team_id not found for this org",
    "team_id is required for origin=team_admin",
    "name must be 1 to 100 printable characters",
    # Of a stream, by its kind, and the ids of rows that there are.
    "url must be https://HOST/PATH",
    "secret must be ",
    "after must be start, now or the id of a row",
    "email must look like ",
    "secret must be ",
    "at_least must be 1: ",
    "expires must be ",
    "overlap must be ",
    "project must be ",
    "a key of a project cannot read",
    "the last owner cannot be removed or changed",
    "query must be filters such as package=left-pad: ",
    "by must be 1 to 3 different ones of ",
    "unknown field ",
    "give either state or active",
    "issuer is required (string)",
    "invalid_grant",
    "authorization_pending",
    "slow_down",
    # Names, globs and ranges of two ecosystems, which no one pattern describes.
    "first_party[",
    "deny[",
    "allow[",
    "cooldown.exempt[",
    "the policy is at revision ",
    "package: ",
    "package must not have ",
    "reason: must be ",
    "version is required: ",
    "version must be 1 to 256 characters",
    "version: not a version",
    "team_admin binding falls outside any active org_admin envelope",
    "give either state or active",
    "q: ",
    "not a usable zip file: ",
    # Alert rules: windows, hours and conditions are texts, and what Sigma says is a language.
    "window must be whole ",
    "query must be ",
    "query, per, where and outside must be empty: ",
    "per must be a filter: ",
    "where must be conditions ",
    "outside must be days, ",
    "sigma",
    "rule: ",
)


@schemathesis.serializer("application/zip")
def as_file(ctx, value):
    """A file is sent as it is."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.check
def only_state_refuses_valid_requests(ctx, response, case):
    """Schemathesis' own check of valid requests, but for refusals the schema cannot foresee."""
    if response.status_code in {400, 412} and (
        response.json()["error"].startswith(STATE_DEPENDENT)
        or _has_id_with_a_fraction(case)
        or case.path.endswith("/audit/sql")  # a statement is any text
    ):
        return None
    return positive_data_acceptance(ctx, response, case)


@schemathesis.check
def invalid_requests_are_refused(ctx, response, case):
    """Schemathesis' own check of invalid requests, but for what is accepted on purpose.

    Faulty items of an ingest are named in a 200, because the others are stored; and an export takes
    `raw` as 0 or 1, too.
    """
    is_ingest = case.path.endswith("/audit/events") and response.status_code == 200
    if is_ingest and response.json()["rejected"]:
        return None
    if str((case.query or {}).get("raw")) in {"0", "1"}:
        return None
    return negative_data_rejection(ctx, response, case)


def _has_id_with_a_fraction(case):
    """Whether the repository's id is sent as `1.0`, an integer for JSON Schema, not for SPEC.md."""
    return isinstance(case.body, dict) and isinstance(case.body.get("repository_id"), float)
