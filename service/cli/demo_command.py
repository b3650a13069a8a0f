"""`countersign demo`: an organisation with sample data."""

import click

from service.cli.commands import CommandPlace, current_run, declare
from service.cli.root import root


@declare(root, "demo", place=CommandPlace.LOCAL, changes=True)
@click.option("--serve/--no-serve", "is_serving", default=True, help="Start the server afterwards.")
def demo(*, is_serving: bool) -> None:
    """Create the demo organisation, unless it exists, and serve it.

    It has 90 days of audit log, bindings that were added and revoked, and an incident to find. It
    is stored in the configured data dir; nothing else there is changed.
    """
    # Imported here: completion needs neither this nor its dependencies.
    from service.cli.demo.run import run_demo

    run_demo(current_run().output, is_serving=is_serving)
