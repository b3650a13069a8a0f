"""The exit codes of `countersign`, and the one of each failure."""

import errno
import sys
from enum import IntEnum
from typing import Final, Self

from service.core.errors import Refusal

_STORAGE_IS_AWAY: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


class ExitCode(IntEnum):
    """How a command ended, and what that means to scripts."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """The code `value`, with its meaning as help and documentation have it."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    DONE = 0, "done"
    FAILED = 1, "refused or failed, or there are findings"
    USAGE = 2, "wrong usage"
    UNAVAILABLE = 3, "the server or the storage is away or busy: try again"
    INCOMPLETE = 4, "done but incomplete"
    CHANGES = 5, "there are changes to make (`--plan`)"
    STALLED = 70, "`serve` ended itself because its event loop stood still"
    INTERRUPTED = 130, "interrupted (Ctrl-C)"


class WrongUsage(Refusal):
    """The command was given in a way in which it does not work."""

    status = 400


def is_of_loaded(error: Exception, module: str, name: str) -> bool:
    """Whether `error` is of the class `name` of `module`, which is not imported for the question.

    If it is not loaded, nothing has raised it; and the client alone does not have it.
    """
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(error, getattr(loaded, name))


def exit_code(error: Exception) -> ExitCode:
    """The exit code for `error`: it tells whether trying again may help."""
    if isinstance(error, WrongUsage):
        return ExitCode.USAGE
    if isinstance(error, Refusal):
        return ExitCode.UNAVAILABLE if error.is_temporary else ExitCode.FAILED
    if isinstance(error, OSError):
        is_away = error.errno in _STORAGE_IS_AWAY
        return ExitCode.UNAVAILABLE if is_away else ExitCode.FAILED
    is_away = is_of_loaded(error, "analytics.model.errors", "StoreFault")
    return ExitCode.UNAVAILABLE if is_away else ExitCode.FAILED
