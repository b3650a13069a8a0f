"""Makes commands wait for the lease to change segments, and explains the loss of the lease."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import click

from service.store.lease import LeaseLost, LeaseTaken

WAIT_S: Final = 60.0
_RETRY_S: Final = 0.2

_Result = TypeVar("_Result")

wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="Wait up to so long while another process changes segments.",
)


async def when_lease_is_free(work: Callable[[], Awaitable[_Result]], wait_s: float) -> _Result:
    """The result of `work`, tried again for up to `wait_s` seconds while it raises LeaseTaken.

    A service holds the lease repeatedly for short times. Standard error says that the command
    waits. Raises LeaseTaken, also if the lease is lost midway.
    """
    give_up_at = time.monotonic() + wait_s
    is_said = False
    while True:
        try:
            with lost_lease_as_taken():
                return await work()
        except LeaseTaken as error:
            is_lost = isinstance(error.__cause__, LeaseLost)
            if is_lost or time.monotonic() >= give_up_at:
                raise
        if not is_said:
            click.echo(
                f"Another process is changing segments: waiting up to {wait_s:g} s.", err=True
            )
            is_said = True
        await asyncio.sleep(_RETRY_S)


@contextlib.contextmanager
def lost_lease_as_taken() -> Iterator[None]:
    """Raise LeaseTaken if the lease is lost midway: nothing is changed from then on either."""
    try:
        yield
    except LeaseLost as error:
        raise LeaseTaken from error
