"""What other verifiers are asked: cases, as lines of JSON."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Inclusion:
    """An entry, the text of its proof, and the key of the log."""

    entry: bytes
    proof: str
    vkey: str

    def as_json(self) -> dict[str, object]:
        entry = base64.b64encode(self.entry).decode()
        return {"entry": entry, "proof": self.proof, "vkey": self.vkey}


@dataclass(frozen=True)
class Consistency:
    """Two checkpoints of a log, which are notes, and the proof that one continues the other.

    The older one is not of an empty log: Go's `tlog` has no proof of that.
    """

    old: str
    new: str
    hashes: Sequence[bytes]
    vkey: str

    def as_json(self) -> dict[str, object]:
        hashes = [base64.b64encode(each).decode() for each in self.hashes]
        return {"old": self.old, "new": self.new, "hashes": hashes, "vkey": self.vkey}


Case: TypeAlias = Inclusion | Consistency
