"""Whom a verifier trusts: logs, witnesses, and how many of these must have cosigned (tlog-policy).

https://c2sp.org/tlog-policy defines the format.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from analytics.evidence.notes import (
    COSIGNATURE,
    ED25519,
    Checkpoint,
    InvalidNote,
    Note,
    VerifierKey,
)

_NONE: Final = "none"
_CONTROL: Final = re.compile(r"[^\t\n -~\x80-\xff]")
_BLANK: Final = re.compile(r"[ \t]+")


class InvalidPolicy(ValueError):
    """Text that is no policy."""


@dataclass(frozen=True, slots=True)
class Group:
    """Witnesses or groups, of which `needed` must have cosigned."""

    needed: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """Keys of logs, any of which may have signed; witnesses by name; and whose cosignatures count.

    `quorum` names a witness or a group; None: no cosignature is needed.
    """

    logs: tuple[VerifierKey, ...]
    witnesses: Mapping[str, VerifierKey] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    quorum: str | None = None

    @classmethod
    def parse(cls, content: bytes) -> "Policy":
        """The policy in a file with this content. Raises InvalidPolicy, which names the line."""
        # The format is one of octets: only ASCII has a meaning.
        text = content.decode("latin-1")
        if _CONTROL.search(text):
            raise InvalidPolicy("a policy has no control characters")
        reading = _Reading()
        for number, line in enumerate(text.split("\n"), 1):
            words = _BLANK.split(line.strip(" \t"))
            if words != [""] and not words[0].startswith("#"):
                try:
                    reading.add(words)
                except ValueError as error:
                    raise InvalidPolicy(f"line {number}: {error}") from error
        if len(reading.quorums) != 1:
            raise InvalidPolicy("a policy has exactly one line with the quorum")
        return cls((*reading.logs,), reading.witnesses, reading.groups, reading.quorums[0])

    def checkpoint(self, note: Note) -> Checkpoint:
        """The checkpoint in `note`. Raises InvalidNote unless a log of this origin signed it."""
        checkpoint = Checkpoint.parse(note.text)
        keys, trusted = self.keys_of(checkpoint), ", ".join(key.label for key in self.logs)
        if not keys:
            raise InvalidNote(f"of the log {checkpoint.origin}; trusted are: {trusted}")
        if not note.signers(keys):
            signers = ", ".join(f"{name}+{key_id.hex()}" for name, key_id, _ in note.signed_by())
            raise InvalidNote(f"signed by {signers}; trusted are: {trusted}")
        return checkpoint

    def keys_of(self, checkpoint: Checkpoint) -> list[VerifierKey]:
        """The keys of the log that `checkpoint` is of."""
        return [key for key in self.logs if key.name == checkpoint.origin]

    def is_met(self, cosigners: Collection[VerifierKey]) -> bool:
        """Whether these witnesses suffice for the quorum."""
        met = {name for name, key in self.witnesses.items() if key in cosigners}
        for name, group in self.groups.items():  # members stand before their groups
            if sum(member in met for member in group.members) >= group.needed:
                met.add(name)
        return self.quorum is None or self.quorum in met


def policy_text(
    keys: Sequence[str], witnesses: Sequence[str], cosigners: Collection[str] = ()
) -> str:
    """The policy of a log with these keys, of witnesses too, as `vkey`s.

    One of the witnesses must have cosigned, if one of them has a name of `cosigners`.
    """
    lines = [f"log {key}" for key in keys]
    names = [f"w{number}" for number in range(1, len(witnesses) + 1)]
    lines += [f"witness {name} {key}" for name, key in zip(names, witnesses, strict=True)]
    if any(key.split("+")[0] in cosigners for key in witnesses):
        lines += [f"group witnesses any {' '.join(names)}", "quorum witnesses"]
    else:
        lines.append("quorum none")
    return "".join(f"{line}\n" for line in lines)


class _Reading:
    """What the lines so far have defined."""

    def __init__(self) -> None:
        self.logs: list[VerifierKey] = []
        self.witnesses: dict[str, VerifierKey] = {}
        self.groups: dict[str, Group] = {}
        self.quorums: list[str | None] = []
        self._members: set[str] = set()

    def add(self, words: list[str]) -> None:
        """Read one line. Raises ValueError."""
        match words:
            case ["log", vkey] | ["log", vkey, _]:
                self.logs.append(_key(vkey, ED25519, self.logs))
            case ["witness", name, vkey] | ["witness", name, vkey, _]:
                self._define(name)
                self.witnesses[name] = _key(vkey, COSIGNATURE, self.witnesses.values())
            case ["group", name, needed, *members] if members:
                self._define(name)
                self.groups[name] = self._group(needed, members)
            case ["quorum", name]:
                if name != _NONE:
                    self._defined(name)
                self.quorums.append(None if name == _NONE else name)
            case _:
                raise ValueError("not a log, witness, group or quorum")

    def _define(self, name: str) -> None:
        if name == _NONE or name in self.witnesses or name in self.groups:
            raise ValueError(f"the name {name} has a meaning already")

    def _defined(self, name: str) -> None:
        if name not in self.witnesses and name not in self.groups:
            raise ValueError(f"no witness or group {name} stands above")

    def _group(self, needed: str, members: list[str]) -> Group:
        for member in members:
            self._defined(member)
            if member in self._members:
                raise ValueError(f"{member} is a member already")
            self._members.add(member)
        of_word = {"all": len(members), "any": 1}
        count = of_word.get(needed) or (int(needed) if needed.isdecimal() else 0)
        if not 1 <= count <= len(members):
            raise ValueError(f"{needed} is not all, any or a number up to {len(members)}")
        return Group(count, (*members,))


def _key(vkey: str, kind: int, others: Collection[VerifierKey]) -> VerifierKey:
    key = VerifierKey.parse(vkey.encode("latin-1").decode(errors="replace"))
    if key.kind != kind:
        raise ValueError("a log has a key of type 1, a witness one of type 4")
    if any(key.public == other.public for other in others):
        raise ValueError(f"the key of {key.name} stands there twice")
    return key
