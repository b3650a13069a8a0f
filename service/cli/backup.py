"""`countersign backup` and `restore`."""

from pathlib import Path
from typing import Final

import click
import msgspec

from service.audit.backup.manifest import Manifest
from service.cli.commands import CommandContext, CommandPlace, data_dir_command, declare
from service.cli.output import CommandResult
from service.cli.progress import byte_progress
from service.cli.root import root
from service.core.exit_codes import ExitCode
from service.core.secrets import secret_files
from service.core.settings import Settings, load_settings

SHOWN_MAX: Final = 20
"""Missing segments listed in the text output."""


def _one_way(context: click.Context, _: click.Parameter, is_given: bool) -> bool:
    """Refuse the second of two options that exclude each other, before the data dir is opened."""
    if is_given and (context.params.get("is_linked") or context.params.get("is_by_version")):
        raise click.UsageError("give --link or --by-version")
    return is_given


@data_dir_command(root, "backup", changes=True)
@click.option(
    "--link",
    "is_linked",
    is_flag=True,
    callback=_one_way,
    help="Hard-link segments instead of copying: no extra space; DEST must be on the same disk.",
)
@click.option(
    "--by-version",
    "is_by_version",
    is_flag=True,
    callback=_one_way,
    help="Record the S3 versions of segments instead of copying them: for a bucket with"
    " versioning, which has to keep them.",
)
@click.option(
    "--with-secrets",
    "has_secrets",
    is_flag=True,
    help="Include the data dir's secrets: admin_token, secret_key, metrics_token.",
)
@click.argument("target", metavar="DEST", type=click.Path(path_type=Path))
async def backup(
    context: CommandContext,
    target: Path,
    *,
    is_linked: bool,
    is_by_version: bool,
    has_secrets: bool,
) -> CommandResult:
    """Take a backup as the new folder DEST, while the service runs.

    It holds every row that was acknowledged before it began, and each file in it has been compared
    with the catalog. DEST appears only when it is complete and safe on disk.

    Segments that are missing or damaged are listed and left out; the exit code is then 4.
    """
    from service.audit.backup.create import take_backup

    services = context.services
    with byte_progress("Backing up") as show:
        manifest = await take_backup(
            services,
            target,
            show,
            is_linked=is_linked,
            has_secrets=has_secrets,
            is_by_version=is_by_version,
        )
    left_out = [path.name for path in secret_files(services.settings.data_dir)]
    lines = [f"Backed up {_amount(manifest)} to {target}.", *_missing_lines(manifest)]
    if left_out and not has_secrets:
        lines.append(f"Not included: {', '.join(left_out)}. Save them, or use --with-secrets.")
    data = {"path": str(target), **_summary(manifest), "is_linked": is_linked}
    return CommandResult(data, lines, code=_code(manifest))


@declare(root, "restore", place=CommandPlace.DATA_DIR, changes=True)
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Rename an existing data dir and print its new name. A PostgreSQL database is restored"
    " although Countersign is connected to it.",
)
@click.option(
    "--take-over",
    "is_taken_over",
    is_flag=True,
    help="Restore to the bucket's prefix of another installation, which this one replaces.",
)
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Read and compare everything that the backup has or names, and restore nothing.",
)
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
def restore(source: Path, *, is_forced: bool, is_taken_over: bool, is_check: bool) -> CommandResult:
    """Restore the backup SRC to the data dir (COUNTERSIGN_DATA_DIR).

    The service must be stopped. Every file is first compared with the manifest; then the data dir
    is created in one step, or not changed at all. SRC is not changed.

    With COUNTERSIGN_SEGMENTS_URL the segments are uploaded to an empty prefix. --take-over is for
    that of the installation that was lost.

    Segments that were missing when the backup was taken are listed; the exit code is then 4.
    """
    # Imported here: completion needs neither this nor its dependencies.
    from service.audit.backup.restore import restore_backup

    settings = load_settings()
    if is_check:
        return _check(settings, source)
    with byte_progress("Restoring") as show:
        restored = restore_backup(
            settings, source, show, is_forced=is_forced, is_taken_over=is_taken_over
        )
    manifest, moved_to = restored.manifest, restored.moved_to
    lines = [
        f"Restored {_amount(manifest)}, as of {manifest.taken_at}, to {settings.data_dir}.",
        *_missing_lines(manifest),
    ]
    if moved_to is not None:
        lines.append(f"The previous data dir is now {moved_to}.")
    lines.append("No checkpoints are signed yet: see `countersign evidence resume --help`.")
    if not secret_files(settings.data_dir):
        lines.append("The backup has no secrets: restore them, or new ones will be created.")
    data = {
        "data_dir": str(settings.data_dir),
        **_summary(manifest),
        "moved_to": None if moved_to is None else str(moved_to),
    }
    return CommandResult(data, lines, code=_code(manifest))


def _check(settings: Settings, source: Path) -> CommandResult:
    from service.audit.backup.restore import check_backup

    with byte_progress("Checking") as show:
        manifest, findings = check_backup(settings, source, show)
    lines = [
        *(f"finding: {line}" for line in findings),
        f"Checked {_amount(manifest)}: {len(findings) or 'no'} findings.",
        *_missing_lines(manifest),
    ]
    data = {**_summary(manifest), "findings": findings}
    return CommandResult(data, lines, code=ExitCode.FAILED if findings else _code(manifest))


def _amount(manifest: Manifest) -> str:
    objects = len(manifest.object_versions)
    by_version = f", {objects} objects by version" if objects else ""
    return f"{manifest.rows} rows ({len(manifest.files)} files, {manifest.size} bytes{by_version})"


def _code(manifest: Manifest) -> ExitCode:
    return ExitCode.INCOMPLETE if manifest.missing_segments else ExitCode.DONE


def _missing_lines(manifest: Manifest) -> list[str]:
    """Text lines about segments that are not in the backup."""
    missing = manifest.missing_segments
    if not missing:
        return []
    rows = sum(segment.rows for segment in missing)
    shown = [f"  {lost.path}: {lost.kind}, {lost.rows} rows" for lost in missing[:SHOWN_MAX]]
    if len(missing) > SHOWN_MAX:
        shown.append(f"  and {len(missing) - SHOWN_MAX} more (--json lists all of them)")
    return [
        f"INCOMPLETE: {len(missing)} segments with {rows} rows were missing or damaged when the"
        " backup was taken. Restore them from an earlier backup.",
        *shown,
    ]


def _summary(manifest: Manifest) -> dict[str, object]:
    by_version = {"place": manifest.objects_place, "objects": len(manifest.object_versions)}
    return {
        **(by_version if manifest.objects_place else {}),
        "taken_at": manifest.taken_at,
        "schema": manifest.schema,
        "rows": manifest.rows,
        "files": len(manifest.files),
        "bytes": manifest.size,
        "missing": msgspec.to_builtins(manifest.missing_segments),
    }
