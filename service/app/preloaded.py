"""What the process that all serving ones are forked from loads; imported by nothing else.

It opens nothing and starts no thread: a fork would have the one twice, and the other not at all.
"""

import atexit
import gc
import sys

gc.disable()
sys.modules["rich"] = None  # type: ignore[assignment] # as `service.cli.main` does for `serve`
import service.app.server  # noqa: E402, F401 - without the garbage collector

gc.freeze()  # the forks share it as long as none of them looks through it
gc.enable()
atexit.register(gc.unfreeze)  # else libraries report that their objects were never released
