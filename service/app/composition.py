"""Builds everything that endpoints, commands and background jobs work with."""

import os
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import httpx2
import structlog

from service.access.authenticate import Authenticator
from service.access.authorization import Authorizer
from service.access.key_use import KeyUse
from service.access.sign_in.services import SignInServices
from service.app.audit_reads import AuditReads
from service.app.scrapes import Scrapes
from service.app.system import SystemServices
from service.audit.alerts.watcher import AlertWatcher
from service.audit.clock_guard import ClockGuard
from service.audit.compactor import Compactor
from service.audit.evidence.checkpoints import Checkpointer
from service.audit.evidence.monitor import Monitor
from service.audit.evidence.witnesses import Cosigner
from service.audit.exports import Exporter
from service.audit.garbage_collector import GarbageCollector
from service.audit.importer import Importer
from service.audit.indexer import Indexer
from service.audit.ingest import Ingest, IngestServices
from service.audit.installation import prefix_guard
from service.audit.lake import Lake
from service.audit.open_table.publisher import Publisher
from service.audit.pruner import Pruner
from service.audit.query_service import AuditQueryService
from service.audit.scrubber import Scrubber
from service.audit.sealer import Sealer
from service.audit.segment_locks import SegmentLocker
from service.audit.services import AuditServices, OperatorServices
from service.audit.sql_runs import SqlRunner
from service.audit.streams.delivery import Deliveries
from service.audit.streams.sending import Sender
from service.audit.worker_process import WorkerProcess
from service.ci.issuers.issuers import Issuers, load_issuers
from service.ci.issuers.key_source import KeySource
from service.ci.verifier.usage import BindingUse
from service.ci.verifier.verifier import Verifier
from service.core.clock import Clock, machine_uptime
from service.core.errors import StoreUnavailable
from service.core.http_client import NO_NETWORK, client_tls, outgoing_client
from service.core.loop_turns import LoopTurns
from service.core.metrics import Metrics
from service.core.process_metrics import METRICS_FOLDER
from service.core.secrets import derive_key
from service.core.settings import Settings
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.install_tokens.authorization import InstallAuthorizer
from service.packages.install_tokens.exchange import InstallTokenIssuer
from service.packages.policy.policy_api import PolicyServices
from service.packages.policy.policy_cache import PolicyCache
from service.packages.policy.search_ids import read_advisory, read_rule
from service.packages.proxy.admission import AnswerLimiter
from service.packages.proxy.artifacts import Artifacts
from service.packages.proxy.install_log import InstallLog
from service.packages.proxy.page_cache import PageCache
from service.packages.proxy.registries import (
    ListedReleases,
    PackageCaches,
    RegistryParts,
    open_caches,
    open_registries,
)
from service.packages.proxy.registries_file import load_registries
from service.packages.proxy.services import ProxyServices
from service.packages.proxy.upstream import upstream_client
from service.packages.retro.matcher import RetroMatcher
from service.packages.search_words import read_package
from service.pages.live import LiveStreams
from service.pages.services import DashboardServices
from service.store.engine_factory import create_engines
from service.store.group_commit import GroupCommit
from service.store.lease import ALERTS, EVIDENCE, RETRO, SCRUB, SEAL, STREAMS, LeaseKeeper
from service.store.store import Store
from service.trust.bindings.cache import BindingCache
from service.trust.bindings.services import BindingServices
from service.trust.rejected.subjects import RejectedSubjects
from service.web.dependencies import BaseServices

_log = structlog.get_logger(__name__)

EXTENSION = "countersign"


@dataclass(frozen=True)
class _Installs:
    """What decides about packages, and serves them."""

    installers: InstallAuthorizer
    policies: PolicyCache
    packages: PackageCaches
    upstream_http: httpx2.AsyncClient
    proxy: ProxyServices


@dataclass(frozen=True)
class _Trust:
    """What decides who a caller is and what they may do."""

    issuers: Issuers
    keys: KeySource
    binding_use: BindingUse
    key_use: KeyUse
    rejected: RejectedSubjects
    verifier: Verifier
    authenticator: Authenticator
    access: Authorizer
    token_issuer: InstallTokenIssuer


@dataclass(frozen=True, kw_only=True)
class _SegmentJobs:
    """What writes, merges, deletes and verifies segments."""

    lease: LeaseKeeper
    clock_guard: ClockGuard
    sealer: Sealer
    checkpointer: Checkpointer
    monitor: Monitor
    cosigner: Cosigner
    alerts: AlertWatcher
    importer: Importer
    compactor: Compactor
    indexer: Indexer
    pruner: Pruner
    publisher: Publisher
    locker: SegmentLocker
    garbage_collector: GarbageCollector
    scrubber: Scrubber
    retro: RetroMatcher
    sender: Sender
    deliveries: Deliveries


