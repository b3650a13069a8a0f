"""The clock of the goldens, in every process of them: steps alone move it."""

import base64
import os
import random
import secrets
from datetime import UTC, datetime, timedelta
from typing import Final

from service.core import clock

START: Final = datetime(2026, 3, 4, 12, 0, 0, 123456, tzinfo=UTC)
MINUTES: Final = "GOLDENS_MINUTES"
"""The variable that tells a process how many minutes after START it is."""


class Clock:
    """The instant that it is, which `advance` alone changes."""

    def __init__(self, minutes: int) -> None:
        self.now = START + timedelta(minutes=minutes)

    def __call__(self) -> datetime:
        """That instant."""
        return self.now

    def advance(self) -> None:
        """Move on by a minute."""
        self.now += timedelta(minutes=1)


CLOCK: Final = Clock(int(os.environ.get(MINUTES, "0")))


def _utc_now() -> datetime:
    from tests.goldens.fixed import CLOCK  # by name: the code runs as one of service's functions

    return CLOCK.now


def make_repeatable(seed: int) -> None:
    """Let this process's service see CLOCK, and draw the same ids and secrets in each run.

    Lists may be sorted by ids. Each kind has a sequence of its own, because a change often draws
    more of one. Commands take no clock, and modules hold the function by name: so
    its code is exchanged.
    """
    ids, names, tokens = (random.Random(f"{seed} {kind}") for kind in ("ids", "names", "tokens"))
    secrets.choice = ids.choice
    secrets.token_hex = lambda count=32: names.randbytes(count).hex()
    secrets.token_urlsafe = lambda count=32: (
        base64.urlsafe_b64encode(tokens.randbytes(count)).rstrip(b"=").decode()
    )
    clock.utc_now.__code__ = _utc_now.__code__
