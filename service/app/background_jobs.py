"""The background loops, each with its jobs: of each process that serves, and of a data dir."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from service.access.callers import service_context
from service.app.composition import Services
from service.audit.export_entries import close_silent_exports
from service.audit.maintenance import BackgroundJob, Maintenance, maintenance_jobs
from service.audit.streams.delivery import ROUND_S
from service.packages.install_tokens.machine_tokens import delete_expired_machine_tokens
from service.packages.install_tokens.tokens import delete_expired_tokens
from service.packages.proxy.artifacts import delete_expired_artifacts
from service.packages.proxy.install_marks import delete_expired_marks

WRITE_BEHIND_INTERVAL_S: Final = 2.0
"""A killed process loses the uses and rejections that it recorded in this time."""
KEY_RENEWAL_INTERVAL_S: Final = 15.0
CLOSE_EXPORTS_INTERVAL_S: Final = 30.0
ALERT_INTERVAL_S: Final = 10.0
"""How long after its rows a rule fires, at most, while the evaluation keeps up."""


def seal_jobs(services: Services) -> list[Maintenance]:
    """What one process over a data dir runs that must not wait for anything else."""
    return [sealing(services)]


def busy_jobs(services: Services) -> list[Maintenance]:
    """These, and what takes the database's write lock too often to be in the idle class."""
    return [*seal_jobs(services), signing(services)]


def stream_jobs(services: Services) -> list[Maintenance]:
    """What one process over a data dir runs that is much work and in less of a hurry."""
    return [streaming(services)]


def other_jobs(services: Services) -> list[Maintenance]:
    """What one process over a data dir runs besides, and what may wait."""
    return [
        maintenance(services),
        cosigning(services),
        matching(services),
        alerting(services),
        housekeeping(services),
        scrubbing(services),
    ]


def all_jobs(services: Services) -> list[Maintenance]:
    """All, for a process that serves a data dir without others beside it."""
    return busy_jobs(services) + stream_jobs(services) + other_jobs(services)


def maintenance(services: Services) -> Maintenance:
    """The jobs on segments, except sealing."""
    jobs = maintenance_jobs(
        services.settings,
        services.compactor,
        services.indexer,
        services.pruner,
        services.publisher,
        services.locker,
        services.garbage_collector,
    )
    return Maintenance(jobs, services.settings.seal_interval_s, services.clock, services.metrics)


def signing(services: Services) -> Maintenance:
    """The job that signs checkpoints, in a loop of its own: a merge may take minutes."""
    settings = services.settings
    jobs = [
        BackgroundJob(
            "sign_checkpoints", settings.checkpoint_interval_s, services.checkpointer.sign_due
        ),
    ]
    return Maintenance(jobs, settings.seal_interval_s, services.clock, services.metrics)


def cosigning(services: Services) -> Maintenance:
    """The job that asks witnesses, in a loop of its own: they may be slow."""
    settings = services.settings
    jobs = [
        BackgroundJob(
            "cosign_checkpoints", settings.checkpoint_interval_s, services.cosigner.cosign_due
        )
    ]
    return Maintenance(jobs, settings.seal_interval_s, services.clock, services.metrics)


def matching(services: Services) -> Maintenance:
    """The job that compares past installs with new rules, in a loop of its own: it may be long."""
    every_s = services.settings.seal_interval_s
    jobs = [BackgroundJob("match_installs", every_s, services.retro.match_due)]
    return Maintenance(jobs, every_s, services.clock, services.metrics)


def alerting(services: Services) -> Maintenance:
    """The job that evaluates alert rules, in a loop of its own: counts may take seconds."""
    jobs = [BackgroundJob("watch_alerts", ALERT_INTERVAL_S, services.alerts.watch_due)]
    return Maintenance(jobs, ALERT_INTERVAL_S, services.clock, services.metrics)


def sealing(services: Services) -> Maintenance:
    """The job that requests ask for, in a loop of its own: it does not wait for a merge."""
    jobs = [
        BackgroundJob(
            "seal",
            services.settings.seal_interval_s,
            services.sealer.seal_due,
            services.sealer.wanted,
        )
    ]
    return Maintenance(jobs, services.settings.seal_interval_s, services.clock, services.metrics)


