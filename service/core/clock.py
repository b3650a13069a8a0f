"""The clock as an argument: code that needs the time receives a `Clock`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

Clock = Callable[[], datetime]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def utc_now() -> datetime:
    """The current instant, timezone-aware, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Uptime:
    """How long a machine has been running since its start `boot`, which has a name of its own."""

    boot: str
    seconds: float


def machine_uptime() -> Uptime:
    """How long this machine has been running; it cannot be set, and counts while suspended."""
    return Uptime(_BOOT_ID.read_text().strip(), time.clock_gettime(time.CLOCK_BOOTTIME))
