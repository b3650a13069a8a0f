"""What the terminal can show."""

import os
import shutil
import sys


def is_terminal() -> bool:
    """True if standard output is a terminal, so that a person reads it."""
    return sys.stdout.isatty()


def terminal_width() -> int | None:
    """The columns of the terminal; None if standard output is not one."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def has_colour() -> bool:
    """True if output may be coloured: on a terminal, unless NO_COLOR is set (no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
