"""Asks before a change: on a terminal, unless --yes is given."""

import select
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from service.cli.commands import current_run
from service.cli.output import printable
from service.core.errors import Refusal

_PATIENCE_S: Final = 0.2
_YES: Final = frozenset({"y", "yes"})

yes_option = click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")


class NotConfirmed(Refusal):
    """The change was not confirmed, so it was not made."""

    status = 409
    text = "not confirmed: nothing was changed"


NO_TERMINAL: Final = NotConfirmed.of(
    "nothing was changed: there is no terminal to ask on. {value} Add --yes to confirm"
)


def confirm(question: str, *, is_sure: bool, shown: Iterable[str] = ()) -> None:
    """Ask `question` on the terminal, below the lines `shown` and what the command works on.

    Without a question if `is_sure`, which is --yes. Raises NotConfirmed if the answer is not yes,
    and without a terminal.
    """
    if is_sure:
        return
    if not has_terminal():
        raise NO_TERMINAL(value=question)
    current_run().show_target()
    for line in shown:
        click.echo(printable(line), err=True)
    with _interrupted_at_once():
        click.echo(f"{printable(question)} [y/N]: ", err=True, nl=False)
        answer = _typed_line()
    if answer.strip().lower() not in _YES:
        raise NotConfirmed


def has_terminal() -> bool:
    """True if a person can read a question and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _typed_line() -> str:
    """The next line of the terminal.

    A signal that arrives just before a read begins does not end it: no read waits for long.
    """
    while not select.select([sys.stdin], [], [], _PATIENCE_S)[0]:
        pass
    return sys.stdin.readline()


@contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C: an event loop would wait for the answer first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
