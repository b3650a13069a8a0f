"""The envelopes of installs and bindings, the catalogue of all envelopes, and their parser."""

import sys
from typing import Annotated, Final, Literal

import msgspec

from analytics.model import alert_envelopes, log_envelopes, org_envelopes, policy_envelopes
from analytics.model.events import Count, Decision, Envelope, Event
from analytics.model.instants import parse_instant


class OssFirstParty(Envelope, frozen=True, kw_only=True):
    """An install was allowed because the package comes from a first-party registry."""

    event = Event("oss_first_party")
    label = "First-party install"
    icon = "home"
    decision = Decision.ALLOWED
    ingestible = True
    registry: str


class Cured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a release was exempt from the cooldown: all releases that are old enough are affected.

    `affected` is the newest of them, `advisory_id` the advisory on it.
    """

    affected: str
    advisory_id: str


class InstallAllowed(Envelope, frozen=True, kw_only=True):
    """An install was allowed: no rule spoke against it."""

    event = Event("install_allowed")
    label = "Install allowed"
    icon = "check"
    decision = Decision.ALLOWED
    ingestible = True
    cured: Cured | msgspec.UnsetType = msgspec.UNSET


class BlocklistHit(Envelope, frozen=True, kw_only=True):
    """An install was blocked by a blocklist rule."""

    event = Event("blocklist_hit")
    label = "Blocked: denied"
    icon = "ban"
    decision = Decision.BLOCKED
    ingestible = True
    rule_id: str
    source: Literal["osv", "operator"]


class CooldownActive(Envelope, frozen=True, kw_only=True):
    """An install was blocked because the version is too young."""

    event = Event("cooldown_active")
    label = "Blocked: too new"
    icon = "clock"
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


ProvenanceLevel = Literal["none", "provenance", "trusted_publisher"]


class TrustDowngraded(Envelope, frozen=True, kw_only=True):
    """An install was blocked: `version_before` was published earlier, with stronger provenance.

    Publishers are null where they are not known. Levels and publishers are what the registry says,
    unless they are `verified`.
    """

    event = Event("trust_downgraded")
    label = "Blocked: trust downgraded"
    icon = "ban"
    decision = Decision.BLOCKED
    level_before: ProvenanceLevel
    level_now: ProvenanceLevel
    version_before: str
    publisher_before: str | None
    publisher_now: str | None
    verified: bool


class ReleaseWithdrawn(Envelope, frozen=True, kw_only=True):
    """An install was blocked: since `withdrawn_at` its registry lists the file no more."""

    event = Event("release_withdrawn")
    label = "Blocked: withdrawn"
    icon = "ban"
    decision = Decision.BLOCKED
    withdrawn_at: str


class InstallWouldBlock(Envelope, frozen=True, kw_only=True):
    """An install was allowed because the policy only records what it would have blocked.

    `trust` is the envelope of a downgrade.
    """

    event = Event("install_would_block")
    label = "Allowed: would be blocked"
    icon = "alert"
    decision = Decision.ALLOWED
    blocked_by: Literal["blocklist_hit", "cooldown_active", "trust_downgraded", "release_withdrawn"]
    rule_id: str | None
    trust: TrustDowngraded | msgspec.UnsetType = msgspec.UNSET


CutCause = Literal["connection_closed", "upstream_failed", "digest_mismatch", "storage_failed"]


class InstallCut(Envelope, frozen=True, kw_only=True):
    """A file did not arrive whole after the row `install_id` said that its install was allowed."""

    event = Event("install_cut")
    label = "Install cut off"
    icon = "alert"
    changes_org = False
    install_id: str
    bytes_sent: Count
    cause: CutCause


class ArtifactChanged(Envelope, frozen=True, kw_only=True):
    """A file was refused: under its name the registry had offered another one before.

    A digest is null if it is not known: npm's documents state other ones than SHA-256.
    """

    event = Event("artifact_changed")
    label = "Blocked: file changed"
    icon = "ban"
    decision = Decision.BLOCKED
    file_name: str
    sha256_before: str | None
    sha256_now: str | None
    registry: str


class OidcBindingCreated(Envelope, frozen=True, kw_only=True):
    """A trust binding was created."""

    event = Event("oidc_binding_created")
    label = "Binding created"
    icon = "link"
    binding_id: str
    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    origin: Literal["org_admin", "team_admin", "platform_admin"]
    project_id: str | None
    team_id: str | None
    by_user_id: str
    conditions: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class OidcBindingRevoked(Envelope, frozen=True, kw_only=True):
    """A trust binding was revoked."""

    event = Event("oidc_binding_revoked")
    label = "Binding revoked"
    icon = "link"
    binding_id: str
    revoked_reason: str | None
    by_user_id: str


_MODULES: Final = (
    sys.modules[__name__],
    org_envelopes,
    policy_envelopes,
    log_envelopes,
    alert_envelopes,
)

ENVELOPES: Final[dict[Event, type[Envelope]]] = {
    envelope.event: envelope
    for module in _MODULES
    for envelope in Envelope.__subclasses__()
    if envelope.__module__ == module.__name__
}
"""The event catalogue: every value of a row's `event`, with its envelope."""

EVENTS: Final = tuple(ENVELOPES)

ADMIN_EVENTS: Final = tuple(
    event
    for event, envelope in ENVELOPES.items()
    if envelope.decision is None and envelope.changes_org
)
"""Events that change an organisation: its permissions, what it trusts, or which rows it has."""


class VerifiedCi(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a verified CI token said: `ci`, beside the envelope's own keys in `payload`."""

    sub: str
    repository_id: str | msgspec.UnsetType | None = msgspec.UNSET
    event_name: str | msgspec.UnsetType | None = msgspec.UNSET
    run_id: str | msgspec.UnsetType | None = msgspec.UNSET
    jti: str | msgspec.UnsetType | None = msgspec.UNSET


class Admission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the install proxy based an install on: `admission`, beside the envelope's own keys.

    `registry` is the URL of the registry that the file is from. The file is verified by `digest`;
    without one, by the SHA-256 in the row's column. Policy and blocklist are 0 if there was none.
    """

    registry: str
    policy_revision: Count
    blocklist_generation: Count
    rule_id: str | msgspec.UnsetType = msgspec.UNSET
    digest: (
        Annotated[str, msgspec.Meta(pattern="^sha(256|512|1):[0-9a-f]{40,128}$")]
        | msgspec.UnsetType
    ) = msgspec.UNSET


def parse_envelope(event: Event, keys: object) -> Envelope:
    """The envelope of `event` in `keys`, which must have every key, of its type, and no other.

    Raises msgspec.ValidationError, whose text names the key.
    """
    return msgspec.convert(keys, ENVELOPES[event], strict=True)
