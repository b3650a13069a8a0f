"""The job that compares past installs with what came against releases, and records matches.

These are new advisories, new deny rules, and the releases that registries withdrew.

An organisation's row tells what its installs were compared with last, and is changed in the
transaction that records the matches: none is lost or recorded twice if the job is killed.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, func, or_, select
from sqlalchemy.orm import aliased

from analytics.model.ecosystems import Ecosystem
from analytics.model.instants import utc_day
from analytics.model.policy_envelopes import InstallsMatched
from service.access.callers import service_context
from service.audit.lake import Lake
from service.audit.leased_job import DeferredErrors
from service.audit.tenant_log import open_log
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.core.threads import in_thread
from service.packages.policy.blocklist_generations import BlocklistGenerations
from service.packages.policy.document import decode_document
from service.packages.policy.evaluation import CompiledPolicy
from service.packages.policy.model import InForce, InstallPolicy, ReleaseRule
from service.packages.policy.repository import find_in_force, load_advisories, load_document
from service.packages.proxy.artifacts import load_withdrawn
from service.packages.retro.affected import (
    Book,
    Package,
    Suspects,
    advisory_book,
    count_affected,
    find_affected,
    rule_book,
    withdrawn_book,
)
from service.store.lease import HeldLease, LeaseKeeper
from service.store.organisations import get_org_by_id
from service.store.store import Store
from service.store.tables import AdvisoryEntry, Artifact, Organisation, PolicyRevision
from service.store.transaction import Transaction

MATCHING_MAX_S: Final = 600.0
_RECORDED_AFTER: Final = timedelta(minutes=1)
"""An install that was decided before its release counted as withdrawn is recorded by then."""

_OLD: Final = aliased(AdvisoryEntry)
_NEW: Final = AdvisoryEntry
_IS_SAME: Final = and_(
    _OLD.generation == bindparam("before"),
    *(getattr(_OLD, key) == getattr(_NEW, key) for key in ["ecosystem", "package", "advisory_id"]),
)
_CHANGED: Final = (
    select(_NEW.ecosystem, _NEW.package)
    .distinct()
    .outerjoin(_OLD, _IS_SAME)
    .where(_NEW.generation == bindparam("now"), or_(_OLD.spec.is_(None), _OLD.spec != _NEW.spec))
)
_ORGS: Final = select(
    Organisation.id,
    func.coalesce(Organisation.matched_revision, 0),
    func.coalesce(Organisation.matched_generation, 0),
    Organisation.matched_withdrawn_at,
    select(func.coalesce(func.max(PolicyRevision.revision), 0))
    .where(PolicyRevision.tenant_id == Organisation.id)
    .scalar_subquery(),
    select(func.max(Artifact.withdrawn_at))
    .where(Artifact.withdrawn_at <= bindparam("until"))
    .scalar_subquery(),
)


class _Due(NamedTuple):
    """An organisation, what its installs were compared with last, and what is in force now."""

    tenant_id: str
    before: InForce
    withdrawn_before: datetime | None
    now: InForce
    withdrawn_at: datetime | None


class RetroMatcher:
    """Matches under its lease, so that any number of processes may run one."""

    def __init__(
        self, settings: Settings, store: Store, lake: Lake, lease: LeaseKeeper, metrics: Metrics
    ) -> None:
        self._by = service_context(settings.platform_tenant_id)
        self._store = store
        self._lake = lake
        self._lease = lease
        self._changed: dict[tuple[int, int], Suspects] = {}
        self._matches = metrics.counter(
            "countersign_retro_matches",
            "New advisories, deny rules and withdrawals of past installs, by source.",
            "source",
        )
        for source in ("osv", "operator", "registry"):  # shown from now on
            self._matches.labels(source)

    async def match_due(self) -> None:
        """Compare past installs with what came since the last time. Raises LeaseTaken.

        An organisation whose rows cannot be read does not keep the others waiting: the first such
        fault is raised at the end.
        """
        list_due = partial(_list_due, until=self._store.clock() - _RECORDED_AFTER)
        if not await self._store.read_at_once(list_due):
            return
        faults = DeferredErrors("installs_not_matched")
        async with self._lease.hold() as lease, lease.renewed():
            for due in await self._store.read_at_once(list_due):
                with faults.of(due.tenant_id, utc_day(self._store.clock())):
                    await self._match(lease, due)
        self._changed.clear()
        await BlocklistGenerations(self._store).delete_left_over()
        faults.raise_first()

    async def _match(self, lease: HeldLease, due: _Due) -> None:
        async with self._store.read() as session:
            org = await get_org_by_id(session, due.tenant_id)
        log = await open_log(self._store, self._lake, org, self._store.clock())
        matches: list[InstallsMatched] = []
        for suspects in (
            await self._new_rules(due),
            await self._new_advisories(due),
            await self._newly_withdrawn(due),
        ):
            if suspects is not None:
                matches += count_affected(
                    await find_affected(log, suspects, MATCHING_MAX_S), due.now
                )
        async with lease.write() as work:
            for match in matches:
                work.record(due.tenant_id, match, self._by, subject=match.rule_id)
            org = await get_org_by_id(work.session, due.tenant_id)
            org.matched_revision, org.matched_generation = due.now
            org.matched_withdrawn_at = due.withdrawn_at
        for match in matches:
            self._matches.labels(match.source).inc()

    async def _new_rules(self, due: _Due) -> Suspects | None:
        """The deny rules that are not as they were; None if there are none."""
        if due.before.revision == due.now.revision:
            return None
        old, rules = [
            await load_deny_rules(self._store, due.tenant_id, each.revision)
            for each in (due.before, due.now)
        ]
        new = [rule for rule in rules if rule not in old]
        policy = CompiledPolicy(InstallPolicy(deny=tuple(new)))

        async def load(packages: Sequence[Package]) -> tuple[Book, Book]:
            return await in_thread(lambda: (rule_book(new, packages), rule_book(old, packages)))

        return Suspects(lambda package: bool(policy.on(*package).deny), load) if new else None

    async def _new_advisories(self, due: _Due) -> Suspects | None:
        """The advisories that are not as they were; None if there are none."""
        key = before, now = due.before.generation, due.now.generation
        if before == now or key in self._changed:
            return self._changed.get(key)

        async def load(packages: Sequence[Package]) -> tuple[Book, Book]:
            def stored(transaction: Transaction) -> list[dict[Package, list[tuple[str, bytes]]]]:
                return [
                    {each: load_advisories(transaction, number, *each) for each in packages}
                    for number in (now, before)
                ]

            new, old = await self._store.read_at_once(stored)
            return await in_thread(lambda: (advisory_book(new), advisory_book(old)))

        listed = partial(_list_changed, before=before, now=now)
        self._changed[key] = Suspects(await self._store.read_at_once(listed), load)
        return self._changed[key]

    async def _newly_withdrawn(self, due: _Due) -> Suspects | None:
        """The releases that registries withdrew since the last time; None if there are none."""
        if due.withdrawn_at is None:
            return None
        after, until = due.withdrawn_before, due.withdrawn_at
        load_new = partial(load_withdrawn, after=after, until=until)
        withdrawn = await self._store.read_at_once(load_new)

        async def load(_: Sequence[Package]) -> tuple[Book, Book]:
            return withdrawn_book(withdrawn), {}

        return Suspects(withdrawn, load) if withdrawn else None


async def load_deny_rules(store: Store, tenant_id: str, revision: int) -> Sequence[ReleaseRule]:
    """The deny rules of an organisation's policy, without reasons, which decide nothing."""
    load = partial(load_document, tenant_id=tenant_id, revision=revision)
    document = await store.read_at_once(load)
    deny = () if document is None else (await in_thread(decode_document, document)).deny
    return [replace(rule, reason=None) for rule in deny]


def _list_changed(transaction: Transaction, **generations: int) -> list[Package]:
    rows = transaction.rows(_CHANGED, generations)
    return [(Ecosystem(ecosystem), package) for ecosystem, package in rows]


def _list_due(transaction: Transaction, until: datetime) -> list[_Due]:
    generation = find_in_force(transaction, "").generation  # of all organisations
    orgs = [
        _Due(tenant_id, InForce(*before), at, InForce(revision, generation), now)
        for tenant_id, *before, at, revision, now in transaction.rows(_ORGS, {"until": until})
    ]
    return [d for d in orgs if (d.before, d.withdrawn_before) != (d.now, d.withdrawn_at)]
