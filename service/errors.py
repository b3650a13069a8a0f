"""What a caller can be refused for: every status, and every exact text.

The app's one error handler turns a `Refusal` into `{"error": text}`. What the caller sees is
constant or names their own input; what went wrong inside is for the log. What only a command can
be refused for stands with it: in `service.backup.refusals`, in `service.cli`.
"""

from datetime import datetime
from typing import ClassVar

from analytics.model.instants import format_ms


class Refusal(Exception):
    """An answer other than the one hoped for, with all that the caller is told of it."""

    status: ClassVar[int]
    text: str
    field: str | None = None
    """The body's member, form field or query parameter that is at fault; None for no single one."""

    retry_after_s: ClassVar[int | None] = None
    """When to try again, if that is known."""

    def __init__(self, text: str | None = None, *, field: str | None = None, **values: str) -> None:
        """`text` and `field` replace the class's own; `values` fill the places in its text."""
        self.text = text if text is not None else type(self).text.format(**values)
        if field is not None:
            self.field = field
        super().__init__(self.text)


class Invalid(Refusal):
    """The request says something it may not; the text names the field."""

    status = 400
    text = "invalid request"


class NotAnObject(Invalid):
    """The body is not a JSON object."""

    text = "request body must be a JSON object"


class NotItems(Invalid):
    """The body is neither a JSON array nor newline-delimited JSON."""

    text = "request body must be a JSON array, or one JSON object a line (application/x-ndjson)"


class NotGzip(Invalid):
    """The body says it is gzip and is not."""

    text = "request body is not valid gzip"


class IdempotencyKeyInvalid(Invalid):
    """The idempotency key is empty, too long, or not printable ASCII."""

    text = "Idempotency-Key must be 1..255 printable ASCII characters"


class InvalidCursor(Invalid):
    """A cursor that was not made for this query."""

    field = "cursor"
    text = "cursor is not valid for this query"


class IssuerMissing(Invalid):
    """`issuer` is missing or no string."""

    field = "issuer"
    text = "issuer is required (string)"


class IssuerNotAllowed(Invalid):
    """`issuer` is not accepted here; the text repeats it."""

    field = "issuer"
    text = "issuer is not on the allowlist: {value}"


class SubPatternMissing(Invalid):
    """`sub_pattern` is missing or no string."""

    field = "sub_pattern"
    text = "sub_pattern is required (string)"


class SubPatternInvalid(Invalid):
    """`sub_pattern` is empty, too long, or has characters nobody can see."""

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
    """An event name is empty, too long, or has characters nobody can see."""

    field = "event_names"
    text = "every event_names entry must be a non-whitespace 1..64-char string"


class OriginMissing(Invalid):
    """`origin` is missing or no string."""

    field = "origin"
    text = "origin is required (string)"


class OriginNotAllowed(Invalid):
    """`origin` is none of this surface's."""

    field = "origin"
    text = "origin must be 'org_admin' or 'team_admin' on this surface"


class ProjectIdNotString(Invalid):
    """`project_id` is no string."""

    field = "project_id"
    text = "project_id must be a string"


class ProjectNotFound(Invalid):
    """`project_id` is no project of the organisation."""

    field = "project_id"
    text = "project_id not found for this org"


class TeamIdNotString(Invalid):
    """`team_id` is no string."""

    field = "team_id"
    text = "team_id must be a string"


class TeamNotFound(Invalid):
    """`team_id` is no team of the organisation."""

    field = "team_id"
    text = "team_id not found for this org"


class TeamIdMissing(Invalid):
    """A team's binding does not say which team."""

    field = "team_id"
    text = "team_id is required for origin=team_admin"


class TokenNotString(Invalid):
    """`token` is no string."""

    field = "token"
    text = "token must be a string"


class ClaimsNotObject(Invalid):
    """`claims` is no JSON object."""

    field = "claims"
    text = "claims must be a JSON object"


class NeitherTokenNorClaims(Invalid):
    """There is nothing to explain, or twice."""

    text = "give either token or claims"


class UnknownField(Invalid):
    """The body has keys that mean nothing here; the text names them."""

    text = "unknown field: {value}"


class UnknownParameter(Invalid):
    """The query string has parameters that mean nothing here; the text names them."""

    text = "unknown query parameter: {value}"


class ReasonInvalid(Invalid):
    """A reason is too long or has control characters."""

    field = "reason"
    text = "reason must be at most 1024 chars with no control characters"


class HoldReasonMissing(Invalid):
    """A legal hold for no reason that anybody could read."""

    field = "reason"
    text = "a legal hold needs a reason that can be read"


