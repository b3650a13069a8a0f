"""Signed notes and checkpoints (C2SP signed-note, tlog-checkpoint, tlog-proof, tlog-cosignature).

https://c2sp.org/signed-note and its siblings define the formats.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from analytics.evidence.merkle import HASH_BYTES

ED25519: Final = 0x01
COSIGNATURE: Final = 0x04
"""Kinds of keys: a log's, and a witness's, whose signatures have a time."""

PROOF_HEADER: Final = "c2sp.org/tlog-proof@v1"
PROOF_HASHES_MAX: Final = 63
_KEY_ID_BYTES: Final = 4
_TIME_BYTES: Final = 8
_SIGNATURE: Final = re.compile(r"— (?P<name>[^\s+]+) (?P<base64>[A-Za-z0-9+/]+=*)")
_VKEY: Final = re.compile(r"(?P<name>[^\s+]+)\+(?P<id>[0-9a-f]{8})\+(?P<base64>[A-Za-z0-9+/]+=*)")
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]*", re.ASCII)


class InvalidNote(ValueError):
    """Text that is no note, checkpoint, proof or key, or is not signed by a known key."""


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key with its name, as a `vkey`: of a log or, with COSIGNATURE, of a witness."""

    name: str
    public: bytes
    kind: int = ED25519

    @property
    def key_id(self) -> bytes:
        """The beginning of its signatures."""
        content = self.name.encode() + b"\n" + bytes([self.kind]) + self.public
        return hashlib.sha256(content).digest()[:_KEY_ID_BYTES]

    @property
    def label(self) -> str:
        """The beginning of its `vkey`, which people can compare."""
        return f"{self.name}+{self.key_id.hex()}"

    def __str__(self) -> str:
        encoded = base64.b64encode(bytes([self.kind]) + self.public).decode()
        return f"{self.label}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> "VerifierKey":
        """The key that `text` spells. Raises InvalidNote."""
        parts = _VKEY.fullmatch(text.strip())
        encoded = b"" if parts is None else decode(parts["base64"])
        if parts is None or len(encoded) != 33 or encoded[0] not in {ED25519, COSIGNATURE}:
            raise InvalidNote("a key must have the form name+id+base64, of Ed25519")
        key = cls(parts["name"], encoded[1:], encoded[0])
        if key.key_id.hex() != parts["id"]:
            raise InvalidNote(f"the id of the key is {key.key_id.hex()}, not {parts['id']}")
        return key

    def verify(self, text: str, signature: bytes) -> bool:
        """Whether `signature`, without the key's id, is this key's of a note's `text`."""
        signed = text.encode()
        if self.kind == COSIGNATURE:
            at = int.from_bytes(signature[:_TIME_BYTES])
            signed, signature = cosigned(text, at), signature[_TIME_BYTES:]
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, signed)
        except (InvalidSignature, ValueError):
            return False
        return True


def cosigned(text: str, at_s: int) -> bytes:
    """What a witness signs of a checkpoint's `text` at this second since 1970."""
    return f"cosignature/v1\ntime {at_s}\n{text}".encode()


def sign(private: Ed25519PrivateKey, name: str, text: str) -> str:
    """The line of a note that signs its `text`, without a line break."""
    key = VerifierKey(name, private.public_key().public_bytes_raw())
    signature = base64.b64encode(key.key_id + private.sign(text.encode())).decode()
    return f"— {name} {signature}"


