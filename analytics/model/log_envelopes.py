"""The envelopes of the audit log itself: exports, imports, pruning and damage."""

from typing import Literal

from msgspec import UNSET, UnsetType

from analytics.model.events import Count, Envelope, Event

Outcome = Literal["answered", "refused", "stopped"]

ReadKind = Literal["page", "row", "live", "api", "excerpt"]
"""Rows of a query, one row, rows as they come, an answer of the API; a page of something else."""


class AuditExported(Envelope, frozen=True, kw_only=True):
    """An export began: which rows, in what format, how many."""

    event = Event("audit_exported")
    label = "Export started"
    icon = "download"
    changes_org = False
    export_id: str
    format: str
    filters: dict[str, list[str]]
    rows: Count


class AuditExportFinished(Envelope, frozen=True, kw_only=True):
    """An export ended: whole, with its digest, or broken off."""

    event = Event("audit_export_finished")
    label = "Export finished"
    icon = "download"
    changes_org = False
    export_id: str
    complete: bool
    rows: Count
    bytes: Count
    sha256: str | None


class AuditSqlRun(Envelope, frozen=True, kw_only=True):
    """A statement in SQL was run: its text, what became of it, how many rows were shown."""

    event = Event("audit_sql_run")
    label = "SQL statement run"
    icon = "search"
    changes_org = False
    sql: str
    outcome: Outcome
    rows: Count
    ms: Count


class AuditRead(Envelope, frozen=True, kw_only=True):
    """The log was read: the first read of its kind by this actor in the UTC hour from `hour` on."""

    event = Event("audit_read")
    label = "Log read"
    icon = "search"
    changes_org = False
    hour: str
    kind: ReadKind


class AuditReviewed(Envelope, frozen=True, kw_only=True):
    """A member reviewed the rows of a window: how many there were, and the last checkpoint."""

    event = Event("audit_reviewed")
    label = "Log reviewed"
    icon = "check"
    changes_org = False
    since: str
    until: str
    note: str | None
    rows: Count
    checkpoint_size: Count | None
    checkpoint_root: str | None


class AuditImported(Envelope, frozen=True, kw_only=True):
    """Rows with a history of their own were loaded from a file."""

    event = Event("audit_imported")
    label = "Rows imported"
    source: str
    rows: Count
    refused: Count
    sha256: str
    first_day: str
    last_day: str


class AuditPruned(Envelope, frozen=True, kw_only=True):
    """Days past retention were dropped.

    The others since rows are leaves of a tree: the tier whose retention it was, the first and last
    id, the ranges of leaves (null: too many), and the checkpoint before, as size and root.
    """

    event = Event("audit_pruned")
    label = "Old days dropped"
    first_day: str
    last_day: str
    days: list[str]
    rows: Count
    tier: str | UnsetType | None = UNSET
    first_id: str | UnsetType | None = UNSET
    last_id: str | UnsetType | None = UNSET
    leaf_ranges: list[str] | UnsetType | None = UNSET
    checkpoint_size: Count | UnsetType | None = UNSET
    checkpoint_root: str | UnsetType | None = UNSET


class ClockAccepted(Envelope, frozen=True, kw_only=True):
    """The operator confirmed the clock of a pruning run that would have been refused."""

    event = Event("clock_accepted")
    label = "Clock confirmed"
    clock: str
    machine_clock: str
    last_run_at: str | None
    reason: str


class AuditSegmentRestored(Envelope, frozen=True, kw_only=True):
    """The damaged or missing file of a segment is being replaced by a whole copy of it."""

    event = Event("audit_segment_restored")
    label = "Damaged rows restored"
    segment_id: str
    day: str
    rows: Count
    damage: str
    source: Literal["backup", "bucket", "copy"]


class AuditSegmentLost(Envelope, frozen=True, kw_only=True):
    """The operator gave up a segment without any whole copy: these rows of the day are lost."""

    event = Event("audit_segment_lost")
    label = "Damaged rows given up"
    icon = "alert"
    segment_id: str
    day: str
    rows: Count
    first_seq: Count
    last_seq: Count
    damage: str


class EvidenceKeyRotated(Envelope, frozen=True, kw_only=True):
    """Another key signs checkpoints from now on: their base64 public keys."""

    event = Event("evidence_key_rotated")
    label = "Signing key rotated"
    icon = "key"
    former_key: str | None
    key: str


class EvidenceResumed(Envelope, frozen=True, kw_only=True):
    """The operator let checkpoints be signed again after a restore.

    `rollback_accepted` says that rows after `size` may have been signed and are lost: the log goes
    on under another name. Otherwise a checkpoint that was kept elsewhere, of `held_size`, agrees.
    """

    event = Event("evidence_resumed")
    label = "Checkpoints resumed"
    reason: str
    size: Count
    held_size: Count | None
    rollback_accepted: bool
    origin: str


class EvidenceDiffers(Envelope, frozen=True, kw_only=True):
    """Rows, or the tree of their hashes, are not as they were signed: the first differences."""

    event = Event("evidence_differs")
    label = "Log differs from its checkpoints"
    icon = "alert"
    differences: list[str]
    count: Count
    checkpoint_size: Count


class WitnessAdded(Envelope, frozen=True, kw_only=True):
    """A witness is asked to cosign checkpoints."""

    event = Event("evidence_witness_added")
    label = "Witness added"
    icon = "key"
    name: str
    key: str
    url: str


class WitnessRemoved(Envelope, frozen=True, kw_only=True):
    """A witness is asked no longer."""

    event = Event("evidence_witness_removed")
    label = "Witness removed"
    icon = "key"
    name: str
    key: str


class StreamChanged(Envelope, frozen=True, kw_only=True):
    """A stream of rows to a receiver was created, changed, suspended or deleted: how, or why."""

    event = Event("stream_changed")
    label = "Stream changed"
    icon = "download"
    stream_id: str
    name: str
    change: str
    detail: str


class StreamGap(Envelope, frozen=True, kw_only=True):
    """Rows after one id up to another were pruned that a stream had not delivered."""

    event = Event("stream_gap")
    label = "Rows not streamed"
    icon = "alert"
    stream_id: str
    name: str
    after_id: str
    to_id: str