class OutsideEnvelope(Invalid):
    """A team binding without the organisation's own binding above it."""

    text = (
        "team_admin binding falls outside any active org_admin envelope"
        " — ask an org admin to expand the trust envelope first"
    )


class Unauthenticated(Refusal):
    """No credentials, or wrong ones."""

    status = 401
    text = "missing or invalid credentials"


class Forbidden(Refusal):
    """The caller is known and may not do this."""

    status = 403
    text = "forbidden"


class LacksCapability(Forbidden):
    """The caller's role does not grant what the endpoint needs."""

    def __init__(self, capability: str) -> None:
        super().__init__(f"missing capability: {capability}")


class NotMember(Forbidden):
    """The caller belongs to another organisation."""

    text = "you are not a member of this organisation"


class CrossSite(Forbidden):
    """A browser sent this on behalf of another site."""

    text = "cross-site request refused"


class ForeignForm(Forbidden):
    """The form is none that this session was shown."""

    text = "this form belongs to another session: reload its page and send it again"


class NotTeamAdmin(Forbidden):
    """The caller does not administer the team the binding belongs to."""

    field = "team_id"
    text = "caller is not an admin of this team"


class NotOrgAdmin(Forbidden):
    """Organisation-level bindings are for owners and admins."""

    field = "origin"
    text = "organisation-level bindings are changed by owners and admins only"


class RoleBeyondOwn(Forbidden):
    """The caller would give, or decide over, more than they have."""

    text = "this role goes beyond your own: ask somebody who has it"


class NotForSessions(Forbidden):
    """A person's session sent what only machines may send."""

    text = "audit rows are sent with an API key or the admin token"


class KeyOfAnotherOrg(Forbidden):
    """The API key belongs to another organisation."""

    text = "API key belongs to another organisation"


class NotFound(Refusal):
    """Nothing is there."""

    status = 404
    text = "not found"


class OrgNotFound(NotFound):
    """No organisation has this slug."""

    text = "Org not found"


class BindingNotFound(NotFound):
    """The id is unknown, another organisation's, or revoked already."""

    text = "Binding not found for this org (or already revoked)"