def streaming(services: Services) -> Maintenance:
    """The job that delivers streams; its tasks go on between two rounds."""
    jobs = [BackgroundJob("deliver_streams", 0, services.deliveries.deliver_due)]
    return Maintenance(jobs, ROUND_S, services.clock, services.metrics)


def write_behind(services: Services) -> Maintenance:
    """What only the memory of each process of `serve` holds, written every few seconds.

    Apart from maintenance, because a merge of segments may take longer than that.
    """
    jobs = [
        # Of no interval: due in each round of WRITE_BEHIND_INTERVAL_S.
        BackgroundJob("count_uses", 0, services.binding_use.flush),
        BackgroundJob("record_key_uses", 0, services.key_use.flush),
        BackgroundJob("record_rejections", 0, services.rejected.flush),
        BackgroundJob("record_reads", 0, services.audit_reads.flush),
    ]
    return Maintenance(jobs, WRITE_BEHIND_INTERVAL_S, services.clock, services.metrics)


def housekeeping(services: Services) -> Maintenance:
    """What is closed and deleted besides segments."""
    swept: dict[str, Callable[[], Awaitable[object]]] = {
        "delete_expired_rejections": services.rejected.delete_expired,
        "delete_expired_sessions": services.authenticator.delete_expired_sessions,
        "delete_expired_install_tokens": partial(delete_expired_install_tokens, services),
        "delete_expired_install_marks": partial(delete_expired_install_marks, services),
        "delete_expired_artifacts": partial(delete_old_artifacts, services),
        "sweep_package_cache": services.packages.sweep,
    }
    jobs = [
        BackgroundJob(
            "close_broken_exports",
            CLOSE_EXPORTS_INTERVAL_S,
            partial(close_broken_exports, services),
        ),
        *(
            BackgroundJob(name, services.settings.sweep_interval_s, run)
            for name, run in swept.items()
        ),
    ]
    return Maintenance(jobs, WRITE_BEHIND_INTERVAL_S, services.clock, services.metrics)


async def delete_expired_install_tokens(services: Services) -> None:
    """Delete install tokens and machine tokens that expired long ago."""
    await delete_expired_tokens(services.store, services.clock())
    await delete_expired_machine_tokens(services.store, services.clock())


async def delete_expired_install_marks(services: Services) -> None:
    """Delete marks of installs that no request can belong to any more."""
    await delete_expired_marks(services.store, services.clock())


async def delete_old_artifacts(services: Services) -> None:
    """Forget which files were served so long ago that hardly anyone installs them."""
    await delete_expired_artifacts(services.store, services.clock())


async def close_broken_exports(services: Services) -> int:
    """Record the end of exports whose process has died; returns how many."""
    by = service_context(services.settings.platform_tenant_id)
    return await close_silent_exports(services.store, services.clock, by)


def scrubbing(services: Services) -> Maintenance:
    """The verification of what is stored, in a loop of its own: it waits most of the time."""
    jobs = [
        BackgroundJob("scrub", services.settings.sweep_interval_s, services.scrubber.scrub_due),
        BackgroundJob(
            "scrub_copies", services.settings.sweep_interval_s, services.scrubber.scrub_copies
        ),
        BackgroundJob(
            "compare_evidence", services.settings.sweep_interval_s, services.monitor.compare_due
        ),
    ]
    interval_s = services.settings.seal_interval_s
    return Maintenance(jobs, interval_s, services.clock, services.metrics)


def suspicion(services: Services) -> Maintenance:
    """The verification of what requests of this process could not read; each process does it."""
    jobs = [BackgroundJob("verify_suspects", 0, partial(verify_suspects, services))]
    return Maintenance(jobs, WRITE_BEHIND_INTERVAL_S, services.clock, services.metrics)


async def verify_suspects(services: Services) -> bool:
    """Report damaged indexes; verify segments and batches, True if there was any of these."""
    await services.indexer.report_damaged()
    return await services.scrubber.verify_suspects()


def key_renewal(services: Services) -> Maintenance:
    """The renewal of issuers' keys ahead of need, in a loop of its own: an issuer may be slow."""
    jobs = [BackgroundJob("renew_keys", 0, services.keys.refresh_due)]
    return Maintenance(jobs, KEY_RENEWAL_INTERVAL_S, services.clock, services.metrics)
