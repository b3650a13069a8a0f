"""`countersign lake`: the audit log as a table that other query engines read."""

from functools import partial
from typing import Any, Final

import click

from analytics.model.instants import format_ms
from analytics.open_table.table_format import FormatName
from service.audit.open_table.places import ALL_TENANTS, TableKey
from service.audit.open_table.registry import TableStatus, list_tables, table_statuses
from service.cli.commands import CommandContext, data_dir_command
from service.cli.lease_wait import wait_option, when_lease_is_free
from service.cli.output import CommandResult, Table
from service.cli.root import root

_FORMATS: Final = click.Choice([name.value for name in FormatName])
_EXPIRED_COLUMNS: Final = {
    "format": "format",
    "org": "org",
    "snapshots": "snapshots",
    "metadata files": "metadata_files",
}
_COUNTED: Final = ("files", "rows", "complete_through_seq")
_PUBLISHED: Final = ("location", "snapshot", "is_new_snapshot", "added", "removed", *_COUNTED)
_EXPIRED: Final = ("snapshots", "metadata_files")
_STORED: Final = ("location", "version", "snapshot", "snapshots", *_COUNTED)
"""What is said of a table that was published, expired, and is stored."""

_NONE: Final = "No table is published: `countersign lake publish`."


@root.group("lake")
def lake() -> None:
    """The audit log as an Iceberg or Delta table for other query engines."""


@data_dir_command(lake, "publish", changes=True)
@click.option(
    "--format",
    "formats",
    type=_FORMATS,
    multiple=True,
    help="Publish this format; can be repeated. Default: COUNTERSIGN_LAKE_FORMATS, or iceberg.",
)
@click.option(
    "--per-tenant",
    "is_per_tenant",
    is_flag=True,
    default=None,
    help="One table for each organisation, instead of one for the operator with all of them.",
)
@wait_option
async def lake_publish(
    context: CommandContext, formats: tuple[str, ...], is_per_tenant: bool | None, wait_s: float
) -> CommandResult:
    """Bring the tables up to date, and create those that there are not yet.

    A table has all rows that are sealed into segments. Tables that were published before are
    brought up to date, too, with any options. The service does this automatically for them
    and for COUNTERSIGN_LAKE_FORMATS.
    """
    settings = context.services.settings
    wanted = formats or settings.lake_formats or (FormatName.ICEBERG.value,)
    publish = partial(
        context.services.publisher.publish,
        wanted,
        is_per_tenant=settings.lake_per_tenant if is_per_tenant is None else is_per_tenant,
    )
    published = await when_lease_is_free(publish, wait_s)
    slugs = await context.slugs()
    rows = [
        _key_data(table.key, slugs) | {name: getattr(table, name) for name in _PUBLISHED}
        for table in published
    ]
    columns = {name: name for name in ("format", "org", "added", "removed", "files", "rows")}
    columns["complete through"] = "complete_through_seq"
    return CommandResult({"tables": rows}, table=Table.of("Published", rows, columns))


@data_dir_command(lake, "status")
async def lake_status(context: CommandContext) -> CommandResult:
    """Show where the tables are, and how far they are behind."""
    services = context.services
    async with services.store.read() as session:
        statuses = await table_statuses(session, services.clock())
    slugs = await context.slugs()
    rows = [_status_data(status, slugs) for status in statuses]
    columns = {
        "format": "format",
        "org": "org",
        "published": "published_at",
        "files": "files",
        "rows": "rows",
        "complete through": "complete_through_seq",
        "rows behind": "lag_rows",
        "seconds behind": "lag_seconds",
        "snapshots": "snapshots",
        "location": "location",
    }
    return CommandResult(
        {"tables": rows},
        [] if rows else [_NONE],
        Table.of("Tables", rows, columns, ["published"]) if rows else None,
    )


@data_dir_command(lake, "expire", changes=True)
@wait_option
async def lake_expire(context: CommandContext, wait_s: float) -> CommandResult:
    """Remove snapshots that were superseded COUNTERSIGN_LAKE_SNAPSHOT_HOURS ago or earlier.

    Files that only they named are unlinked by the service later. It does this automatically, once
    an hour.
    """
    expired = await when_lease_is_free(context.services.publisher.expire, wait_s)
    slugs = await context.slugs()
    rows = [
        _key_data(table.key, slugs) | {name: getattr(table, name) for name in _EXPIRED}
        for table in expired
    ]
    return CommandResult(
        {"tables": rows},
        [] if rows else [_NONE],
        Table.of("Expired", rows, _EXPIRED_COLUMNS) if rows else None,
    )


@data_dir_command(lake, "drop", changes=True)
@click.option(
    "--format", "formats", type=_FORMATS, multiple=True, help="Only this format; default: all."
)
@click.option(
    "--per-tenant",
    "is_per_tenant",
    is_flag=True,
    help="The organisations' tables, not the operator's.",
)
@wait_option
async def lake_drop(
    context: CommandContext, formats: tuple[str, ...], is_per_tenant: bool, wait_s: float
) -> CommandResult:
    """Stop publishing, and remove the tables' metadata. No audit row is removed.

    Take the format out of COUNTERSIGN_LAKE_FORMATS first, or the service creates the table again.
    """
    services = context.services
    async with services.store.read() as session:
        tables = await list_tables(session)
    keys = [
        key
        for key in tables
        if (not formats or key.format.value in formats)
        and (key.tenant_id != ALL_TENANTS) == is_per_tenant
    ]
    dropped = await when_lease_is_free(partial(services.publisher.drop, keys), wait_s)
    slugs = await context.slugs()
    rows = [_key_data(key, slugs) for key in dropped]
    return CommandResult({"tables": rows}, [f"Dropped {len(rows)} tables."])


def _key_data(key: TableKey, slugs: dict[str, str]) -> dict[str, Any]:
    """`org` is null for the operator's table."""
    is_everyone = key.tenant_id == ALL_TENANTS
    return {
        "format": key.format.value,
        "org": None if is_everyone else slugs.get(key.tenant_id, key.tenant_id),
    }


def _status_data(status: TableStatus, slugs: dict[str, str]) -> dict[str, Any]:
    stored = {name: getattr(status.line, name) for name in _STORED}
    return _key_data(status.key, slugs) | {
        **stored,
        "published_at": format_ms(status.line.published_at),
        "lag_rows": status.lag_rows,
        "lag_seconds": round(status.lag_s, 3),
    }
