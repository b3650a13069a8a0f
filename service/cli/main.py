"""The `countersign` command: what the console script and `python -m service.cli.main` run.

The processes that the server spawns import this module first: it imports nothing else.
"""

import gc
import signal
import sys
from typing import Any, Final

_INTERRUPTED: Final = 130
"""ExitCode.INTERRUPTED, before that can be imported."""


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the next one would be a failure
    sys.exit(0)


def main(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as click's commands take them
    """Run the command line. Ctrl-C ends it quietly from here on, while it loads as well."""
    if sys.argv[1:2] == ["serve"]:  # to stop a service is no failure, however early
        signal.signal(signal.SIGTERM, _end)
        gc.disable()  # what a start makes stays: to look for garbage in it takes an eighth of it
        # structlog would load it for logs in colours: 50 ms and 5 MB.
        sys.modules["rich"] = None  # type: ignore[assignment] # Python's way to block an import
    try:
        from service.cli.root import root
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    return root(*arguments, **named)


if __name__ == "__main__":
    main()
