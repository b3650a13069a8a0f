"""Records installs: a row is durable before the first byte of its file is sent.

A file that does not arrive whole gets a second row, and its next request is recorded again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import product
from typing import Final, Literal, NamedTuple, TypeVar, cast

import msgspec
import structlog

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import (
    Admission,
    ArtifactChanged,
    BlocklistHit,
    CooldownActive,
    CutCause,
    InstallAllowed,
    InstallCut,
    InstallWouldBlock,
    OssFirstParty,
    ReleaseWithdrawn,
    TrustDowngraded,
)
from analytics.model.events import Envelope, Event
from analytics.model.rows import FILE_NAME_MAX, FileColumns, audit_row
from analytics.storage.journal_batches import EncodedBatch, encode_days
from service.audit.refusals import JournalFull
from service.audit.sealer import Sealer, check_journal_room, is_large
from service.core.errors import Refusal, StorageFull
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.packages.ecosystem import Release
from service.packages.install_tokens.authorization import InstallAuthorizer, InstallPrincipal
from service.packages.policy.model import InForce, PolicyDecision
from service.packages.policy.repository import find_in_force
from service.packages.proxy.artifacts import (
    ArtifactName,
    Artifacts,
    find_artifact,
    keep_artifact,
    keep_offered,
)
from service.packages.proxy.file_keys import FileKey, KnownFile
from service.packages.proxy.install_marks import (
    Mark,
    count_cut,
    find_mark,
    install_key,
    keep_mark,
    remove_mark,
)
from service.packages.refusals import (
    DECIDED_BEFORE,
    INSTALL_NOT_RECORDED,
    INSTALL_NOT_STORED,
    NotAsDocumented,
)
from service.store.group_commit import GroupCommit
from service.store.journal import JournalSize
from service.store.organisations import find_trust_revision
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import Organisation

ATTRIBUTIONS_MAX: Final = 3
"""Attempts to attribute a row to a CI job while bindings keep changing."""


_EVENTS: Final = (
    OssFirstParty.event,
    InstallAllowed.event,
    InstallWouldBlock.event,
    BlocklistHit.event,
    CooldownActive.event,
    TrustDowngraded.event,
    ReleaseWithdrawn.event,
    InstallCut.event,
    ArtifactChanged.event,
)

_Result = TypeVar("_Result")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Install:
    """A request for the file of a release, and the decision on it.

    `key` is the digest by which the file is verified; `sha256` is None if that is another one and
    the file has not been seen yet. `is_continuation` is set if the request is for a part of the
    file without its beginning.
    """

    release: Release
    key: FileKey
    decision: PolicyDecision
    artifact: ArtifactName
    sha256: str | None
    client: str | None
    in_force: InForce
    is_offered: bool = True
    """False if the registry offers another file under the name."""

    is_continuation: bool = False
    is_verified: bool = False
    """True if all of the file has arrived and is what it should be."""

    @property
    def identity(self) -> str:
        """The installed release and file: the same bytes may be published under several names."""
        release = self.release
        return "\0".join((release.ecosystem, release.name, release.version, str(self.key)))

    @property
    def is_served_whole(self) -> bool:
        """True if the file is served, and all of it is here."""
        return self.is_verified and not self.decision.is_refused

    @property
    def file(self) -> KnownFile:
        """The file, as it is remembered once it is served."""
        release = self.release
        return KnownFile(release.version, self.key, self.sha256, release.published_at)

    @property
    def admission(self) -> Admission | None:
        """What its row says besides, unless a rule was against it."""
        if self.decision.is_blocked:
            return None
        return Admission(
            # An organisation's own registry has its name in the fragment.
            registry=self.artifact.registry_url.partition("#")[0],
            policy_revision=self.in_force.revision,
            blocklist_generation=self.in_force.generation,
            rule_id=self.decision.rule_id or msgspec.UNSET,
            digest=msgspec.UNSET if self.sha256 == self.key.hex else self.key.digest,
        )

    @property
    def envelope(self) -> Envelope:
        """What the row says. In audit mode an install that would be blocked still takes place."""
        decision = self.decision
        if not decision.is_blocked or decision.is_enforced:
            return decision.envelope
        said = decision.envelope
        return InstallWouldBlock(
            blocked_by=cast('Literal["blocklist_hit", "cooldown_active"]', decision.kind),
            rule_id=decision.rule_id,
            trust=said if isinstance(said, TrustDowngraded) else msgspec.UNSET,
        )


class _Committed(NamedTuple):
    """What a transaction did. `mark` is None, and nothing stored, if the org's bindings changed."""

    mark: Mark | None
    is_new: bool = False
    is_seal_due: bool = False


