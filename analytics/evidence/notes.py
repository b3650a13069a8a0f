"""Signed notes and checkpoints (C2SP signed-note, tlog-checkpoint, tlog-proof, tlog-cosignature).

https://c2sp.org/signed-note and its siblings define the formats.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
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
        return is_signed(self.public, signed, signature)


def is_signed(public: bytes, content: bytes, signature: bytes) -> bool:
    """Whether the Ed25519 `signature` of the key `public` is of `content`."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
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
        return [*self._signatures(keys)]

    def cosigned_at(self, witness: VerifierKey) -> int:
        """The second since 1970 at which `witness`, one of the signers, cosigned."""
        return int.from_bytes(self._signatures([witness])[witness][:_TIME_BYTES])

    def _signatures(self, keys: Iterable[VerifierKey]) -> dict[VerifierKey, bytes]:
        known = {(key.name, key.key_id): key for key in keys}
        signatures: dict[VerifierKey, bytes] = {}
        for name, key_id, signature in self.signed_by():
            if key := known.get((name, key_id)):
                if not key.verify(self.text, signature):
                    raise InvalidNote(f"the signature of {name} is wrong")
                signatures[key] = signature
        return signatures

    def signed_by(self) -> Iterator[tuple[str, bytes, bytes]]:
        """The name and the id of each key that is said to have signed, and its signature."""
        for line in self.signatures:
            if parts := _SIGNATURE.fullmatch(line):
                content = decode(parts["base64"])
                yield parts["name"], content[:_KEY_ID_BYTES], content[_KEY_ID_BYTES:]

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


@dataclass(frozen=True, slots=True)
class Proof:
    """Hashes before the note that they lead to.

    Of inclusion: of leaf `number`, from its sibling up. Of consistency: of the first `number`
    leaves, in the order of RFC 6962.
    """

    number: int
    hashes: tuple[bytes, ...]
    checkpoint: Note


def inclusion_text(index: int, hashes: Iterable[bytes], note: str) -> str:
    """The proof of a leaf as a file (C2SP tlog-proof)."""
    return f"{PROOF_HEADER}\n{_proof_text('index', index, hashes, note)}"


def parse_inclusion(text: str) -> Proof:
    """The proof of a leaf in the file `text`. Raises InvalidNote."""
    header, _, proof = text.partition("\n")
    if header != PROOF_HEADER:
        raise InvalidNote(f"a proof begins with the line {PROOF_HEADER}")
    if proof.startswith("extra "):
        _, _, proof = proof.partition("\n")
    return _parse_proof("index", proof)


def consistency_text(old: int, hashes: Iterable[bytes], note: str) -> str:
    """The proof that a log's first `old` leaves begin it, before a note (C2SP tlog-witness)."""
    return _proof_text("old", old, hashes, note)


def parse_consistency(text: str) -> Proof:
    """The proof of consistency in `text`. Raises InvalidNote."""
    return _parse_proof("old", text)


def _proof_text(word: str, number: int, hashes: Iterable[bytes], note: str) -> str:
    lines = [f"{word} {number}", *(base64.b64encode(each).decode() for each in hashes)]
    return "".join(f"{line}\n" for line in lines) + f"\n{note}"


def _parse_proof(word: str, text: str) -> Proof:
    head, _, note = text.partition("\n\n")
    first, *lines = head.split("\n")
    name, _, number = first.partition(" ")
    if name != word or not _DECIMAL.fullmatch(number):
        raise InvalidNote(f"a proof has a line with the word {word} and a number")
    hashes = tuple(map(decode, lines))
    if len(hashes) > PROOF_HASHES_MAX or any(len(each) != HASH_BYTES for each in hashes):
        raise InvalidNote(f"a proof has at most {PROOF_HASHES_MAX} hashes of {HASH_BYTES} bytes")
    return Proof(int(number), hashes, Note.parse(note))


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
