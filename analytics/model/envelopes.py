"""The envelopes of installs, bindings and the audit log itself, and the parser of all envelopes."""

from typing import Final, Literal

import msgspec

from analytics.model import org_envelopes, policy_envelopes  # noqa: F401 - more envelopes
from analytics.model.events import Count, Decision, Envelope, Event
from analytics.model.instants import parse_instant


class OssFirstParty(Envelope, frozen=True, kw_only=True):
    """An install was allowed because the package comes from a first-party registry."""

    event = Event.OSS_FIRST_PARTY
    decision = Decision.ALLOWED
    ingestible = True
    registry: str


class InstallAllowed(Envelope, frozen=True, kw_only=True):
    """An install was allowed: no rule spoke against it."""

    event = Event.INSTALL_ALLOWED
    decision = Decision.ALLOWED
    ingestible = True


class BlocklistHit(Envelope, frozen=True, kw_only=True):
    """An install was blocked by a blocklist rule."""

    event = Event.BLOCKLIST_HIT
    decision = Decision.BLOCKED
    ingestible = True
    rule_id: str
    source: Literal["osv", "operator"]


class CooldownActive(Envelope, frozen=True, kw_only=True):
    """An install was blocked because the version is too young."""

    event = Event.COOLDOWN_ACTIVE
    decision = Decision.BLOCKED
    ingestible = True
    published_at: str
    min_age_days: Count

    def __post_init__(self) -> None:
        """Raise ValueError unless `published_at` is an RFC 3339 instant."""
        try:
            parse_instant(self.published_at)
        except ValueError as error:
            raise ValueError("published_at must be an RFC 3339 instant") from error


class InstallWouldBlock(Envelope, frozen=True, kw_only=True):
    """An install was allowed because the policy is in audit mode; it would have been blocked."""

    event = Event.INSTALL_WOULD_BLOCK
    decision = Decision.ALLOWED
    blocked_by: Literal["blocklist_hit", "cooldown_active"]
    rule_id: str | None


CutCause = Literal["connection_closed", "upstream_failed", "digest_mismatch", "storage_failed"]


class InstallCut(Envelope, frozen=True, kw_only=True):
    """A file did not arrive whole after the row `install_id` said that its install was allowed."""

    event = Event.INSTALL_CUT
    install_id: str
    bytes_sent: Count
    cause: CutCause


class ArtifactChanged(Envelope, frozen=True, kw_only=True):
    """A file was refused: under its name the registry had offered another one before.

    A digest is null if it is not known: npm's documents state other ones than SHA-256.
    """

    event = Event.ARTIFACT_CHANGED
    decision = Decision.BLOCKED
    file_name: str
    sha256_before: str | None
    sha256_now: str | None
    registry: str


class OidcBindingCreated(Envelope, frozen=True, kw_only=True):
    """A trust binding was created."""

    event = Event.OIDC_BINDING_CREATED
    binding_id: str
    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    origin: Literal["org_admin", "team_admin", "platform_admin"]
    project_id: str | None
    team_id: str | None
    by_user_id: str


class OidcBindingRevoked(Envelope, frozen=True, kw_only=True):
    """A trust binding was revoked."""

    event = Event.OIDC_BINDING_REVOKED
    binding_id: str
    revoked_reason: str | None
    by_user_id: str


class AuditExported(Envelope, frozen=True, kw_only=True):
    """An export began: which rows, in what format, how many."""

    event = Event.AUDIT_EXPORTED
    export_id: str
    format: str
    filters: dict[str, list[str]]
    rows: Count


class AuditExportFinished(Envelope, frozen=True, kw_only=True):
    """An export ended: whole, with its digest, or broken off."""

    event = Event.AUDIT_EXPORT_FINISHED
    export_id: str
    complete: bool
    rows: Count
    bytes: Count
    sha256: str | None


class AuditImported(Envelope, frozen=True, kw_only=True):
    """Rows with a history of their own were loaded from a file."""

    event = Event.AUDIT_IMPORTED
    source: str
    rows: Count
    refused: Count
    sha256: str
    first_day: str
    last_day: str


class AuditPruned(Envelope, frozen=True, kw_only=True):
    """Days past retention were dropped."""

    event = Event.AUDIT_PRUNED
    first_day: str
    last_day: str
    days: list[str]
    rows: Count


class ClockAccepted(Envelope, frozen=True, kw_only=True):
    """The operator confirmed the clock of a pruning run that would have been refused."""

    event = Event.CLOCK_ACCEPTED
    clock: str
    machine_clock: str
    last_run_at: str | None
    reason: str


class AuditSegmentRestored(Envelope, frozen=True, kw_only=True):
    """The damaged or missing file of a segment is being replaced by a whole copy of it."""

    event = Event.AUDIT_SEGMENT_RESTORED
    segment_id: str
    day: str
    rows: Count
    damage: str
    source: Literal["backup", "bucket", "copy"]


class AuditSegmentLost(Envelope, frozen=True, kw_only=True):
    """The operator gave up a segment without any whole copy: these rows of the day are lost."""

    event = Event.AUDIT_SEGMENT_LOST
    segment_id: str
    day: str
    rows: Count
    first_seq: Count
    last_seq: Count
    damage: str


ENVELOPES: Final[dict[Event, type[Envelope]]] = {
    envelope.event: envelope for envelope in Envelope.__subclasses__()
}


_PASSING: Final = frozenset(
    {
        Event.OAUTH_LOGIN_SUCCEEDED,
        Event.PASSKEY_AUTHENTICATION_SUCCEEDED,
        Event.LINK_SIGN_IN_SUCCEEDED,
        Event.DEVICE_SIGN_IN_SUCCEEDED,
        Event.SIGN_IN_FAILED,
        Event.SIGNED_OUT,
        Event.AUDIT_EXPORTED,
        Event.AUDIT_EXPORT_FINISHED,
        Event.POLICY_EXCEPTION_REQUESTED,
        Event.INSTALL_CUT,
    }
)
"""Sign-ins, exports, requests and cut installs, which do not change the organisation."""


ADMIN_EVENTS: Final = tuple(
    event
    for event, envelope in ENVELOPES.items()
    if envelope.decision is None and event not in _PASSING
)
"""Events that change an organisation: its permissions, what it trusts, or which rows it has."""


class VerifiedCi(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a verified CI token said: `ci`, beside the envelope's own keys in `payload`."""

    sub: str
    repository_id: str | msgspec.UnsetType | None = msgspec.UNSET
    event_name: str | msgspec.UnsetType | None = msgspec.UNSET
    run_id: str | msgspec.UnsetType | None = msgspec.UNSET
    jti: str | msgspec.UnsetType | None = msgspec.UNSET


def parse_envelope(event: Event, keys: object) -> Envelope:
    """The envelope of `event` in `keys`, which must have every key, of its type, and no other.

    Raises msgspec.ValidationError, whose text names the key.
    """
    return msgspec.convert(keys, ENVELOPES[event], strict=True)
