"""`countersign audit lock-probe`: whether the bucket keeps its object locks."""

from typing import TYPE_CHECKING, Any, Final

from analytics.model.instants import format_ms
from service.cli.audit import audit
from service.cli.commands import CommandContext, data_dir_command
from service.cli.lease_wait import wait_option, when_lease_is_free
from service.cli.output import CommandResult
from service.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from service.audit.segment_locks import LockProbe

_TRIED: Final = {
    "delete": "delete the version of a locked object",
    "shorten": "shorten the retention of a locked object",
    "bypass": "delete the version with the right to bypass governance",
}


@data_dir_command(audit, "lock-probe", changes=True)
@wait_option
async def audit_lock_probe(context: CommandContext, wait_s: float) -> CommandResult:
    """Try to break the object locks of the bucket, on objects of the probe's own.

    It needs COUNTERSIGN_OBJECT_LOCK. The service does this automatically before it locks the first
    segment, and once a week. Exit code 1 means that something was possible: locks of this bucket,
    or with these credentials, do not protect what is stored.
    """
    probed = await when_lease_is_free(context.services.locker.probe, wait_s)
    return CommandResult(
        probe_data(probed),
        [
            *(
                f"{'held' if is_held else 'BROKEN'}: {_TRIED[attempt]}:"
                f" {'the store refused' if is_held else 'this was possible'}"
                for attempt, is_held in probed.held.items()
            ),
            probe_line(probed),
            "Its objects below _countersign/lock-probe/ are locked for a day; a later probe removes"
            " them.",
        ],
        code=ExitCode.FAILED if probed.broken else ExitCode.DONE,
    )


def probe_data(probed: "LockProbe") -> dict[str, Any]:
    """What the last probe found, as JSON."""
    return {
        "mode": probed.mode,
        "is_held": not probed.broken,
        "attempts": probed.held,
        "probed_at": format_ms(probed.probed_at),
    }


def probe_line(probed: "LockProbe") -> str:
    """What the last probe found, as a sentence."""
    found = f"BROKEN ({', '.join(probed.broken)})" if probed.broken else "held"
    return f"Object lock ({probed.mode}), probed at {format_ms(probed.probed_at)}: {found}."
