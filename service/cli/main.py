"""The `countersign` command: what the console script and `python -m service.cli.main` run.

The processes that the server spawns import this module first: it imports no other command.
"""

from service.cli.root import root as main

__all__ = ["main"]

if __name__ == "__main__":
    main()
