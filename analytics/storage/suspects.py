"""Which stored files and batches a fault is about: every fault of stored rows names them."""

import re
from typing import Final

from analytics.model.errors import StoreFault, StoreUnreachable

_SEGMENT: Final = re.compile(r"\bseg_[a-z0-9]{1,40}\b", re.ASCII)
_BATCH: Final = re.compile(r"\bseq (\d{1,19}) to\b", re.ASCII)

SUSPECTS_MAX: Final = 256
"""How many are remembered. Others are named by the verification of what is stored."""


def segments_in(fault: StoreFault) -> list[str]:
    """The ids of the segments that `fault` names."""
    return list(dict.fromkeys(_SEGMENT.findall(str(fault))))


class Suspects:
    """Segments, and journal batches by their first seq, that could not be read."""

    def __init__(self) -> None:
        self._segments: dict[str, None] = {}
        self._batches: dict[int, None] = {}

    def record(self, fault: StoreFault) -> None:
        """Remember what `fault` names, unless it is only out of reach."""
        if isinstance(fault, StoreUnreachable):
            return
        for segment_id in segments_in(fault):
            if len(self._segments) < SUSPECTS_MAX:
                self._segments[segment_id] = None
        for first_seq in map(int, _BATCH.findall(str(fault))):
            if len(self._batches) < SUSPECTS_MAX:
                self._batches[first_seq] = None

    def take(self) -> tuple[list[str], list[int]]:
        """What was recorded since the last call."""
        taken = list(self._segments), list(self._batches)
        self._segments, self._batches = {}, {}
        return taken
