"""The background loops, each with its jobs: of each process that serves, and of a data dir."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from service.access.callers import service_context
from service.app.composition import Services
from service.audit.export_entries import close_silent_exports
from service.audit.maintenance import BackgroundJob, Maintenance
from service.audit.streams.delivery import ROUND_S
from service.packages.install_tokens.tokens import delete_expired_tokens
from service.packages.proxy.artifacts import delete_expired_artifacts
from service.packages.proxy.install_marks import delete_expired_marks

WRITE_BEHIND_INTERVAL_S: Final = 2.0
"""A killed process loses the uses and rejections that it recorded in this time."""
KEY_RENEWAL_INTERVAL_S: Final = 15.0
ASK_AGAIN_INTERVAL_S: Final = 120.0
CLOSE_EXPORTS_INTERVAL_S: Final = 30.0
EXPIRE_INTERVAL_S: Final = 3_600.0
"""Each expiry is a commit of its own: one an hour instead of one for each snapshot."""

MERGES_MAX: Final = 1
"""Merges in one round, so that no other job waits while a year of days is compacted."""

ALERT_INTERVAL_S: Final = 10.0
"""How long after its rows a rule fires, at most, while the evaluation keeps up."""


def own_jobs(services: Services) -> list[Maintenance]:
    """What each process that serves runs for itself."""
    again = partial(services.proxy.ask_again, services.settings.platform_tenant_id)
    renew = BackgroundJob("renew_keys", 0, services.keys.refresh_due)
    verify = BackgroundJob("verify_suspects", 0, partial(verify_suspects, services))
    ask = BackgroundJob("ask_registries_again", ASK_AGAIN_INTERVAL_S, again)
    return [
        write_behind(services),
        # In loops of their own: an issuer, and a registry, may be slow.
        _loop(services, KEY_RENEWAL_INTERVAL_S, renew),
        _loop(services, WRITE_BEHIND_INTERVAL_S, verify),
        _loop(services, ASK_AGAIN_INTERVAL_S, ask),
    ]


def seal_jobs(services: Services) -> list[Maintenance]:
    """What one process over a data dir runs that must not wait for anything else."""
    return [sealing(services)]


def busy_jobs(services: Services) -> list[Maintenance]:
    """These, and what takes the database's write lock too often to be in the idle class."""
    return [*seal_jobs(services), signing(services)]


def stream_jobs(services: Services) -> list[Maintenance]:
    """What one process over a data dir runs that is much work and in less of a hurry."""
    # The tasks of streams go on between two rounds.
    job = BackgroundJob("deliver_streams", 0, services.deliveries.deliver_due)
    return [_loop(services, ROUND_S, job)]


def other_jobs(services: Services) -> list[Maintenance]:
    """What one process over a data dir runs besides, and what may wait."""
    settings = services.settings
    every_s = settings.seal_interval_s
    cosign = BackgroundJob(
        "cosign_checkpoints", settings.checkpoint_interval_s, services.cosigner.cosign_due
    )
    match = BackgroundJob("match_installs", every_s, services.retro.match_due)
    watch = BackgroundJob("watch_alerts", ALERT_INTERVAL_S, services.alerts.watch_due)
    return [
        maintenance(services),
        # In loops of their own: witnesses may be slow, installs many, and counts take seconds.
        _loop(services, every_s, cosign),
        _loop(services, every_s, match),
        _loop(services, ALERT_INTERVAL_S, watch),
        housekeeping(services),
        scrubbing(services),
    ]


def all_jobs(services: Services) -> list[Maintenance]:
    """All, for a process that serves a data dir without others beside it."""
    return busy_jobs(services) + stream_jobs(services) + other_jobs(services)


def _loop(services: Services, round_s: float, *jobs: BackgroundJob) -> Maintenance:
    return Maintenance(jobs, round_s, services.clock, services.metrics)


