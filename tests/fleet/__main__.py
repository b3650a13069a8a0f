"""`make fleet`: the demo organisation on three nodes, until Ctrl-C."""

import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.fleet.fleet import NODES, Fleet, running_fleet


def main() -> None:
    """Start the fleet, say where it is, and end it with what it stored."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    say(f"starting PostgreSQL, SeaweedFS and {NODES} nodes\n")
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="countersign-fleet-") as folder,
        running_fleet(Path(folder)) as fleet,
    ):
        say(fleet.run("demo", "--no-serve") + description(fleet))
        signal.pause()


def say(text: str) -> None:
    """Write it at once, also to a pipe."""
    sys.stdout.write(text)
    sys.stdout.flush()


def description(fleet: Fleet) -> str:
    """Where the parts are, for a person."""
    nodes = "\n".join(
        f"  node {number}       http://127.0.0.1:{node.port}  data dir {node.home.data_dir}"
        for number, node in enumerate(fleet.nodes)
    )
    return f"""
The fleet is up; Ctrl-C ends it and removes all that it stored.
  balancer     {fleet.url}
{nodes}
  PostgreSQL   {fleet.nodes[0].home.settings["database_url"]}
  segments     {fleet.nodes[0].home.settings["segments_url"]} at {fleet.objects.endpoint}
"""


if __name__ == "__main__":
    main()