@dataclass(frozen=True, kw_only=True)
class Services(_Trust, _SegmentJobs, _Installs, OperatorServices):
    """Everything one process shares between its requests.

    Commands and background jobs use it as a whole; routes receive `groups` of it.
    """

    audit_queries: AuditQueryService
    exporter: Exporter
    sql_runner: SqlRunner
    ingest: Ingest
    worker: WorkerProcess
    group_commit: GroupCommit
    metrics: Metrics
    sign_in: SignInServices
    audit_reads: AuditReads
    live: LiveStreams
    loop_turns: LoopTurns
    http: httpx2.AsyncClient

    def groups(self) -> tuple[object, ...]:
        """The groups of which each route receives one."""
        shared = (self.settings, self.clock, self.access, self.store)
        audit = AuditServices(
            *shared,
            self.lake,
            self.audit_queries,
            self.exporter,
            self.sql_runner,
            self.sender,
            readers=(read_advisory, read_package, read_rule),
        )
        listings = ListedReleases(self.proxy.registries, self.proxy.artifacts)
        policy = PolicyServices(*shared, self.lake, self.policies, listings, self.worker)
        bindings = BindingServices(*shared, self.issuers, self.keys.keys_for)
        scrapes = Scrapes(self.store, self.metrics, self.clock, self.settings.metrics_max_age_s)
        scrape_token = None if self.settings.metrics_open else self.settings.metrics_token
        return (
            BaseServices(*shared),
            audit,
            policy,
            bindings,
            IngestServices(self.access, self.ingest, self.settings.ingest_bytes_max),
            self.token_issuer,
            self.proxy,
            self.sign_in,
            SystemServices(self.store, self.lake, scrapes, scrape_token, self.proxy.circuits),
            DashboardServices(*shared, audit, bindings, self.sign_in),
            self.live,
            self.packages,
            self.clock_guard,
        )

    async def flush(self) -> None:
        """Write what only memory holds, once no more requests come."""
        # Both before the store is closed: an end or a change that waits would be lost.
        await self.exporter.drain()
        await self.group_commit.drain()
        try:
            for recorded in (self.binding_use, self.key_use, self.rejected, self.audit_reads):
                await recorded.flush()
        except StoreUnavailable as error:  # a few counts less; the rest must still be closed
            _log.error("last_flush_failed", reason=error.reason)

    async def close(self) -> None:
        """Finish what is under way, then release the network, the database and the engine."""
        await self.deliveries.close()
        await self.sender.close()
        await self.keys.close()
        await self.sign_in.close()
        await self.proxy.close()
        await self.packages.close()
        await self.upstream_http.aclose()
        await self.http.aclose()
        await self.flush()
        self.worker.close()
        await self.store.close()
        self.lake.close()


def _installs(
    settings: Settings,
    store: Store,
    lake: Lake,
    clock: Clock,
    metrics: Metrics,
    trust: _Trust,
    worker: WorkerProcess,
    recorder: tuple[GroupCommit, Sealer],
    offline: httpx2.AsyncBaseTransport | None,
) -> _Installs:
    """`recorder` stores the audit rows of installs."""
    group_commit, sealer = recorder
    installers = InstallAuthorizer(trust.authenticator, trust.access, trust.verifier, store, clock)
    policies = PolicyCache(store)
    packages = open_caches(settings, lake, partial(metrics.package_cache_used, "files"))
    upstream_http = upstream_client(settings.proxy_connections_max, offline)
    artifacts = Artifacts(store)
    parts = RegistryParts(settings, upstream_http, packages, worker, clock, metrics, artifacts)
    own_registries = load_registries(settings.proxy_registries_file)
    proxy = ProxyServices(
        public_url=settings.public_url,
        clock=clock,
        installers=installers,
        answers=AnswerLimiter(
            settings.proxy_answers_per_org_max,
            settings.proxy_answers_per_key_max,
            observe=metrics.proxy_answers,
            refused=metrics.proxy_refused,
        ),
        policies=policies,
        installs=InstallLog(store, artifacts, group_commit, installers, sealer, settings, metrics),
        artifacts=artifacts,
        pages=PageCache(clock, partial(metrics.package_cache_used, "pages")),
        files=packages.files,
        worker=worker,
        registries={
            ecosystem: open_registries(
                facts, settings.package_registry(ecosystem), own_registries, parts
            )
            for ecosystem, facts in ECOSYSTEMS.items()
        },
    )
    return _Installs(installers, policies, packages, upstream_http, proxy)


