"""What a verification says: what is wrong, what was proved, and what was not."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

FINDINGS_MAX: Final = 100
_WRONG: Final = (
    ValueError,
    OverflowError,
    RuntimeError,
    EOFError,
    msgspec.MsgspecError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What wrong or damaged content raises where it is read."""


class TooManyFindings(Exception):
    """FINDINGS_MAX are there: more would tell nothing new."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Sentences for people."""

    findings: list[str] = field(default_factory=list)
    proved: list[str] = field(default_factory=list)
    not_proved: list[str] = field(default_factory=list)

    @contextmanager
    def about(self, name: str) -> Iterator[None]:
        """What is wrong or unreadable in the block becomes a finding about `name`."""
        try:
            yield
        except _WRONG as error:
            self.find(f"{name}: {error}")

    def find(self, finding: str) -> None:
        """Add a finding. Raises TooManyFindings."""
        self.findings.append(finding)
        if len(self.findings) >= FINDINGS_MAX:
            raise TooManyFindings