@dataclass(frozen=True, slots=True)
class RecordedInstall:
    """An install whose row is durable; `key` and `mark` are those of its repeats."""

    log: "InstallLog"
    org: Organisation
    principal: InstallPrincipal
    install: Install
    key: str
    mark: Mark

    @property
    def audit_id(self) -> str:
        """The id of its row."""
        return self.mark.audit_id

    def cut(self, bytes_sent: int, cause: CutCause) -> None:
        """Record, in the background, that the file did not arrive whole."""
        self.log.record_cut(self, bytes_sent, cause)

    async def verified(self) -> None:
        """Remember which file it was, before its last byte is sent. Raises StoreUnavailable.

        Raises NotAsDocumented if another file was served under its name meanwhile.
        """
        if not self.install.is_verified:
            await self.log.remember(self.install)


class InstallLog:
    """Records the installs of all organisations."""

    def __init__(
        self,
        store: Store,
        artifacts: Artifacts,
        group_commit: GroupCommit,
        installers: InstallAuthorizer,
        sealer: Sealer,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._group_commit = group_commit
        self._installers = installers
        self._sealer = sealer
        self._journal_rows_max = settings.ingest_journal_rows_max
        self._seal_rows = settings.seal_rows
        self._installs = metrics.counter(
            "countersign_proxy_installs",
            "Installs recorded by the proxy, by what was decided.",
            "ecosystem",
            "event",
        )
        for ecosystem, event in product(Ecosystem, _EVENTS):  # shown from now on
            self._installs.labels(ecosystem, event)
        self._cuts: set[asyncio.Task[None]] = set()

    async def record(
        self, org: Organisation, principal: InstallPrincipal, install: Install
    ) -> RecordedInstall:
        """The install, once its audit row is durable; a repeat gets the first row's.

        The row is attributed to the CI job if that is still trusted at the commit. Raises
        INSTALL_NOT_RECORDED, StoreUnavailable, and DECIDED_BEFORE if another policy or blocklist is
        in force by now than the install was decided under: then no byte may be sent.
        """

        async def attempt(principal: InstallPrincipal) -> RecordedInstall | None:
            key = _key(org.id, install, principal)
            mark = await self._mark(org.id, principal, install, key)
            if mark is None:
                return None
            return RecordedInstall(self, org, principal, install, key, mark)

        return await self._attributed(org, principal, attempt)

    def record_cut(self, recorded: RecordedInstall, bytes_sent: int, cause: CutCause) -> None:
        """Record that the file of `recorded` did not arrive whole, and end its mark.

        In the background: the request that notices it may be cancelled already.
        """
        task = asyncio.create_task(self._record_cut(recorded, bytes_sent, cause))
        self._cuts.add(task)
        task.add_done_callback(self._cuts.discard)

    async def close(self) -> None:
        """Wait until all cuts are recorded."""
        await asyncio.gather(*self._cuts)

    async def remember(self, install: Install) -> None:
        """Remember the verified file of `install`; see `RecordedInstall.verified`."""
        known = await self._artifacts.find(install.artifact)
        if known is None or known.key != install.key:
            verified = replace(install, is_verified=True)
            await self._group_commit.commit(partial(_remember, install=verified))

    async def _is_to_be_remembered(self, install: Install) -> bool:
        return install.is_served_whole and await self._artifacts.find(install.artifact) is None

    async def _attributed(
        self,
        org: Organisation,
        principal: InstallPrincipal,
        attempt: Callable[[InstallPrincipal], Awaitable[_Result | None]],
    ) -> _Result:
        """The result of `attempt`, which returns None while the org's bindings are changing."""
        for _ in range(ATTRIBUTIONS_MAX):
            result = await attempt(principal)
            if result is not None:
                return result
            principal = await self._installers.revalidate(principal, org.slug)
        # Rows are stored without attribution rather than delayed by changing bindings.
        return cast("_Result", await attempt(principal.with_key(principal.key.with_ci(None))))

    async def _mark(
        self, tenant_id: str, principal: InstallPrincipal, install: Install, key: str
    ) -> Mark | None:
        """The mark of the row, or None with nothing stored if the org's bindings have changed."""
        # From memory until something is committed: a cut ends the mark for every process.
        known = await self._store.cached_at_once(("install", key), partial(find_mark, install=key))
        is_covered = known is not None and known.covers(
            self._store.clock(), is_continuation=install.is_continuation
        )
        if is_covered and not await self._is_to_be_remembered(install):
            return known
        change = partial(
            self._commit, tenant_id=tenant_id, principal=principal, install=install, key=key
        )
        return await self._commit_row(change, install, install.envelope.event)

    async def _commit_row(
        self, change: Callable[[SyncUnitOfWork], _Committed], install: Install, event: Event
    ) -> Mark | None:
        """The mark that `change` returns, once its row of `event` is durable and counted."""
        try:
            committed = await self._group_commit.commit(change)
        except JournalFull as error:
            self._sealer.wanted.set()
            raise INSTALL_NOT_RECORDED from error
        except StorageFull as error:
            # Package managers retry after a 503, but not after a 507.
            raise INSTALL_NOT_STORED from error
        if committed.is_seal_due:
            self._sealer.wanted.set()
        if committed.is_new:
            self._installs.labels(install.release.ecosystem, event).inc()
        return committed.mark

    def _commit(
        self,
        work: SyncUnitOfWork,
        tenant_id: str,
        principal: InstallPrincipal,
        install: Install,
        key: str,
    ) -> _Committed:
        """Store the row, unless there is one already."""
        if not _is_attribution_current(work, tenant_id, principal):
            return _Committed(None)
        if install.is_served_whole:
            _check_artifact(work, install)
        # Looked up again: another request or process may have recorded the same install.
        known = find_mark(work.transaction, key)
        if known is not None and known.covers(work.now, is_continuation=install.is_continuation):
            _keep_artifact(work, install)
            return _Committed(known)
        _check_in_force(work, tenant_id, install)
        batch = _batch(principal, install, install.envelope, work.now, install.admission)
        first_seq, is_seal_due = self._store_row(work, tenant_id, batch)
        mark = Mark(work.now, first_seq)
        keep_mark(work.transaction, key, mark)
        # With the row: what was served is known even if the process is killed.
        _keep_artifact(work, install)
        return _Committed(mark, True, is_seal_due)

    def _store_row(
        self, work: SyncUnitOfWork, tenant_id: str, batch: EncodedBatch
    ) -> tuple[int, bool]:
        """The seq of the stored row, and whether a seal is due. Raises JournalFull."""
        waiting = work.journal.count(work.transaction, tenant_id)
        check_journal_room(waiting, JournalSize(1, 1, batch.size), self._journal_rows_max)
        stored = work.journal.store(work.transaction, tenant_id, batch, work.now)
        return stored.first_seq, is_large(waiting, self._seal_rows)

    async def _record_cut(
        self, recorded: RecordedInstall, bytes_sent: int, cause: CutCause
    ) -> None:
        cut = InstallCut(install_id=recorded.audit_id, bytes_sent=bytes_sent, cause=cause)

        async def attempt(principal: InstallPrincipal) -> Mark | None:
            change = partial(self._commit_cut, recorded=recorded, principal=principal, cut=cut)
            return await self._commit_row(change, recorded.install, cut.event)

        try:
            await self._attributed(recorded.org, recorded.principal, attempt)
        except Refusal as error:
            _log.error("install_cut_not_recorded", audit_id=recorded.audit_id, reason=str(error))

    def _commit_cut(
        self,
        work: SyncUnitOfWork,
        recorded: RecordedInstall,
        principal: InstallPrincipal,
        cut: InstallCut,
    ) -> _Committed:
        """As `_commit`; no row if another transfer of the same install was cut before.

        Nor after CUTS_MAX of them: the mark stays then, so that the next ones add no rows either.
        """
        if not _is_attribution_current(work, recorded.org.id, principal):
            return _Committed(None)
        mark = recorded.mark
        current = find_mark(work.transaction, recorded.key)
        if current is None or current.seq != mark.seq:
            return _Committed(mark)
        if not count_cut(work.transaction, recorded.key, work.now):
            return _Committed(mark)
        batch = _batch(principal, recorded.install, cut, work.now)
        _, is_seal_due = self._store_row(work, recorded.org.id, batch)
        remove_mark(work.transaction, recorded.key)
        return _Committed(mark, True, is_seal_due)


def _check_in_force(work: SyncUnitOfWork, tenant_id: str, install: Install) -> None:
    """Raise DECIDED_BEFORE if the file was to be served under what is no longer in force."""
    # Under the write lock, which a change of what is in force takes as well: a row is committed
    # before it, and the snapshot in which past installs are looked for after it has the row; or it
    # is decided by what is new. So no install is missed.
    is_refused = install.decision.is_refused
    if not is_refused and find_in_force(work.transaction, tenant_id) != install.in_force:
        raise DECIDED_BEFORE


def _check_artifact(work: SyncUnitOfWork, install: Install) -> None:
    """Raise NotAsDocumented if another file was served under the name meanwhile."""
    known = find_artifact(work.transaction, install.artifact)
    if known is not None and known.key != install.key:
        raise NotAsDocumented("another file was served under this name meanwhile")


def _keep_artifact(work: SyncUnitOfWork, install: Install) -> None:
    """Remember the file of `install` if it is served, or the other one that it was refused for."""
    if install.is_served_whole:
        is_offered = install.is_offered
        keep_artifact(
            work.transaction, install.artifact, install.file, work.now, is_offered=is_offered
        )
    elif install.decision.kind == ArtifactChanged.event:
        keep_offered(work.transaction, install.artifact, install.key, work.now)


def _remember(work: SyncUnitOfWork, install: Install) -> None:
    _check_artifact(work, install)
    _keep_artifact(work, install)


def _key(tenant_id: str, install: Install, principal: InstallPrincipal) -> str:
    # All of the envelope: a refusal by another rule has a row of its own, which its page shows.
    envelope = install.envelope
    reason = f"{envelope.event}\0{msgspec.json.encode(envelope).decode()}"
    return install_key(tenant_id, principal.credential, install.identity, reason)


def _is_attribution_current(
    work: SyncUnitOfWork, tenant_id: str, principal: InstallPrincipal
) -> bool:
    # Under the write lock: the binding may have been revoked since the token was verified.
    ci = principal.ci
    return ci is None or ci.trust_revision == find_trust_revision(work.transaction, tenant_id)


def _batch(
    principal: InstallPrincipal,
    install: Install,
    envelope: Envelope,
    now: datetime,
    admission: Admission | None = None,
) -> EncodedBatch:
    """The one row that says `envelope` of the install, as the journal stores it."""
    release = install.release
    audit_context = principal.audit_context
    row = audit_row(
        envelope,
        audit_context,
        now,
        package_name=release.name,
        version=release.version,
        ecosystem=release.ecosystem,
        file=FileColumns(_file_name(install.artifact.file_name), install.sha256, install.client),
        subject=principal.subject,
        admission=admission,
    )
    (batch,) = encode_days([row])
    return batch


def _file_name(text: str) -> str | None:
    """The name if a row may have it: a registry could publish any."""
    return text if 0 < len(text) <= FILE_NAME_MAX and text.isprintable() else None