def _trust(
    settings: Settings, store: Store, clock: Clock, http: httpx2.AsyncClient, metrics: Metrics
) -> _Trust:
    issuers = load_issuers(settings.issuers_file)
    keys = KeySource(issuers, http, clock, metrics)
    binding_use = BindingUse(store, metrics)
    key_use = KeyUse(store)
    rejected = RejectedSubjects(store, metrics)
    verifier = Verifier(
        issuers,
        settings.audience,
        BindingCache(store).candidates,
        keys,
        binding_use,
        rejected.record,
        metrics,
        clock,
    )
    authenticator = Authenticator(settings, store, clock, key_use)
    access = Authorizer(authenticator, store, verifier)
    token_issuer = InstallTokenIssuer(
        authenticator,
        access,
        verifier,
        store,
        settings.audience,
        timedelta(seconds=settings.install_token_s),
    )
    return _Trust(
        issuers, keys, binding_use, key_use, rejected, verifier, authenticator, access, token_issuer
    )


def _segment_jobs(
    settings: Settings,
    store: Store,
    lake: Lake,
    clock: Clock,
    metrics: Metrics,
    transport: httpx2.AsyncBaseTransport | None,
) -> _SegmentJobs:
    keeper = partial(LeaseKeeper, store, settings.data_dir, timedelta(seconds=settings.lease_s))
    lease, scrub_lease = keeper(), keeper(SCRUB)
    sender = Sender(settings.stream_networks, client_tls, clock, smtp_url=settings.smtp_url)
    job = (settings, store, lake, lease, clock)
    clock_guard = ClockGuard(store, machine_uptime)
    compactor = Compactor(*job)
    publisher = Publisher(*job, compactor)
    checkpointer = Checkpointer(settings, store, lake, keeper(EVIDENCE), clock, metrics)
    return _SegmentJobs(
        lease=lease,
        clock_guard=clock_guard,
        sealer=Sealer(settings, store, lake, keeper(SEAL), clock),
        checkpointer=checkpointer,
        monitor=Monitor(settings, store, lake, scrub_lease, clock, metrics),
        # Also where nothing else is asked of the network: what signs asks the witnesses.
        cosigner=Cosigner(store, lake, clock, transport),
        alerts=AlertWatcher(settings, store, lake, keeper(ALERTS), clock, clock_guard),
        importer=Importer(*job),
        compactor=compactor,
        indexer=Indexer(*job),
        pruner=Pruner(settings, store, lease, checkpointer, clock_guard, metrics),
        publisher=publisher,
        locker=SegmentLocker(*job, metrics),
        garbage_collector=GarbageCollector(*job, publisher),
        scrubber=Scrubber(settings, store, lake, scrub_lease, clock, metrics),
        retro=RetroMatcher(settings, store, lake, keeper(RETRO), metrics),
        sender=sender,
        deliveries=Deliveries(settings, store, lake, keeper(STREAMS), clock, metrics, sender),
    )


def build_services(
    settings: Settings,
    clock: Clock,
    transport: httpx2.AsyncBaseTransport | None = None,
    *,
    is_serving: bool = True,
) -> Services:
    """Services over the data dir and database of `settings`, which `init` has prepared.

    What they ask of the network goes through `transport`; None is the network itself. Without
    `is_serving` they ask nothing of it.
    """
    store = Store(create_engines(settings.database, settings.database_wait_s), clock)
    clock = store.clock  # what is compared with stored times is of the same clock
    metrics = Metrics(is_shared=METRICS_FOLDER in os.environ, is_serving=is_serving)
    loop_turns = LoopTurns(metrics.request_ended)
    lake = Lake(
        settings,
        metrics.segment_cache if settings.segments_url else None,
        prefix_guard(settings, store),
        metrics.query_turns,
        metrics.export_turns,
        loop_turns.have_several_tenants,
    )
    offline = None if is_serving else NO_NETWORK
    http = outgoing_client(offline or transport)
    trust = _trust(settings, store, clock, http, metrics)
    jobs = _segment_jobs(settings, store, lake, clock, metrics, transport)
    group_commit = GroupCommit(store)
    worker = WorkerProcess(lake, settings.ingest_processes)
    installs = _installs(
        settings, store, lake, clock, metrics, trust, worker, (group_commit, jobs.sealer), offline
    )
    return Services(
        settings=settings,
        clock=clock,
        store=store,
        lake=lake,
        **vars(trust),
        **vars(jobs),
        **vars(installs),
        audit_queries=AuditQueryService(
            store, lake, derive_key(settings.secret_key, "audit cursor")
        ),
        exporter=Exporter(settings, store, lake),
        sql_runner=SqlRunner(settings, lake),
        ingest=Ingest(
            store, group_commit, lake, worker, trust.verifier, clock, jobs.sealer, settings
        ),
        worker=worker,
        group_commit=group_commit,
        metrics=metrics,
        sign_in=SignInServices(
            settings, clock, store, trust.authenticator, trust.access, http, metrics
        ),
        audit_reads=AuditReads(store, metrics, is_on=settings.record_reads),
        live=LiveStreams(),
        loop_turns=loop_turns,
        http=http,
    )
