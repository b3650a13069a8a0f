"""`countersign audit check`, `stats`, `seal`, `compact`, `prune` and others: what is stored."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from analytics.model.instants import format_ms
from analytics.storage.segment_metadata import Segment
from service.audit.pruner import Pruned
from service.cli.asking import confirm, yes_option
from service.cli.audit import audit
from service.cli.blocklist import feed_lines
from service.cli.commands import CommandContext, data_dir_command
from service.cli.lease_wait import wait_option, when_lease_is_free
from service.cli.output import CommandResult, Table
from service.cli.progress import row_progress
from service.core.exit_codes import ExitCode
from service.packages.policy.repository import load_feed_states
from service.store.organisations import get_org

if TYPE_CHECKING:
    from service.audit.segment_locks import LockProbe

_TRIED: Final = {
    "delete": "delete the version of a locked object",
    "shorten": "shorten the retention of a locked object",
    "bypass": "delete the version with the right to bypass governance",
}


@data_dir_command(audit, "check")
@click.option("--org", "slug", metavar="SLUG", help="Only this organisation; default: all.")
@click.option(
    "--quick",
    "is_quick",
    is_flag=True,
    help="Compare names and sizes of segments only: with segments on S3, without fetching them.",
)
async def audit_check(
    context: CommandContext, slug: str | None, *, is_quick: bool
) -> CommandResult:
    """Read everything stored and compare it with the catalog.

    Exit code 1 means that there are findings. Notes are not findings: they are about files that
    the service removes itself. The service may be running.
    """
    from service.audit.integrity_check import Check

    services = context.services
    async with services.store.read() as session:
        org = None if slug is None else await get_org(session, slug)
    with row_progress("Checking") as show:
        check = Check(services.store, services.lake, org, show, is_quick=is_quick)
        report = await check.run()
    findings = [report.line(finding) for finding in report.findings]
    notes = [report.line(note) for note in report.notes]
    noted = f", {len(notes)} notes" if notes else ""
    return CommandResult(
        {
            "segments": report.segments,
            "batches": report.batches,
            "rows": report.rows,
            "findings": findings,
            "notes": notes,
        },
        [
            *(_sentence("finding", line) for line in findings),
            *(_sentence("note", line) for line in notes),
            f"Checked {report.rows} rows in {report.segments} segments and {report.batches} journal"
            f" batches: {len(findings) or 'no'} findings{noted}.",
        ],
        code=ExitCode.FAILED if findings else ExitCode.DONE,
    )


def _sentence(what: str, line: dict[str, str | None]) -> str:
    place = " ".join(line[name] or "–" for name in ("org", "day", "segment"))
    remedy = line["remedy"] or ""
    # What readers say of damaged files names the remedy, too.
    said = "" if remedy in (line["detail"] or "") else f": {remedy}"
    return f"{what}: {line['kind']}: {place}: {line['detail']}{said}"


@data_dir_command(audit, "reindex", changes=True)
@click.option("--org", "slug", metavar="SLUG", help="Only this organisation; default: all.")
async def audit_reindex(context: CommandContext, slug: str | None) -> CommandResult:
    """Rebuild the index of every segment from its rows.

    The service does this automatically for a missing or damaged index, and may be running.
    """
    services = context.services
    async with services.store.read() as session:
        org = None if slug is None else await get_org(session, slug)
    with row_progress("Indexing") as show:
        built, unreadable = await services.indexer.rebuild_all(org.id if org else None, show)
    lines = [f"Built {built} indexes."]
    lines += [f"Not built, its rows cannot be read: {segment_id}" for segment_id in unreadable]
    data = {"indexes": built, "unreadable": unreadable}
    return CommandResult(data, lines, code=ExitCode.FAILED if unreadable else ExitCode.DONE)


@data_dir_command(audit, "stats")
async def audit_stats(context: CommandContext) -> CommandResult:
    """Show what is stored for each organisation and in total, and how old the blocklist is.

    Also which segments were damaged when they were last verified, and how many were verified; why
    pruning is refused, if it is; and what the last probe of object locks found.
    """
    from service.audit.segment_locks import load_probe
    from service.audit.stats import list_stats, verification_data
    from service.packages.policy.blocklist_api import FeedEntry

    services = context.services
    verified_since = services.clock() - timedelta(seconds=services.settings.scrub_interval_s)
    age = services.clock(), services.settings.blocklist_stale_s
    async with services.store.read() as session:
        stats = await list_stats(session, services.lake)
        feeds = await load_feed_states(session)
        verification = await verification_data(session, verified_since)
        probed = await load_probe(session)
    refusal = await services.clock_guard.refusal()
    refused = None if refusal is None else {"reason": refusal.reason, "text": refusal.text}
    blocklist = [msgspec.to_builtins(FeedEntry.of(state, *age)) for state in feeds]
    total = stats["total"]
    cells = [[line[name] for name in ("org", *total)] for line in stats["organisations"]]
    last = ["total", *total.values()]
    return CommandResult(
        stats
        | {
            "verification": verification,
            "prune_refused": refused,
            "blocklist": blocklist,
            "object_lock": None if probed is None else _probe_data(probed),
        },
        [
            *stats["faults"],
            *_verification_lines(verification),
            *([] if refusal is None else [f"Pruning is refused: {refusal.text}."]),
            *feed_lines(blocklist),
            *([] if probed is None else [_probe_line(probed)]),
        ],
        Table("Audit log", ["org", *total], cells, total=last),
    )


def _verification_lines(verification: dict[str, Any]) -> list[str]:
    """How far the verification of segments is, and a line for each that is damaged or lost."""
    damaged = verification["damaged"]
    oldest_at = verification["oldest_at"]
    since = f", the one longest ago at {oldest_at}" if oldest_at else ""
    unread = verification["unread"]
    new = f" {unread} are new and were not read yet;" if unread else ""
    return [
        f"Verified {verification['verified']} of {verification['segments']} segments{since};{new}"
        f" {len(damaged) or 'none'} damaged.",
        *(
            f"damaged: {each['org']} {each['day']} {each['path']} ({each['rows']} rows):"
            f" {each['damage'].partition(':')[0]}"
            for each in damaged
        ),
        *(
            ["Run `countersign audit restore-segment` to put damaged segments back."]
            if damaged
            else ()
        ),
        *(
            f"LOST: {each['org']} {each['day']} {each['segment']}: {each['rows']} rows, given up at"
            f" {each['lost_at']}"
            for each in verification["lost"]
        ),
    ]


@data_dir_command(audit, "upload", changes=True)
async def audit_upload(context: CommandContext) -> CommandResult:
    """Upload the data dir's own segments to the bucket.

    For a data dir that had its segments in a folder before COUNTERSIGN_SEGMENTS_URL was set, which
    names the bucket. It can be repeated, and the service may be running with the same setting.
    Exit code 1 means that segments are missing or damaged.
    """
    from service.audit.upload import upload_segments

    services = context.services
    with row_progress("Uploading") as show:
        uploaded, failed = await upload_segments(services.store, services.lake, show)
    return CommandResult(
        {"uploaded": uploaded, "failed": failed},
        [*(f"failed: {line}" for line in failed), f"Uploaded {uploaded} segments."],
        code=ExitCode.FAILED if failed else ExitCode.DONE,
    )


@data_dir_command(audit, "take-over", changes=True)
@yes_option
async def audit_take_over(context: CommandContext, *, is_sure: bool) -> CommandResult:
    """Make the prefix of COUNTERSIGN_SEGMENTS_URL this installation's.

    For an installation that replaces the one that the prefix belongs to, which must be stopped: it
    does not start again with this prefix, and removes nothing more from it. Segments that this
    installation's catalog does not name are removed from there after COUNTERSIGN_ORPHAN_GRACE_S.
    """
    from service.audit.installation import take_over
    from service.audit.upload import NO_BUCKET

    settings = context.services.settings
    if not settings.segments_url:
        raise NO_BUCKET
    question = f"Remove what this installation does not know from {settings.segments_url}?"
    confirm(question, is_sure=is_sure)
    installation = await take_over(settings, context.services.store)
    return CommandResult(
        {"prefix": settings.segments_url, "installation": installation},
        [f"{settings.segments_url} belongs to this installation now ({installation})."],
    )


@data_dir_command(audit, "seal", changes=True)
@wait_option
async def audit_seal(context: CommandContext, wait_s: float) -> CommandResult:
    """Move every journal row into segments now.

    The service does this automatically when it is due.
    """
    work = partial(context.services.sealer.seal_due, everything=True)
    segments = await when_lease_is_free(work, wait_s)
    return _made("Sealed", segments)


@data_dir_command(audit, "compact", changes=True)
@wait_option
async def audit_compact(context: CommandContext, wait_s: float) -> CommandResult:
    """Merge the segments of each past day into one now.

    The service does this automatically when a day has had no changes for a while.
    """
    work = partial(context.services.compactor.compact_due, everything=True)
    segments = await when_lease_is_free(work, wait_s)
    return _made("Merged", segments)


def _made(done: str, segments: Sequence[Segment]) -> CommandResult:
    rows = sum(segment.rows for segment in segments)
    return CommandResult(
        {"segments": [segment.segment_id for segment in segments], "rows": rows},
        [f"{done} {rows} rows into {len(segments)} segments."],
    )


@data_dir_command(audit, "prune", changes=True)
@click.option("--org", "slug", metavar="SLUG", help="Only this organisation.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be dropped.")
@click.option(
    "--accept-clock",
    "is_clock_accepted",
    is_flag=True,
    help="Confirm that the clock is right although a run is refused; leaves a row in each log.",
)
@wait_option
async def audit_prune(
    context: CommandContext,
    slug: str | None,
    *,
    is_dry: bool,
    is_clock_accepted: bool,
    wait_s: float,
) -> CommandResult:
    """Drop the days that are past retention now.

    The service does this automatically. A day is dropped 48 hours after all of it was past the
    longest retention that its organisation had in the 7 days before, and never under a legal hold.
    """
    pruner = context.services.pruner
    if is_dry:
        past = await pruner.forecast(slug=slug, is_clock_accepted=is_clock_accepted)
    else:
        prune = partial(
            pruner.prune, context.audit_context, slug=slug, is_clock_accepted=is_clock_accepted
        )
        past = await when_lease_is_free(prune, wait_s)
    return _answer(past, is_dry=is_dry)


def _answer(past: Sequence[Pruned], *, is_dry: bool) -> CommandResult:
    dropped = [org for org in past if not org.is_held]
    days, rows = sum(len(org.days) for org in dropped), sum(org.rows for org in dropped)
    cells = [
        [
            org.slug,
            len(org.days),
            org.days[0],
            org.days[-1],
            org.rows,
            "kept" if org.is_held else None,
        ]
        for org in past
    ]
    columns = ["org", "days", "from", "to", "rows", "under a legal hold"]
    entries = [
        {"org": org.slug, "held": org.is_held, "days": list(map(str, org.days)), "rows": org.rows}
        for org in past
    ]
    return CommandResult(
        {"dry_run": is_dry, "days": days, "rows": rows, "orgs": entries},
        [f"{'Would drop' if is_dry else 'Dropped'} {rows} rows of {days} days."],
        Table("Past retention", columns, cells) if past else None,
    )


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
        _probe_data(probed),
        [
            *(
                f"{'held' if is_held else 'BROKEN'}: {_TRIED[attempt]}:"
                f" {'the store refused' if is_held else 'this was possible'}"
                for attempt, is_held in probed.held.items()
            ),
            _probe_line(probed),
            "Its objects below _countersign/lock-probe/ are locked for a day; a later probe removes"
            " them.",
        ],
        code=ExitCode.FAILED if probed.broken else ExitCode.DONE,
    )


def _probe_data(probed: "LockProbe") -> dict[str, Any]:
    """What the last probe found, as JSON."""
    return {
        "mode": probed.mode,
        "is_held": not probed.broken,
        "attempts": probed.held,
        "probed_at": format_ms(probed.probed_at),
    }


def _probe_line(probed: "LockProbe") -> str:
    """What the last probe found, as a sentence."""
    found = f"BROKEN ({', '.join(probed.broken)})" if probed.broken else "held"
    return f"Object lock ({probed.mode}), probed at {format_ms(probed.probed_at)}: {found}."
