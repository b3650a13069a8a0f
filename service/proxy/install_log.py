"""Records installs: a row is durable before the first byte of its file is sent."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Literal, cast

from cachetools import LRUCache

from analytics.model.envelopes import InstallWouldBlock
from analytics.model.events import Envelope, Event
from analytics.model.rows import audit_row
from analytics.storage.journal_batches import EncodedBatch, encode_days
from service.audit.journal_room import check_journal_room
from service.audit.sealer import Sealer, is_large
from service.clock import Clock
from service.errors import InstallNotRecorded, InstallNotStored, JournalFull, StorageFull
from service.install_tokens.authorization import InstallAuthorizer
from service.install_tokens.principal import InstallPrincipal
from service.metrics import Metrics
from service.orgs.repository import find_trust_revision
from service.packages.ecosystems import Ecosystem
from service.packages.release import Release
from service.policy.model import Decision
from service.proxy.install_marks import Mark, find_mark, install_key, keep_mark
from service.settings import Settings
from service.store.group_commit import GroupCommit
from service.store.journal import JournalSize
from service.store.store import SyncUnitOfWork
from service.store.tables import Organisation

MARKS_MAX: Final = 100_000
"""How many recorded installs a process remembers: some 30 MB."""

ATTRIBUTIONS_MAX: Final = 3
"""Attempts to attribute a row to a CI job while bindings keep changing."""


_EVENTS: Final = (
    Event.OSS_FIRST_PARTY,
    Event.INSTALL_ALLOWED,
    Event.INSTALL_WOULD_BLOCK,
    Event.BLOCKLIST_HIT,
    Event.COOLDOWN_ACTIVE,
)


@dataclass(frozen=True, slots=True)
class Install:
    """A request for the file of a release, and the decision on it.

    `file` is the digest by which the file is verified. `is_continuation` is set if the request is
    for a part of the file without its beginning.
    """

    release: Release
    file: str
    decision: Decision
    is_continuation: bool = False

    @property
    def identity(self) -> str:
        """The installed release and file: the same bytes may be published under several names."""
        release = self.release
        return "\0".join((release.ecosystem, release.name, release.version, self.file))

    @property
    def envelope(self) -> Envelope:
        """What the row says. In audit mode an install that would be blocked still takes place."""
        decision = self.decision
        if not decision.is_blocked or decision.is_enforced:
            return decision.envelope
        return InstallWouldBlock(
            blocked_by=cast('Literal["blocklist_hit", "cooldown_active"]', decision.kind.value),
            rule_id=decision.rule_id,
        )


class InstallLog:
    """Records the installs of all organisations."""

    def __init__(
        self,
        group_commit: GroupCommit,
        installers: InstallAuthorizer,
        sealer: Sealer,
        clock: Clock,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._group_commit = group_commit
        self._installers = installers
        self._sealer = sealer
        self._clock = clock
        self._journal_rows_max = settings.ingest_journal_rows_max
        self._seal_rows = settings.seal_rows
        self._metrics = metrics
        metrics.installs(Ecosystem, _EVENTS)
        self._marks = LRUCache[str, Mark](MARKS_MAX)

    async def record(self, org: Organisation, principal: InstallPrincipal, install: Install) -> str:
        """The id of the install's audit row, once that is durable; a repeat gets the first row's.

        The row is attributed to the CI job if that is still trusted at the commit. Raises
        InstallNotRecorded and StoreUnavailable: then no byte may be sent.
        """
        for _ in range(ATTRIBUTIONS_MAX):
            mark = await self._try(org, principal, install)
            if mark is not None:
                return mark.audit_id
            principal = await self._installers.revalidate(principal, org.slug)
        # Rows are stored without attribution rather than delayed by changing bindings.
        return cast(
            "Mark", await self._try(org, principal.with_key(principal.key.with_ci(None)), install)
        ).audit_id

    async def _try(
        self, org: Organisation, principal: InstallPrincipal, install: Install
    ) -> Mark | None:
        """The mark of the row, or None with nothing stored if the org's bindings have changed."""
        event = install.envelope.event
        key = install_key(org.id, principal.credential, install.identity, event)
        known = self._marks.get(key)
        if known is not None and known.covers(
            self._clock(), is_continuation=install.is_continuation
        ):
            return known
        change = partial(
            self._commit, tenant_id=org.id, principal=principal, install=install, key=key
        )
        try:
            mark, is_new, is_seal_due = await self._group_commit.commit(change)
        except JournalFull as error:
            self._sealer.wanted.set()
            raise InstallNotRecorded from error
        except StorageFull as error:
            # Package managers retry after a 503, but not after a 507.
            raise InstallNotStored from error
        if is_seal_due:
            self._sealer.wanted.set()
        if is_new:
            self._metrics.installed(install.release.ecosystem, event)
        # Only after the commit: a mark without its row would let a repeat pass unrecorded.
        if mark is not None:
            self._marks[key] = mark
        return mark

    def _commit(
        self,
        work: SyncUnitOfWork,
        tenant_id: str,
        principal: InstallPrincipal,
        install: Install,
        key: str,
    ) -> tuple[Mark | None, bool, bool]:
        """The mark as `_try` returns it, whether it is new, and whether a seal is due."""
        ci = principal.ci
        # Under the write lock: the binding may have been revoked since the token was verified.
        if ci and ci.trust_revision != find_trust_revision(work.transaction, tenant_id):
            return None, False, False
        # Looked up again: another request or process may have recorded the same install.
        known = find_mark(work.transaction, key)
        if known is not None and known.covers(work.now, is_continuation=install.is_continuation):
            return known, False, False
        batch = _batch(principal, install, work.now)
        waiting = work.journal.count(work.transaction, tenant_id)
        check_journal_room(waiting, JournalSize(1, 1, batch.size), self._journal_rows_max)
        stored = work.journal.store(work.transaction, tenant_id, batch, work.now)
        mark = Mark(work.now, stored.first_seq)
        keep_mark(work.transaction, key, mark)
        return mark, True, is_large(waiting, self._seal_rows)


def _batch(principal: InstallPrincipal, install: Install, now: datetime) -> EncodedBatch:
    """The one row of the install, as the journal stores it."""
    release = install.release
    audit_context = principal.audit_context
    row = audit_row(
        install.envelope,
        audit_context,
        now,
        package_name=release.name,
        version=release.version,
        ecosystem=release.ecosystem,
        subject=audit_context.ci.sub if audit_context.ci else None,
    )
    (batch,) = encode_days([row])
    return batch
