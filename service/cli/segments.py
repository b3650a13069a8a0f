"""`countersign audit restore-segment` and `give-up`: segments that are damaged or missing."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from service.cli.asking import confirm, yes_option
from service.cli.audit import audit
from service.cli.commands import CommandContext, data_dir_command
from service.cli.lease_wait import wait_option, when_lease_is_free
from service.cli.output import CommandResult
from service.cli.progress import byte_progress
from service.core.exit_codes import ExitCode
from service.store.organisations import get_org

if TYPE_CHECKING:
    from service.audit.backup.segment_restore import Outcome


@data_dir_command(audit, "restore-segment", changes=True)
@click.argument("ids", metavar="[SEGMENT]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every damaged segment.")
@click.option("--org", "slug", metavar="SLUG", help="The damaged ones of this organisation.")
@click.option(
    "--day",
    metavar="DAY",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The damaged ones of this UTC day.",
)
@click.option(
    "--from",
    "sources",
    metavar="SOURCE",
    multiple=True,
    help="Folder of a backup, or s3://bucket/prefix. Repeat it to try several in order.",
)
@wait_option
async def audit_restore_segment(
    context: CommandContext,
    ids: tuple[str, ...],
    slug: str | None,
    day: datetime | None,
    sources: tuple[str, ...],
    *,
    is_all: bool,
    wait_s: float,
) -> CommandResult:
    """Put back the files of segments that are damaged or missing, from a copy.

    Each chosen segment is read first, and left as it is if it matches the catalog. A copy that does
    not match is not used. The service may be running. Each restored segment is an audit row of its
    organisation. With segments on S3, this machine's copies are tried before SOURCE.

    Exit code 1 means that segments are still damaged: no source has a whole copy of them.
    """
    from service.audit.backup.segment_restore import SegmentRestore, choose_segments, open_sources

    if not (ids or is_all or slug or day):
        raise click.UsageError("name segments, or give --all, --org or --day")
    if ids and is_all:
        raise click.UsageError("name segments or give --all, not both")
    services = context.services
    async with services.store.read() as session:
        org = None if slug is None else await get_org(session, slug)
    chosen = await choose_segments(
        services, None if org is None else org.id, None if day is None else day.date(), ids
    )
    restore = SegmentRestore(
        services, open_sources(services.settings, sources), context.audit_context
    )
    total, done = sum(segment.size for segment in chosen), 0
    outcomes: list[Outcome] = []
    with byte_progress("Restoring") as show:
        for segment in chosen:
            outcomes.append(await when_lease_is_free(partial(restore.restore, segment), wait_s))
            done += segment.size
            show(done, total)
    return _answer(outcomes, await context.slugs())


def _answer(outcomes: Sequence["Outcome"], slugs: dict[str, str]) -> CommandResult:
    from service.audit.backup.segment_restore import Result

    count = {result: sum(each.result is result for each in outcomes) for result in Result}
    entries = [_entry(each, slugs) for each in outcomes if each.result is not Result.WHOLE]
    lines = [line for entry in entries for line in _lines(entry)]
    lost = count[Result.LOST]
    rows = sum(each.segment.rows for each in outcomes if each.result is Result.LOST)
    lines.append(f"Restored {count[Result.RESTORED]} segments; {count[Result.WHOLE]} were whole.")
    if lost:
        lines.append(
            f"NOT RESTORED: {lost} segments with {rows} rows. Give --from with another backup or"
            " bucket. Until then requests that need these rows get a 503; all others are answered."
        )
    data = {"segments": entries, **{result.value: number for result, number in count.items()}}
    return CommandResult(data, lines, code=ExitCode.FAILED if lost else ExitCode.DONE)


def _entry(outcome: "Outcome", slugs: dict[str, str]) -> dict[str, Any]:
    segment = outcome.segment
    return {
        "result": outcome.result.value,
        "org": slugs.get(segment.tenant_id, segment.tenant_id),
        "day": segment.day.isoformat(),
        "segment": segment.segment_id,
        "rows": segment.rows,
        "damage": outcome.damage,
        "source": outcome.source or None,
        "not_used": list(outcome.reasons),
    }


def _lines(entry: dict[str, Any]) -> list[str]:
    source = f" from {entry['source']}" if entry["source"] else ""
    return [
        f"{entry['result']}: {entry['org']} {entry['day']} {entry['segment']}"
        f" ({entry['rows']} rows)"
        f"{source}: {entry['damage']}",
        *(f"  not used: {reason}" for reason in entry["not_used"]),
    ]


@data_dir_command(audit, "give-up", changes=True)
@click.argument("ids", metavar="SEGMENT...", nargs=-1, required=True)
@yes_option
@wait_option
async def audit_give_up(
    context: CommandContext, ids: tuple[str, ...], *, is_sure: bool, wait_s: float
) -> CommandResult:
    """Give up segments whose files are damaged or missing: their rows are LOST.

    Try `audit restore-segment` first, with each backup and bucket that there is. Pages and exports
    over these days work again afterwards, and say how many rows are missing. Each loss is an audit
    row of its organisation. The damaged file is deleted later; a file that is whole is refused.
    """
    from service.audit.backup.segment_restore import choose_segments, find_damage, give_up

    services = context.services
    slugs = await context.slugs()
    chosen = await choose_segments(services, None, None, ids)
    lost = [
        {
            "org": slugs[segment.tenant_id],
            "day": segment.day.isoformat(),
            "segment": segment.segment_id,
            "rows": segment.rows,
            "first_seq": segment.min_seq,
            "last_seq": segment.max_seq,
            "damage": str((await find_damage(services, segment)).kind),
        }
        for segment in chosen
    ]
    lines = [
        f"{each['org']} {each['day']} {each['segment']} ({each['rows']} rows, seq"
        f" {each['first_seq']} to {each['last_seq']}): {each['damage']}"
        for each in lost
    ]
    rows = sum(segment.rows for segment in chosen)
    confirm(f"Give up {rows} audit rows permanently?", is_sure=is_sure, shown=lines)
    for segment in chosen:
        await when_lease_is_free(partial(give_up, services, segment, context.audit_context), wait_s)
    return CommandResult(
        {"lost": lost},
        [*(f"lost: {line}" for line in lines), f"Gave up {len(lost)} segments with {rows} rows."],
    )
