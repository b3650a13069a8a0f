"""`countersign audit give-up`: go on without segments that are lost."""

from functools import partial

import click

from service.cli.answers import Answer
from service.cli.asking import confirm, yes_option
from service.cli.audit import audit
from service.cli.context import CommandContext, command
from service.cli.lease_wait import wait_option, when_lease_is_free
from service.store.organisations import list_orgs


@command(audit, "give-up", changes=True)
@click.argument("ids", metavar="SEGMENT...", nargs=-1, required=True)
@yes_option
@wait_option
async def audit_give_up(
    context: CommandContext, ids: tuple[str, ...], *, is_sure: bool, wait_s: float
) -> Answer:
    """Give up segments whose files are damaged or missing: their rows are LOST.

    Try `audit restore-segment` first, with each backup and bucket that there is. Pages and exports
    over these days work again afterwards, and say how many rows are missing. Each loss is an audit
    row of its organisation. The damaged file is deleted later; a file that is whole is refused.
    """
    from service.audit.backup.segment_restore import choose_segments, find_damage, give_up

    services = context.services
    async with services.store.read() as session:
        slugs = {org.id: org.slug for org in await list_orgs(session)}
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
    return Answer(
        {"lost": lost},
        [*(f"lost: {line}" for line in lines), f"Gave up {len(lost)} segments with {rows} rows."],
    )
