"""`countersign admin-token`: exchange the admin token while the service runs."""

from service.access.admin_tokens import retire_admin_token, rotate_admin_token
from service.cli.commands import CommandContext, data_dir_command
from service.cli.output import CommandResult
from service.cli.root import root


@root.group("admin-token")
def admin_token() -> None:
    """The admin token: rotate it without a restart."""


@data_dir_command(admin_token, "rotate", changes=True)
async def admin_token_rotate(context: CommandContext) -> CommandResult:
    """Create a new admin token and print it; the current one works until it is retired.

    Running services of this data dir accept the new one from their next request on. Each
    organisation gets an audit row.
    """
    services = context.services
    token = await rotate_admin_token(services.store, services.settings, context.audit_context)
    lines = [
        "The new admin token:",
        token,
        "The previous one still works: give the new one to its users, then run"
        " `countersign admin-token retire`.",
    ]
    return CommandResult({"token": token}, lines)


@data_dir_command(admin_token, "retire", changes=True)
async def admin_token_retire(context: CommandContext) -> CommandResult:
    """Refuse the previous admin token from now on.

    Each organisation gets an audit row.
    """
    services = context.services
    await retire_admin_token(services.store, services.settings, context.audit_context)
    return CommandResult({"retired": True}, ["Only the new admin token is accepted."])
