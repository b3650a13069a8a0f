"""`countersign evidence sign`, `monitor`, `resume`, `key` and `witness`: the operator's."""

from pathlib import Path
from typing import Any, Final

import click

from service.cli.asking import confirm, yes_option
from service.cli.commands import CommandContext, data_dir_command
from service.cli.evidence import evidence, read_checkpoint
from service.cli.lease_wait import wait_option, when_lease_is_free
from service.cli.output import CommandResult, Table
from service.core.exit_codes import ExitCode
from service.store.organisations import get_org, list_orgs

_held_option = click.option(
    "--checkpoint",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A checkpoint that was kept elsewhere.",
)


_COMPARED: Final = ("log", "size", "rows", "checkpoints", "differences")
"""What is printed of a comparison."""


@evidence.group("key")
def key() -> None:
    """The key pairs that sign checkpoints, receipts and attestations."""


@evidence.group("witness")
def witness() -> None:
    """Witnesses: servers of others that cosign checkpoints."""


@data_dir_command(evidence, "sign", changes=True)
@wait_option
async def evidence_sign(context: CommandContext, wait_s: float) -> CommandResult:
    """Take all new rows into the trees and sign checkpoints now.

    The service does this every minute. After an upgrade it may take a while for rows that were
    there before: about 200,000 of them a second.
    """
    rows = await when_lease_is_free(context.services.checkpointer.take_in, wait_s)
    return CommandResult({"rows": rows}, [f"Signed {rows} new rows."])


@data_dir_command(evidence, "monitor", changes=True)
@click.option("--org", "slug", metavar="SLUG", help="Only this organisation; default: all.")
@_held_option
async def evidence_monitor(
    context: CommandContext, slug: str | None, files: tuple[Path, ...]
) -> CommandResult:
    """Compare all rows with the trees, and these with all checkpoints.

    The service does this as often as it verifies stored files, and may be running. Give the
    newest checkpoint that you keep elsewhere: what the service holds itself could have been
    replaced as a whole. Differences are listed, and recorded in the log; exit code 1.
    """
    services, held = context.services, [read_checkpoint(file)[0] for file in files]
    async with services.store.read() as session:
        orgs = [await get_org(session, slug)] if slug else await list_orgs(session)
    lines: list[str] = []
    found: list[dict[str, Any]] = []
    foreign = len(held)
    for org in orgs:
        compared = await services.monitor.compare(org.id, held)
        await services.monitor.record(compared, context.audit_context)
        foreign -= compared.held
        found.append({"org": org.slug, **{name: getattr(compared, name) for name in _COMPARED}})
        lines += [f"difference: {org.slug}: {text}" for text in compared.differences]
    if foreign:
        lines.append(f"difference: {foreign} of the checkpoints given are of none of these logs")
    count = sum(len(each["differences"]) for each in found) + foreign
    rows, checkpoints = (sum(each[name] for each in found) for name in ("rows", "checkpoints"))
    lines.append(
        f"Compared {rows} rows with {checkpoints} checkpoints: {count or 'no'} differences."
    )
    return CommandResult(
        {"organisations": found}, lines, code=ExitCode.FAILED if count else ExitCode.DONE
    )


@data_dir_command(evidence, "resume", changes=True)
@click.option("--org", "slug", metavar="SLUG", help="Only this organisation; default: all.")
@_held_option
@click.option(
    "--accept-rollback",
    "is_rollback_accepted",
    is_flag=True,
    help="Accept that rows signed after the backup are lost; the logs go on under another name.",
)
@yes_option
async def evidence_resume(
    context: CommandContext,
    slug: str | None,
    files: tuple[Path, ...],
    *,
    is_rollback_accepted: bool,
    is_sure: bool,
) -> CommandResult:
    """Sign checkpoints again after a restore.

    A backup may be older than checkpoints that others hold; signing on would give two histories.
    Give the newest checkpoint of each organisation that was kept elsewhere: if the restored log
    has signed it, nothing is lost. Each log gets a row that says what was decided.
    """
    from service.audit.evidence.continuity import resume

    if is_rollback_accepted:
        confirm(
            "Accept that signed rows may be lost, and go on under another name?", is_sure=is_sure
        )
    async with context.services.store.read() as session:
        org = await get_org(session, slug) if slug else None
    resumed = await resume(
        context.services.store,
        context.audit_context,
        map(read_checkpoint, files),
        is_rollback_accepted=is_rollback_accepted,
        tenant_id=None if org is None else org.id,
    )
    return CommandResult(
        {"logs": [{"org": each.slug, "log": each.name, "size": each.size} for each in resumed]},
        [f"{each.slug}: signed again from {each.size} rows on as {each.name}." for each in resumed]
        or ["No log is suspended."],
    )


@data_dir_command(key, "list")
async def key_list(context: CommandContext) -> CommandResult:
    """List the keys that sign, or did, the newest first."""
    from analytics.model.instants import format_ms
    from service.audit.evidence.keys import list_keys

    async with context.services.store.read() as session:
        keys = [
            {
                "id": each.id,
                "public_key": each.public,
                "created_at": format_ms(each.created_at),
                "retired_at": None if each.retired_at is None else format_ms(each.retired_at),
            }
            for each in await list_keys(session)
        ]
    columns = ("id", "public_key", "created_at", "retired_at")
    return CommandResult({"keys": keys}, table=Table.of("Signing keys", keys, columns))


@data_dir_command(key, "rotate", changes=True)
@yes_option
async def key_rotate(context: CommandContext, *, is_sure: bool) -> CommandResult:
    """Begin a new signing key; it signs from now on.

    The next checkpoint of each log is signed by the former key, too. Give the new key, which
    `evidence policy` prints, to those who verify. Each log gets a row.
    """
    from service.audit.evidence.continuity import rotate_key

    confirm("Begin a new signing key?", is_sure=is_sure)
    services = context.services
    public = await rotate_key(services.store, services.settings.secret_key, context.audit_context)
    return CommandResult({"public_key": public}, [f"The signing key is now {public}."])


@data_dir_command(witness, "list")
async def witness_list(context: CommandContext) -> CommandResult:
    """List the witnesses that are asked to cosign checkpoints."""
    from service.audit.evidence.witnesses import list_witnesses

    async with context.services.store.read() as session:
        witnesses = [
            {"name": each.name, "key": each.vkey, "url": each.url}
            for each in await list_witnesses(session)
        ]
    lines = [] if witnesses else ["No witness is asked."]
    table = Table.of("Witnesses", witnesses, ("name", "url", "key")) if witnesses else None
    return CommandResult({"witnesses": witnesses}, lines, table)


@data_dir_command(witness, "add", changes=True)
@click.argument("vkey")
@click.argument("url")
async def witness_add(context: CommandContext, vkey: str, url: str) -> CommandResult:
    """Ask the witness with the key VKEY, whose submission prefix is URL, to cosign checkpoints.

    The witness must know the keys of the logs, see `evidence policy`: it refuses others.
    """
    from service.audit.evidence.witnesses import add_witness

    added = await add_witness(context.services.store, context.audit_context, vkey, url)
    data = {"name": added.name, "key": added.vkey, "url": added.url}
    return CommandResult(data, [f"{added.name} is asked to cosign from now on."])


@data_dir_command(witness, "remove", changes=True)
@click.argument("name")
async def witness_remove(context: CommandContext, name: str) -> CommandResult:
    """Ask a witness no longer."""
    from service.audit.evidence.witnesses import remove_witness

    await remove_witness(context.services.store, context.audit_context, name)
    return CommandResult({"name": name}, [f"{name} is asked no longer."])
