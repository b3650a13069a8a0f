"""Every refusal: its status, the field it is about, and its exact text.

The app's one error handler turns a `Refusal` into `{"error": text}`. What the caller sees is
constant or names their own input; what went wrong inside is for the log. Refusals of
commands are in `service.backup.refusals` and `service.cli`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from analytics.model.instants import format_ms


class Refusal(Exception):
    """An error that the caller can act on."""

    status: ClassVar[int]
    text: str
    field: str | None = None
    """The body's member, form field or query parameter that is at fault; None for no single one."""

    retry_after_s: ClassVar[int | None] = None
    """When to try again, if that is known."""

    is_temporary: bool = False
    """Whether the same may succeed later: the exit code of a command tells so."""

    further: "Sequence[Refusal]" = ()
    """Faults of other fields. An API answer names the first one; a form shows all at once."""

    def __init__(self, text: str | None = None, *, field: str | None = None, **values: str) -> None:
        """`text` and `field` replace the class's own; `values` fill the places in its text."""
        self.text = text if text is not None else type(self).text.format(**values)
        if field is not None:
            self.field = field
        super().__init__(self.text)

    @property
    def by_field(self) -> dict[str, str]:
        """The texts of all faults that are of one field each, by field."""
        faults = (self, *self.further)
        return {fault.field: fault.text for fault in faults if fault.field is not None}


class Invalid(Refusal):
    """The request is not valid; the text names the field."""

    status = 400
    text = "invalid request"


class NotAnObject(Invalid):
    """The body is not a JSON object."""

    text = "request body must be a JSON object"


class DuplicateMember(Invalid):
    """An object in the body has a member twice; the text names it."""

    text = "request body has a member twice: {value}"


class NotANumber(Invalid):
    """The body has a number that JSON does not allow; the text names it."""

    text = "request body has {value}, which is not a JSON number"


class NotStorableText(Invalid):
    """The request has text that the database cannot store or compare."""

    text = "text must not have half of a surrogate pair"


class NoBodyExpected(Invalid):
    """The endpoint takes no body."""

    text = "this request takes no body: leave it empty"


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


class RevisionMissing(Invalid):
    """A policy would be replaced without saying which one."""

    field = "if-match"
    text = "If-Match is required: the ETag of the policy that this one replaces, or * for any"


class BindingIdsNotStrings(Invalid):
    """`binding_ids` is not an array of strings."""

    field = "binding_ids"
    text = "binding_ids must be an array of strings"


class HoldReasonMissing(Invalid):
    """A legal hold without a readable reason."""

    field = "reason"
    text = "a legal hold needs a reason"


class OutsideEnvelope(Invalid):
    """A team binding without the organisation's own binding above it."""

    text = (
        "team_admin binding falls outside any active org_admin envelope"
        " — ask an org admin to expand the trust envelope first"
    )


class Unauthenticated(Refusal):
    """No credentials, or wrong ones.

    `challenge` is what the answer tells clients to send (RFC 9110, 11.6.1). Bearer tokens are
    sessions of command lines. No registered scheme uses our other header fields, and `Basic` would
    make browsers ask for a password.
    """

    status = 401
    text = "missing or invalid credentials"
    challenge: ClassVar[str] = 'Bearer realm="countersign", ApiKey realm="countersign"'


class ApiKeyExpired(Unauthenticated):
    """The API key was good once; the text says until when."""

    text = "the API key expired on {value}: issue or rotate one"


class InstallUnauthenticated(Unauthenticated):
    """A request to install without a credential that may, or with a wrong one.

    Package managers send credentials only to a `Basic` challenge.
    """

    text = (
        "missing or invalid credentials: send an API key or an install token (csi_…) as the"
        " password of Basic authentication, or as a bearer token"
    )
    challenge = 'Basic realm="countersign"'


class InstallTokenExpired(InstallUnauthenticated):
    """The install token was good once; the text says until when."""

    text = (
        "the install token expired on {value}: run `countersign ci exec` again, or exchange a new"
        " CI token for a new one"
    )


class InstallTokenEnded(InstallUnauthenticated):
    """The API key of the install token was revoked or has expired."""

    text = (
        "the API key of this install token was revoked or has expired: exchange a CI token for a"
        " new one, with another API key"
    )


class CredentialsDiffer(Invalid):
    """A request to install carries several credentials that are not the same."""

    text = "the request carries {value} that differ: send one of them"


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
    """The form was not shown to this session."""

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
    """The caller would grant, or act on, a role with rights that they lack."""

    text = "this role has rights beyond your own: ask a member who has it"


class NotForSessions(Forbidden):
    """A person's session sent what only machines may send."""

    text = "audit rows are sent with an API key or the admin token"


