"""`countersign audit query --follow`: the last rows, then each new one, in order of acceptance."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import click

from service.cli.answers import Output, one_line
from service.cli.audit_rows import row_line
from service.cli.backend import Backend
from service.cli.terminal import is_terminal
from service.core.errors import Refusal

POLL_S: Final = 2.0
FIRST_ROWS: Final = 10
_AT_ONCE: Final = 1_000
_RETRY_MAX_S: Final = 30.0


async def follow(
    backend: Backend, slug: str, parameters: Mapping[str, list[str]], output: Output
) -> NoReturn:
    """Print the last rows of the query, then new ones until the process is interrupted.

    A failure that may pass, such as a server that restarts, is noted on standard error.
    """
    limit = parameters.get("limit", [str(FIRST_ROWS)])
    filters = {name: values for name, values in parameters.items() if name != "limit"}
    # First the place to continue from: what is accepted meanwhile is on the page and follows too.
    last = (await backend.audit_accepted(slug, filters))["last"]
    page = await backend.audit_page(slug, filters | {"limit": limit})
    shown = {entry["id"] for entry in page["entries"]}
    for entry in reversed(page["entries"]):
        _print(entry, output)
    pause_s = POLL_S
    while True:
        try:
            asked = filters | {"after": [last], "limit": [str(_AT_ONCE)]}
            found = await backend.audit_accepted(slug, asked)
        except Refusal as refusal:
            if not refusal.is_temporary:
                raise
            pause_s = min(2 * pause_s, _RETRY_MAX_S)
            click.echo(f"countersign: {one_line(refusal)}; next try in {pause_s:g} s", err=True)
            await asyncio.sleep(pause_s)
            continue
        for entry in found["entries"]:
            if entry["id"] not in shown:
                _print(entry, output)
        last, pause_s = found["last"], POLL_S
        if len(found["entries"]) < _AT_ONCE:
            await asyncio.sleep(pause_s)


def _print(entry: dict[str, Any], output: Output) -> None:
    if output.as_json:
        click.echo(json.dumps(entry))
        return
    now = datetime.now(UTC) if is_terminal() and not output.is_exact else None
    click.echo(row_line(entry, now))