@dataclass(frozen=True, slots=True)
class Note:
    """A text, which ends with a line break, and the lines that sign it."""

    text: str
    signatures: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.text}\n" + "".join(f"{line}\n" for line in self.signatures)

    @classmethod
    def parse(cls, note: str) -> "Note":
        """The parts of `note`. Raises InvalidNote."""
        text, separator, signatures = note.rpartition("\n\n")
        lines = signatures.removesuffix("\n").split("\n")
        if not separator or not signatures.endswith("\n") or len(lines) > 64:
            raise InvalidNote("a note is a text, an empty line and lines that sign it")
        if not all(_SIGNATURE.fullmatch(line) for line in lines):
            raise InvalidNote("a line that should sign the note has another form")
        return cls(text + "\n", tuple(lines))

    def signers(self, keys: Iterable[VerifierKey]) -> list[VerifierKey]:
        """Those of `keys` that signed. Raises InvalidNote for a wrong signature of one of them."""
        known = {(key.name, key.key_id): key for key in keys}
        signed: list[VerifierKey] = []
        for name, key_id, signature in self.signed_by():
            key = known.get((name, key_id))
            if key is None:
                continue
            if not key.verify(self.text, signature):
                raise InvalidNote(f"the signature of {name} is wrong")
            signed.append(key)
        return signed

    def signed_by(self) -> Iterator[tuple[str, bytes, bytes]]:
        """The name and the id of each key that is said to have signed, and its signature."""
        for line in self.signatures:
            if parts := _SIGNATURE.fullmatch(line):
                content = decode(parts["base64"])
                yield parts["name"], content[:_KEY_ID_BYTES], content[_KEY_ID_BYTES:]

    def cosigned_at(self, witness: VerifierKey) -> int:
        """The second since 1970 at which `witness`, one of the signers, cosigned."""
        signatures = {(name, key_id): signature for name, key_id, signature in self.signed_by()}
        return int.from_bytes(signatures[witness.name, witness.key_id][:_TIME_BYTES])

    def check(self, keys: Iterable[VerifierKey]) -> None:
        """Raise InvalidNote unless one of `keys` signed it."""
        if not self.signers(keys):
            raise InvalidNote("none of the known keys signed it")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A log's root at one size."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text of its note."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """The checkpoint in a note's text. Raises InvalidNote."""
        lines = text.split("\n")
        if len(lines) < 4 or lines[-1] or not lines[0] or not _DECIMAL.fullmatch(lines[1]):
            raise InvalidNote("a checkpoint has the lines origin, size and root")
        root = decode(lines[2])
        if len(root) != hashlib.sha256().digest_size:
            raise InvalidNote("the root of a checkpoint has 32 bytes")
        return cls(lines[0], int(lines[1]), root)


def proof_text(index: int, hashes: Sequence[bytes], checkpoint: str) -> str:
    """A proof of inclusion as a file: `checkpoint` is the note that it leads to."""
    lines = [PROOF_HEADER, f"index {index}", *(base64.b64encode(each).decode() for each in hashes)]
    return "".join(f"{line}\n" for line in lines) + "\n" + checkpoint


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """A proof that was read: the leaf's index, the hashes, and the note they lead to."""

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: Note

    @classmethod
    def parse(cls, text: str) -> "InclusionProof":
        """The proof in the file `text`. Raises InvalidNote."""
        head, separator, note = text.partition("\n\n")
        lines = head.split("\n")
        if not separator or lines[0] != PROOF_HEADER:
            raise InvalidNote(f"a proof begins with the line {PROOF_HEADER}")
        if lines[1:2] and lines[1].startswith("extra "):
            del lines[1]
        word, _, index = (lines[1] if lines[1:] else "").partition(" ")
        if word != "index" or not _DECIMAL.fullmatch(index):
            raise InvalidNote("a proof has the index of its leaf in its second line")
        return cls(int(index), _hashes(lines[2:]), Note.parse(note))


def consistency_text(old: int, hashes: Sequence[bytes], note: str) -> str:
    """The proof that a log's first `old` leaves begin it, before a note (C2SP tlog-witness)."""
    lines = [f"old {old}", *(base64.b64encode(each).decode() for each in hashes)]
    return "".join(f"{line}\n" for line in lines) + "\n" + note


@dataclass(frozen=True, slots=True)
class ConsistencyProof:
    """A proof that was read: the size before, the hashes, and the note that follows."""

    old: int
    hashes: tuple[bytes, ...]
    checkpoint: Note

    @classmethod
    def parse(cls, text: str) -> "ConsistencyProof":
        """The proof in `text`. Raises InvalidNote."""
        head, _, note = text.partition("\n\n")
        first, *lines = head.split("\n")
        word, _, old = first.partition(" ")
        if word != "old" or not _DECIMAL.fullmatch(old):
            raise InvalidNote("a proof of consistency begins with the size before")
        return cls(int(old), _hashes(lines), Note.parse(note))


def _hashes(lines: Sequence[str]) -> tuple[bytes, ...]:
    hashes = tuple(map(decode, lines))
    if len(hashes) > PROOF_HASHES_MAX or any(len(each) != HASH_BYTES for each in hashes):
        raise InvalidNote(f"a proof has at most {PROOF_HASHES_MAX} hashes of {HASH_BYTES} bytes")
    return hashes


def decode(text: str) -> bytes:
    """The bytes that base64 `text` stands for. Raises InvalidNote."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidNote(f"not base64: {text[:80]}") from error
    # Bits behind the last byte would otherwise spell one signature in several ways.
    if base64.b64encode(content).decode() != text:
        raise InvalidNote(f"not base64 as RFC 4648 spells it: {text[:80]}")
    return content