def maintenance(services: Services) -> Maintenance:
    """The jobs on segments, except sealing, in the order in which a round runs them."""
    settings, garbage_collector = services.settings, services.garbage_collector
    swept: dict[str, Callable[[], Awaitable[object]]] = {
        "unlink_retired": garbage_collector.unlink_retired,
        "drop_copies": garbage_collector.drop_copies,
        "clear_orphans": garbage_collector.clear_orphans,
        "delete_expired_answers": garbage_collector.delete_expired_answers,
    }
    every_s, publisher = settings.sweep_interval_s, services.publisher
    return _loop(
        services,
        settings.seal_interval_s,
        BackgroundJob(
            "compact", every_s, partial(services.compactor.compact_due, merges_max=MERGES_MAX)
        ),
        BackgroundJob("index", every_s, services.indexer.build_missing),
        BackgroundJob("prune", settings.prune_interval_s, services.pruner.prune_in_background),
        BackgroundJob("publish_lake", settings.lake_publish_interval_s, publisher.publish_due),
        BackgroundJob("expire_lake", EXPIRE_INTERVAL_S, publisher.expire_due),
        BackgroundJob("lock_segments", every_s, services.locker.lock_due),
        *(BackgroundJob(name, every_s, run) for name, run in swept.items()),
    )


def signing(services: Services) -> Maintenance:
    """The job that signs checkpoints, in a loop of its own: a merge may take minutes."""
    settings, sign = services.settings, services.checkpointer.sign_due
    job = BackgroundJob("sign_checkpoints", settings.checkpoint_interval_s, sign)
    return _loop(services, settings.seal_interval_s, job)


def sealing(services: Services) -> Maintenance:
    """The job that requests ask for, in a loop of its own: it does not wait for a merge."""
    every_s, sealer = services.settings.seal_interval_s, services.sealer
    return _loop(services, every_s, BackgroundJob("seal", every_s, sealer.seal_due, sealer.wanted))


def write_behind(services: Services) -> Maintenance:
    """What only the memory of each process of `serve` holds, written every few seconds.

    Apart from maintenance, because a merge of segments may take longer than that.
    """
    return _loop(
        services,
        WRITE_BEHIND_INTERVAL_S,
        # Of no interval: due in each round.
        BackgroundJob("count_uses", 0, services.binding_use.flush),
        BackgroundJob("record_key_uses", 0, services.key_use.flush),
        BackgroundJob("record_rejections", 0, services.rejected.flush),
        BackgroundJob("record_reads", 0, services.audit_reads.flush),
    )


def housekeeping(services: Services) -> Maintenance:
    """What is closed and deleted besides segments."""
    by = service_context(services.settings.platform_tenant_id)
    close = partial(close_silent_exports, services.store, by)
    swept: dict[str, Callable[[], Awaitable[object]]] = {
        "delete_expired_rejections": services.rejected.delete_expired,
        "delete_expired_sessions": services.authenticator.delete_expired_sessions,
        "delete_expired_install_tokens": partial(delete_expired_tokens, services.store),
        "delete_expired_install_marks": partial(delete_expired_marks, services.store),
        "delete_expired_artifacts": partial(delete_expired_artifacts, services.store),
        "sweep_package_cache": services.packages.sweep,
    }
    every_s = services.settings.sweep_interval_s
    return _loop(
        services,
        WRITE_BEHIND_INTERVAL_S,
        BackgroundJob("close_broken_exports", CLOSE_EXPORTS_INTERVAL_S, close),
        *(BackgroundJob(name, every_s, run) for name, run in swept.items()),
    )


def scrubbing(services: Services) -> Maintenance:
    """The verification of what is stored, in a loop of its own: it waits most of the time."""
    every_s, scrubber = services.settings.sweep_interval_s, services.scrubber
    return _loop(
        services,
        services.settings.seal_interval_s,
        BackgroundJob("scrub", every_s, scrubber.scrub_due),
        BackgroundJob("scrub_copies", every_s, scrubber.scrub_copies),
        BackgroundJob("compare_evidence", every_s, services.monitor.compare_due),
    )


async def verify_suspects(services: Services) -> bool:
    """Report damaged indexes; verify segments and batches, True if there was any of these.

    Each process does it: they are what its own requests could not read.
    """
    await services.indexer.report_damaged()
    return await services.scrubber.verify_suspects()
