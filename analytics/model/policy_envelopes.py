"""The envelopes of changes to what may be installed: policies and the operator's blocklist."""

from typing import Literal

from analytics.model.events import Count, Envelope, Event


class PolicyChanged(Envelope, frozen=True, kw_only=True):
    """An organisation's install policy changed.

    `before` and `after` hold what differs, by part of the policy: the entries removed and added, as
    people read them. `omitted` entries did not fit; the digests are of the whole documents.
    """

    event = Event("policy_changed")
    label = "Policy changed"
    icon = "shield"
    revision: Count
    before: dict[str, list[str]]
    after: dict[str, list[str]]
    omitted: Count
    sha256_before: str | None
    sha256_after: str


class PolicyExceptionRequested(Envelope, frozen=True, kw_only=True):
    """A member asked for a release to be let through before its cooldown ends."""

    event = Event("policy_exception_requested")
    label = "Policy exception requested"
    icon = "shield"
    changes_org = False
    exception_id: str
    ecosystem: str
    package: str
    version: str
    reason: str


class PolicyExceptionDecided(Envelope, frozen=True, kw_only=True):
    """Such a request was allowed or declined."""

    event = Event("policy_exception_decided")
    label = "Policy exception decided"
    icon = "shield"
    exception_id: str
    state: Literal["allowed", "declined"]
    ecosystem: str
    package: str
    version: str
    reason: str | None


class BlocklistImported(Envelope, frozen=True, kw_only=True):
    """The operator imported an archive into the blocklist, which holds for every organisation.

    It replaced the advisories of `feed` whose id matches `ids`, in the `ecosystems` that the
    archive is about. The counts are of those: `before` and `after` the import, and how many it
    `removed`, by ecosystem; `advisories_before` and `advisories` are the sums.
    """

    event = Event("blocklist_imported")
    label = "Blocklist imported"
    icon = "shield"
    generation: Count
    source: str
    feed: str
    ids: list[str]
    ecosystems: list[str]
    before: dict[str, int]
    after: dict[str, int]
    removed: dict[str, int]
    advisories: Count
    advisories_before: Count
    withdrawn: Count
    unreadable: Count
    sha256: str


class InstallsMatched(Envelope, frozen=True, kw_only=True):
    """An advisory (`source` osv) or a deny rule (operator) would have blocked past installs.

    Or they were of a release that its registry has withdrawn (registry). `number` is the
    blocklist's generation, or else the policy's revision, by then. `packages` are the first of
    them, each with its ecosystem; `runs` is the number of CI runs.
    """

    event = Event("installs_matched")
    label = "Past installs affected"
    icon = "alert"
    changes_org = False
    rule_id: str
    source: Literal["osv", "operator", "registry"]
    packages: list[str]
    installs: Count
    runs: Count
    first_at: str
    last_at: str
    number: Count


class ArtifactAccepted(Envelope, frozen=True, kw_only=True):
    """The operator accepted that a registry offers another file under a name.

    The digests are `algorithm:hex`.
    """

    event = Event("artifact_accepted")
    label = "Changed file accepted"
    icon = "shield"
    ecosystem: str
    registry: str
    package: str
    version: str
    file_name: str
    digest_before: str
    digest_now: str