class NoSuchBinding(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Binding not found for this org"


class RejectedNotFound(NotFound):
    """No such rejected subject: another organisation's, or forgotten by now."""

    text = "Rejected subject not found for this org (or forgotten by now)"


class AuditRowNotFound(NotFound):
    """The id is unknown, another organisation's, or past retention."""

    text = "Audit row not found for this org"


class MethodNotAllowed(Refusal):
    """The path is there, for other methods."""

    status = 405
    text = "method not allowed"


class Conflict(Refusal):
    """Something of this name is there already."""

    status = 409
    text = "conflict"


class PasskeyExists(Conflict):
    """Somebody has registered this credential before."""

    text = "this passkey is registered already"


class TooManyPasskeys(Conflict):
    """The member has as many passkeys as one may."""

    text = "you have 20 passkeys, and nobody may have more: remove one first"


class BindingExists(Conflict):
    """The slot is taken."""

    text = "An active binding already exists for this (issuer, sub, repository_id)"


class ClockNotTrusted(Conflict):
    """The clock may have stepped ahead; going by it could drop what is not old at all."""

    text = (
        "the clock says {now}, over 48 hours past the last pruning run ({last_run_at});"
        " if it is right, run `countersign audit prune --accept-clock`"
        " (with --dry-run first to see what would go)"
    )

    def __init__(self, now: datetime, last_run_at: datetime) -> None:
        super().__init__(now=format_ms(now), last_run_at=format_ms(last_run_at))
        self.now = now
        self.last_run_at = last_run_at


class NoClockRecord(Conflict):
    """Nothing to measure the clock against: no `init` of this version has run."""

    text = "no instant is on record to check the clock against: run `countersign init`"


class FormSpent(Conflict):
    """A form that works once was sent before, or is none of this session's."""

    text = "this form has been sent already, or is too old: nothing was done this time"


class OverrideMoved(Conflict):
    """Somebody else changed what a role is granted since the page was shown."""

    text = "somebody else has changed this role meanwhile: what holds now is shown"


class KeyReused(Conflict):
    """The idempotency key stands for another body."""

    text = "Idempotency-Key was used with another body"


class BodyTooLarge(Refusal):
    """More bytes than a body may have."""

    status = 413
    text = "request body is too large"


class TooManyItems(BodyTooLarge):
    """More rows than one request may bring."""

    text = "at most 10000 rows in one request"


class NotJson(Refusal):
    """A body of another type than JSON."""

    status = 415
    text = "content-type must be application/json"


class NotIngestType(NotJson):
    """A body of another type than the two that rows come in."""

    text = "content-type must be application/json or application/x-ndjson"


class UnknownEncoding(NotJson):
    """A content encoding nobody here can undo."""

    text = "content-encoding must be gzip or identity"


class Busy(Refusal):
    """More than is let in at once; nothing was taken, try again after `Retry-After` seconds."""

    status = 429
    text = "too many requests of this organisation at once"
    retry_after_s = 1


class JournalFull(Busy):
    """So many rows of the organisation wait to be sealed that no more are taken just now."""

    text = "the journal of this organisation is full"
    retry_after_s = 5


class AnswersFull(Busy):
    """So many long answers of the organisation are kept for a repeat that no more are just now."""

    text = "too many rejected items of this organisation are kept for their Idempotency-Key"
    retry_after_s = 60


class TooManyExports(Refusal):
    """The organisation takes away as much at once as it may."""

    status = 429
    text = "too many exports of this organisation at once: wait until one of them ends"
    retry_after_s = 30


class TooManyStreams(Refusal):
    """As many pages show live rows at once as may."""

    status = 429
    text = "too many pages show live rows at once: close one of them"
    retry_after_s = 30


class SignInRefused(Refusal):
    """A sign-in that came to nothing. People see it as a page; the log says what went wrong."""

    status = 400
    text = "you are not signed in"


class SignInNotUnderWay(SignInRefused):
    """The answer belongs to no sign-in that this browser began, or comes late or twice."""

    text = "this sign-in was not begun in this browser, has been used, or took over 10 minutes"


class ProviderDenied(SignInRefused):
    """The person turned back at the provider, or it would not let them in."""

    text = "the identity provider did not sign you in"


class IdentityNotProved(SignInRefused):
    """The provider's answer does not say for certain who somebody is."""

    text = "what the identity provider sent does not prove who you are"


class AccountNotKnown(SignInRefused):
    """The account is linked to no member, nor does anything here let it in."""

    status = 403
    text = (
        "no organisation here lets this account in: ask an owner to add you with this provider"
        " and the address that it has verified"
    )


class ProviderUnavailable(SignInRefused):
    """The provider does not answer, or not as it should."""

    status = 502
    text = "the identity provider does not answer as it should: try again in a few minutes"


class PasskeyNotUnderWay(SignInRefused):
    """The answer belongs to no challenge of this browser's, or comes late or twice."""

    text = "this was not begun in this browser, has been used, or took over 5 minutes: try again"


class PasskeyNotMade(SignInRefused):
    """The browser's answer to a registration is not what was asked for."""

    text = "the browser did not make a passkey that can be used here"


class PasskeyRefused(SignInRefused):
    """The answer lets nobody in. Why, is for the organisation's log, if it is about a member."""

    status = 403
    text = "this passkey lets nobody in here: sign in another way"


class TooManySignIns(SignInRefused):
    """More attempts than people make, from one address or from all together."""

    status = 429
    text = "too many attempts to sign in: wait a minute"
    retry_after_s = 60


class Internal(Refusal):
    """A fault of ours. The log, under the request id, says which."""

    status = 500
    text = "internal error"


class StoreUnavailable(Refusal):
    """The database or the audit folder did not answer. Nothing was changed; try again."""

    status = 503
    text = "storage is unavailable"

    @property
    def reason(self) -> str:
        """What the database or the file system said: for logs and the operator, no bound values."""
        return str(getattr(self.__cause__, "orig", self.__cause__))


class StorageFull(StoreUnavailable):
    """There is no room for the change on the disk. Reading still works."""

    status = 507
    text = "storage is full: nothing was changed"


class StorageReadOnly(StoreUnavailable):
    """The database file or its folder does not take the change. Reading still works."""

    text = "storage is read-only: nothing was changed"


class StorageBusy(StoreUnavailable):
    """Somebody else held the database for longer than we wait."""

    text = "storage is busy: nothing was changed, try again"


class StorageDamaged(StoreUnavailable):
    """StorageStats rows are missing or not what was stored; the log says which."""

    text = "stored data is missing or damaged: the log says where"


class QueryTooSlow(Refusal):
    """A query over more than can be read in time. It was stopped; nothing of it goes on."""

    status = 503
    text = "the query took too long and was stopped: ask for a shorter window"


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
)
"""Every 400 a create can answer with, in the order in which faults are reported."""