class NotForScopedKeys(Forbidden):
    """A key with scopes sent audit rows."""

    text = "this API key has scopes and sends no audit rows: issue one without scopes for that"


class NotForKeys(Forbidden):
    """An API key was used where only members and operators may act."""

    text = "API keys cannot do this: use a member's session or the admin token"


class KeyCannotChange(Forbidden):
    """An API key with scopes only reads."""

    text = "an API key reads, and changes nothing: use a session or the admin token"


class KeyOfAnotherOrg(Forbidden):
    """The API key belongs to another organisation."""

    text = "API key belongs to another organisation"


class InstallTokenOfAnotherOrg(Forbidden):
    """The install token belongs to another organisation."""

    text = "the install token belongs to another organisation"


class CiTokenRefused(Forbidden):
    """The CI token was rejected; the text begins with the verifier's failure code."""

    text = "missing_token: send the CI job's token in x-service-ci-oidc"


class NotFound(Refusal):
    """The resource does not exist."""

    status = 404
    text = "not found"


class OrgNotFound(NotFound):
    """No organisation has this slug."""

    text = "Org not found"


class BindingNotFound(NotFound):
    """The id is unknown, another organisation's, or revoked already."""

    text = "Binding not found for this org (or already revoked)"


class SearchNotFound(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Saved search not found for this org"


class ExceptionNotFound(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Exception not found for this org"


class RevisionNotFound(NotFound):
    """The organisation's policy never had this revision, or it is no longer kept."""

    text = "No such revision of the policy of this org"


class NoSuchBinding(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Binding not found for this org"


class RepositoryNotBound(NotFound):
    """The organisation has no active binding of the repository; the text names it."""

    text = "no active binding of repository {repository_id} of {issuer} for this org"


class RejectedNotFound(NotFound):
    """No such rejected subject: another organisation's, or forgotten by now."""

    text = "Rejected subject not found for this org (or forgotten by now)"


class AuditRowNotFound(NotFound):
    """The id is unknown, another organisation's, or past retention."""

    text = "Audit row not found for this org"


class ExportNotFound(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Export not found for this org"


class MethodNotAllowed(Refusal):
    """The path exists for other methods."""

    status = 405
    text = "method not allowed"


class Conflict(Refusal):
    """The change conflicts with what is stored."""

    status = 409
    text = "conflict"


class ExportNotFinished(Conflict):
    """The export has no receipt, because it is still running or broke off."""

    text = "the export is {value}: only a finished export has a receipt"


class PasskeyExists(Conflict):
    """The credential is already registered."""

    text = "this passkey is registered already"


class TooManyPasskeys(Conflict):
    """The member has the maximum number of passkeys."""

    text = "passkey limit (20) reached: remove one first"


class BindingExists(Conflict):
    """The slot is taken."""

    text = "An active binding already exists for this (issuer, sub, repository_id)"


class SearchExists(Conflict):
    """The name is taken."""

    text = "a saved search of this name exists"
    field = "name"


class TooManySearches(Conflict):
    """The organisation has as many saved searches as it may."""

    text = "100 saved searches, and no more can be kept: delete one first"


class ExceptionExists(Conflict):
    """The same release waits for a decision already."""

    text = "an exception for this release was requested already, and waits for a decision"


class ExceptionDecided(Conflict):
    """The request was decided before."""

    text = "this request is {value} already: request a new one"


class TooManyExceptions(Conflict):
    """The organisation has as many undecided requests as it may."""

    text = "200 requests for exceptions wait for a decision, and no more can: decide some first"


class RepositoryChanged(Conflict):
    """The repository's active bindings are not those that the request names."""

    text = "the bindings of this repository were changed concurrently: list them again"


class ClockNotTrusted(Conflict):
    """The clock may have jumped ahead; pruning by it could drop recent rows."""

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
    """No earlier instant to compare the clock with: no `init` of this version has run."""

    text = "no instant is on record to check the clock against: run `countersign init`"


class FormSpent(Conflict):
    """A form that works once was sent before, or belongs to another session."""

    text = "this form was already submitted or has expired: reload its page"


class OverrideMoved(Conflict):
    """The role's capabilities changed after the page was shown."""

    text = "the role was changed concurrently; its current value is shown"


class KeyReused(Conflict):
    """The idempotency key was used with another body."""

    text = "Idempotency-Key was used with another body"


class PolicyMoved(Refusal):
    """The policy changed after the caller read it."""

    status = 412
    text = "the policy is at revision {value} by now: read it again, and apply your change to that"


class BodyTooLarge(Refusal):
    """The body has too many bytes."""

    status = 413
    text = "request body is too large"


class TooManyItems(BodyTooLarge):
    """The request has too many rows."""

    text = "at most 10000 rows in one request"


class NotJson(Refusal):
    """The body is not declared as JSON."""

    status = 415
    text = "content-type must be application/json"


class NotIngestType(NotJson):
    """The body is not declared as a type that ingest accepts."""

    text = "content-type must be application/json or application/x-ndjson"


class UnknownEncoding(NotJson):
    """The content encoding is not supported."""

    text = "content-encoding must be gzip or identity"


class Busy(Refusal):
    """Too many concurrent requests. Nothing was stored; try again after `Retry-After` seconds."""

    status = 429
    text = "too many requests of this organisation at once"
    retry_after_s = 1


class JournalFull(Busy):
    """Too many of the organisation's rows wait to be sealed."""

    text = "the journal of this organisation is full"
    retry_after_s = 5


class AnswersFull(Busy):
    """Too many long answers of the organisation are kept for repeated requests."""

    text = "too many rejected items of this organisation are kept for their Idempotency-Key"
    retry_after_s = 60


class TooManyInstallTokens(Refusal):
    """The API key has the maximum number of live install tokens, or this CI token has."""

    status = 429
    text = "too many install tokens of {value} are live: use one of them, or wait until they expire"
    retry_after_s = 60


class TooManyExports(Refusal):
    """The organisation has the maximum number of exports under way."""

    status = 429
    text = "too many exports of this organisation at once: wait until one of them ends"
    retry_after_s = 30


class TooManyOwnExports(TooManyExports):
    """The caller has the maximum number of exports under way."""

    text = "too many exports of yours at once: wait until one of them ends"


class TooManyStreams(Refusal):
    """The maximum number of pages that show live rows are open."""

    status = 429
    text = "too many pages show live rows at once: close one of them"
    retry_after_s = 30


class SignInRefused(Refusal):
    """A failed sign-in, shown as a page; the log has the reason."""

    status = 400
    text = "you are not signed in"


class SignInNotUnderWay(SignInRefused):
    """The response belongs to no sign-in of this browser, or is late or repeated."""

    text = "this sign-in was not started in this browser, was already used, or took over 10 minutes"


class ProviderDenied(SignInRefused):
    """The person cancelled at the provider, or the provider denied the sign-in."""

    text = "the identity provider did not sign you in"


class IdentityNotProved(SignInRefused):
    """The provider's response does not prove an identity."""

    text = "the answer of the identity provider does not prove who you are"


class AccountNotKnown(SignInRefused):
    """The account belongs to no member, and no domain rule accepts it."""

    status = 403
    text = (
        "no organisation accepts this account: ask an owner to add you with this provider"
        " and the address that it has verified"
    )


class ProviderUnavailable(SignInRefused):
    """The provider does not respond, or not as its protocol requires."""

    status = 502
    text = "the identity provider is unavailable: try again in a few minutes"


class PasskeyNotUnderWay(SignInRefused):
    """The response belongs to no challenge of this browser, or is late or repeated."""

    text = (
        "this was not started in this browser, was already used, or took over 5 minutes: try again"
    )


class PasskeyNotMade(SignInRefused):
    """The browser's response to a registration is not valid."""

    text = "the browser did not create a passkey that this service accepts"


class PasskeyRefused(SignInRefused):
    """No accepted passkey was proved. The organisation of a known member has the reason logged."""

    status = 403
    text = "this passkey is not accepted: sign in another way"


class TooManySignIns(SignInRefused):
    """Too many attempts from one address, or in total."""

    status = 429
    text = "too many attempts to sign in: wait a minute"
    retry_after_s = 60


class DeviceRefusal(Refusal):
    """An answer to a device's request that RFC 8628 (3.5) or RFC 6749 (5.2) names by a code."""

    status = 400


class InvalidDeviceRequest(DeviceRefusal):
    """A parameter is missing, repeated or too long."""

    text = "invalid_request"


class UnknownClient(DeviceRefusal):
    """`client_id` is not that of the command line."""

    text = "invalid_client"


class UnknownGrantType(DeviceRefusal):
    """`grant_type` is not that of a device code."""

    text = "unsupported_grant_type"


class UnknownDeviceCode(DeviceRefusal):
    """The device code was never issued, or its session was handed out already."""

    text = "invalid_grant"


class AuthorizationPending(DeviceRefusal):
    """No member has decided yet: ask again after the interval."""

    text = "authorization_pending"


class SlowDown(DeviceRefusal):
    """Asked sooner than the interval, which is 5 seconds longer from now on."""

    text = "slow_down"


class DeviceCodeExpired(DeviceRefusal):
    """Not approved in time: ask for a new code."""

    text = "expired_token"


class DeviceDenied(DeviceRefusal):
    """The member denied it, or their own session has ended since they approved it."""

    text = "access_denied"


class UserCodeUnknown(Invalid):
    """No sign-in waits under this code."""

    field = "code"
    text = "no sign-in waits under this code: it may have expired, or been used already"


class NotForm(Refusal):
    """The body is not declared as a form."""

    status = 415
    text = "content-type must be application/x-www-form-urlencoded"


class Internal(Refusal):
    """An error in the service. The log has it under the request id."""

    status = 500
    text = "internal error"


class StoreUnavailable(Refusal):
    """The database or the audit folder does not respond. Nothing was changed; try again."""

    status = 503
    text = "storage is unavailable"
    is_temporary = True
    retry_after_s: ClassVar[int | None] = 1

    @property
    def reason(self) -> str:
        """What the database or the file system said: for logs and the operator, no bound values."""
        return str(getattr(self.__cause__, "orig", self.__cause__))


class StorageFull(StoreUnavailable):
    """The disk is full. Reading still works."""

    status = 507
    text = "storage is full: nothing was changed"
    retry_after_s = None  # until an operator has acted


class StorageReadOnly(StoreUnavailable):
    """The database file or its folder is read-only. Reading still works."""

    text = "storage is read-only: nothing was changed"
    retry_after_s = None  # until an operator has acted


class StorageBusy(StoreUnavailable):
    """Another process held the database for longer than the limit."""

    text = "storage is busy: nothing was changed, try again"


class StorageDamaged(StoreUnavailable):
    """Stored rows are missing or damaged; the log says which."""

    text = "stored data is missing or damaged: the log says where"
    retry_after_s = None  # until an operator has acted


class StorageUnsafe(StoreUnavailable):
    """The database is set up so that rows it has confirmed may be lost; the log says how."""

    text = "the database is not set up for this service: the log says what to change"
    retry_after_s = None  # until an operator has acted


class PackageCacheFull(StoreUnavailable):
    """The disk has no room for a package that must be fetched; no byte of it was sent."""

    text = (
        "the package cache has no room: free disk space, or lower COUNTERSIGN_PROXY_CACHE_BYTES_MAX"
    )
    retry_after_s = None


class InstallNotRecorded(Refusal):
    """The audit row of an install cannot be stored, so its file is not served."""

    status = 503
    text = (
        "the install cannot be recorded, so the file is not served:"
        " the journal of this organisation is full; try again later"
    )
    retry_after_s = 5
    is_temporary = True


class InstallNotStored(StoreUnavailable):
    """The disk has no room for the audit row of an install, so its file is not served."""

    text = (
        "the install cannot be recorded, so the file is not served:"
        " storage is full; try again once its operator has freed disk space"
    )


class EcosystemNotServed(NotFound):
    """No registry of this kind is configured."""

    text = "this proxy serves no {value} packages: its operator has set no registry for them"


class FirstPartyNotServed(NotFound):
    """A first-party package, whose own registry the proxy does not serve."""

    text = (
        "this is a first-party package: install it from the registry {value}, which this proxy"
        " does not serve; it is never looked for at a public one"
    )


class NoPackageName(NotFound):
    """What is asked for cannot be the name of a package; the text says what can."""

    text = "no package has such a name: {value}"


class PublishingNotSupported(MethodNotAllowed):
    """A request that would change a package, at the install proxy."""

    text = "this proxy is for installing: publishing is not supported, use the registry itself"


class PackageFileMissing(NotFound):
    """No document of the registry lists this file."""

    text = "the package's document lists no such file"


class NoAcceptableForm(Refusal):
    """No form of the page is acceptable to the client."""

    status = 406
    text = (
        "the index has the forms application/vnd.pypi.simple.v1+json,"
        " application/vnd.pypi.simple.v1+html and text/html"
    )


class UpstreamMissing(Refusal):
    """The registry says that it has no such package or file."""

    status = 404
    text = "the package registry has no such package or file"


class UpstreamFailed(Refusal):
    """The registry does not answer, or not as it should; `reason` is for the log."""

    status = 502
    text = "the package registry does not answer as it should: try again later"
    is_temporary = True

    def __init__(self, reason: str) -> None:
        """`reason` holds no credentials and nothing of the registry's own text."""
        super().__init__()
        self.reason = reason


class QueryTooSlow(Refusal):
    """The query exceeded its time limit and was stopped."""

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

ORG_REFUSALS: tuple[type[Refusal], ...] = (UnknownParameter, Forbidden, OrgNotFound)
"""What every endpoint of an organisation refuses, besides Unauthenticated."""

BODY_REFUSALS: tuple[type[Refusal], ...] = (
    DuplicateMember,
    NotANumber,
    NotGzip,
    BodyTooLarge,
    NotJson,
    UnknownEncoding,
)
"""What reading a JSON body refuses, besides NotAnObject."""
