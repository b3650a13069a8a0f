"""`countersign` on a machine whose clock is off by NODE_CLOCK_OFF_S seconds."""

import os
from datetime import datetime, timedelta

import service.core.clock

_OFF = timedelta(seconds=float(os.environ["NODE_CLOCK_OFF_S"]))
_true_time = service.clock.utc_now


def _skewed() -> datetime:
    return _true_time() + _OFF


# Before anything else is imported, because modules take the function by its name.
service.clock.utc_now = _skewed

if __name__ == "__main__":
    from service.cli.main import main

    main(prog_name="countersign")
