"""Bundles: rows, their proofs and what these are checked with, in one file (zip).

To verify one needs no network: nothing is asked of a server, and nothing is written.
"""

import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, BinaryIO, Final, Literal

import msgspec

from analytics.evidence.merkle import leaf_hash, verify_consistency, verify_inclusion
from analytics.evidence.notes import (
    Checkpoint,
    ConsistencyProof,
    InclusionProof,
    Note,
    VerifierKey,
    proof_text,
)
from analytics.evidence.policies import Policy
from analytics.evidence.receipts import verify_receipt
from analytics.evidence.verification import TooManyFindings, Verification

README: Final = "README.txt"
MANIFEST: Final = "manifest.json"
KEYS: Final = "log.vkey"
POLICY: Final = "policy.txt"
CHECKPOINT: Final = "checkpoint.txt"
CONSISTENCY: Final = "consistency.txt"
RECEIPT: Final = "receipt.json"
ROWS: Final = "rows.ndjson"
_NEEDED: Final = (MANIFEST, KEYS, POLICY, CHECKPOINT, ROWS)
FILES: Final = (*_NEEDED, README, CONSISTENCY, RECEIPT)
"""All but the proofs, and the file of an export."""

_PROOF: Final = re.compile(r"proofs/aud_[0-9]{19}\.tlog-proof", re.ASCII)
_EXPORT: Final = re.compile(r"export/(?!\.{1,2}$)[^/\\\0]{1,255}")

ROWS_MAX: Final = 200_000
BYTES_MAX: Final = 64 * 1024**3
TEXT_BYTES_MAX: Final = 1024 * 1024
"""Of a row, and of each file that is read at once."""

_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 1
_SAME_TIME: Final = (1980, 1, 1, 0, 0, 0)
README_TEXT: Final = f"""\
Rows of an audit log, and proofs that the log has them as they are here.

{ROWS}      an entry a line: the bytes whose hash is a leaf of the log's Merkle tree
proofs/          of each row, by its id: the path from its leaf to the root (c2sp.org/tlog-proof)
{CHECKPOINT}   this root, signed (c2sp.org/tlog-checkpoint)
{KEYS}         the log's public keys (c2sp.org/signed-note). A forged bundle has forged keys:
                 compare them with those that the operator gave you in another way.
{POLICY}       these keys, and those of witnesses (c2sp.org/tlog-policy)
{MANIFEST}    how many rows; of the kind "range": all that there are between two indexes
{RECEIPT}     optional: the signed receipt of an export, whose file is in export/
{CONSISTENCY}  optional: proof that an older checkpoint's log begins this one

Verify it on any machine: countersign evidence verify FILE --key VKEY
All formats are public; docs/evidence.md of Countersign says how to check them without it.
"""


class Kind(StrEnum):
    """What the rows of a bundle are: any, or all from the first index to the last."""

    ROWS = "rows"
    RANGE = "range"


class Manifest(msgspec.Struct, frozen=True):
    """What a bundle is said to have. Without rows there are no indexes."""

    bundle: Literal[1]
    kind: Kind
    origin: str
    rows: int
    first_index: int | None
    last_index: int | None


@dataclass(frozen=True, slots=True)
class ProvenRow:
    """An entry with the id of its row, its index in the log, and the proof that it is there."""

    id: str
    entry: bytes
    index: int
    hashes: Sequence[bytes]


def write_bundle(
    target: BinaryIO,
    rows: Iterable[ProvenRow],
    checkpoint: Note,
    policy: str,
    kind: Kind = Kind.ROWS,
    further: Mapping[str, BinaryIO] | None = None,
) -> Manifest:
    """Write the bundle of `rows`, in the order of `seq`, whose proofs lead to `checkpoint`.

    `further` are files by their names in it: RECEIPT, CONSISTENCY, `export/…`.
    """
    indexes: list[int] = []
    with zipfile.ZipFile(target, "w") as bundle, TemporaryFile() as entries:
        for row in rows:
            proof = proof_text(row.index, row.hashes, str(checkpoint))
            _add(bundle, f"proofs/{row.id}.tlog-proof", BytesIO(proof.encode()))
            entries.write(row.entry + b"\n")
            indexes.append(row.index)
        origin = Checkpoint.parse(checkpoint.text).origin
        first, last = (indexes[0], indexes[-1]) if indexes else (None, None)
        manifest = Manifest(1, kind, origin, len(indexes), first, last)
        keys = Policy.parse(policy.encode()).logs
        for name, text in {
            README: README_TEXT,
            MANIFEST: msgspec.json.format(msgspec.json.encode(manifest)).decode(),
            KEYS: "".join(f"{key}\n" for key in keys),
            POLICY: policy,
            CHECKPOINT: str(checkpoint),
        }.items():
            _add(bundle, name, BytesIO(text.encode()))
        entries.seek(0)
        for name, file in {ROWS: entries, **(further or {})}.items():
            _add(bundle, name, file)
    return manifest


def _add(bundle: zipfile.ZipFile, name: str, content: IO[bytes]) -> None:
    # One time for all, so that the same rows make the same file.
    info = zipfile.ZipInfo(name, _SAME_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    with bundle.open(info, "w", force_zip64=True) as member:
        shutil.copyfileobj(content, member)


def verify_bundle(
    file: BinaryIO, policy: Policy | None = None, keys: Sequence[VerifierKey] = ()
) -> Verification:
    """What `file` proves. `policy`, or `keys` of the log, replace those that it brings."""
    result = Verification()
    with suppress(TooManyFindings), result.about("the bundle"), zipfile.ZipFile(file) as bundle:
        _check_files(bundle.infolist())
        with result.about(POLICY):
            trusted = policy or _brought_policy(bundle, result, keys)
            with result.about(CHECKPOINT):
                note = Note.parse(bundle.read(CHECKPOINT).decode())
                _Verifier(bundle, result, trusted, note, trusted.checkpoint(note)).verify()
    return result


def _check_files(files: Sequence[zipfile.ZipInfo]) -> None:
    """Raise ValueError for what no bundle has, before any of it is read."""
    counts = Counter(info.filename for info in files)
    if missing := [name for name in _NEEDED if name not in counts]:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    if len(files) > ROWS_MAX or sum(info.file_size for info in files) > BYTES_MAX:
        raise ValueError(f"it has more than {ROWS_MAX:,} files or {BYTES_MAX:,} bytes")
    for info in files:
        name = info.filename
        if counts[name] > 1:
            raise ValueError(f"it has {counts[name]} files {name}")
        if not (name in FILES or _PROOF.fullmatch(name) or _EXPORT.fullmatch(name)):
            raise ValueError(f"{name} does not belong in it")
        is_read_at_once = name != ROWS and not _EXPORT.fullmatch(name)
        if is_read_at_once and info.file_size > TEXT_BYTES_MAX:
            raise ValueError(f"{name} is longer than {TEXT_BYTES_MAX:,} bytes")
        if info.compress_type not in _PACKED or info.flag_bits & _ENCRYPTED:
            raise ValueError(f"{name} is encrypted, or compressed by another method than deflate")


def _brought_policy(
    bundle: zipfile.ZipFile, result: Verification, keys: Sequence[VerifierKey]
) -> Policy:
    """The bundle's own policy, with `keys` in place of its logs if there are any."""
    policy = Policy.parse(bundle.read(POLICY))
    if policy.witnesses:
        result.not_proved.append(
            "that the keys of the witnesses are theirs: they are the bundle's own (use --policy)"
        )
    if keys:
        return replace(policy, logs=(*keys,))
    with result.about(KEYS):
        if {*map(VerifierKey.parse, bundle.read(KEYS).decode().splitlines())} != {*policy.logs}:
            raise ValueError(f"it has other keys than {POLICY}")
    result.not_proved.append(
        f"that the key is the operator's: {', '.join(map(str, policy.logs))} is the bundle's own."
        " Compare it with what the operator gave you in another way (or use --key, --policy)"
    )
    return policy


class _Row(msgspec.Struct, frozen=True):
    id: str
    tenant_id: str


_decode_row: Final = msgspec.json.Decoder(_Row).decode


@dataclass(slots=True)
class _Verifier:
    """Verifies a bundle whose checkpoint is signed by a trusted key."""

    bundle: zipfile.ZipFile
    result: Verification
    policy: Policy
    note: Note
    checkpoint: Checkpoint
    first_index: int | None = None
    last_index: int | None = None

    def verify(self) -> None:
        """Verify all of it. Raises TooManyFindings."""
        self._verify_cosignatures()
        with self.result.about(MANIFEST):
            manifest = msgspec.json.decode(self.bundle.read(MANIFEST), type=Manifest)
            self._verify_rows(manifest)
        names = self.bundle.namelist()
        older = None
        if CONSISTENCY in names:
            with self.result.about(CONSISTENCY):
                older = self._verify_older()
        exports = [name for name in names if _EXPORT.fullmatch(name)]
        if RECEIPT in names:
            with self.result.about(RECEIPT):
                self._verify_receipt(older, exports)
        elif exports:
            self.result.find(f"{exports[0]}: it has no {RECEIPT}")

    def _verify_cosignatures(self) -> None:
        cosigners = [*dict.fromkeys(self.note.signers(self.policy.witnesses.values()))]
        for witness in cosigners:
            at = datetime.fromtimestamp(self.note.cosigned_at(witness), UTC)
            self.result.proved.append(
                f"{witness.label} cosigned the checkpoint at {at:%Y-%m-%dT%H:%M:%SZ}"
            )
        if not self.policy.is_met(cosigners):
            names = ", ".join(witness.label for witness in cosigners) or "no known witness"
            self.result.find(
                f"{CHECKPOINT}: cosigned by {names}, which is not the quorum {self.policy.quorum}"
            )
        if not cosigners:
            self.result.not_proved.append(
                "that the operator signed no other history: no known witness cosigned this one"
            )

    def _verify_rows(self, manifest: Manifest) -> None:
        before, count = len(self.result.findings), 0
        unused = {name for name in self.bundle.namelist() if _PROOF.fullmatch(name)}
        if manifest.origin != self.checkpoint.origin:
            self.result.find(f"{MANIFEST}: it names the log {manifest.origin}")
        with self.bundle.open(ROWS) as lines:
            while line := lines.readline(TEXT_BYTES_MAX):
                count += 1
                with self.result.about(f"{ROWS}, line {count}"):
                    self._verify_row(line.removesuffix(b"\n"), unused, manifest)
        for name in sorted(unused):
            self.result.find(f"{name}: its row is left out of {ROWS}")
        self._verify_extent(count, manifest)
        if len(self.result.findings) == before:
            self._state_rows(manifest)

    def _verify_row(self, entry: bytes, unused: set[str], manifest: Manifest) -> None:
        row = _decode_row(entry)
        name = f"proofs/{row.id}.tlog-proof"
        if name not in unused:
            raise ValueError(f"row {row.id} has no proof, or is there twice")
        unused.remove(name)
        with self.result.about(name):
            proof = InclusionProof.parse(self.bundle.read(name).decode())
            self._verify_order(row.id, proof.index, manifest)
            if proof.checkpoint != self.note:
                self._verify_same(self.policy.checkpoint(proof.checkpoint))
            with self.result.about(f"row {row.id} (index {proof.index}) or its proof is changed"):
                leaf, size = leaf_hash(entry), self.checkpoint.size
                verify_inclusion(leaf, proof.index, size, proof.hashes, self.checkpoint.root)
        if row.tenant_id not in self.checkpoint.origin.split("/"):
            self.result.find(f"row {row.id}: it is of another organisation, {row.tenant_id}")

    def _verify_same(self, other: Checkpoint) -> None:
        if other != self.checkpoint:
            raise ValueError(
                f"it leads to another checkpoint, of {other.size:,} rows of {other.origin}"
            )

    def _verify_order(self, row_id: str, index: int, manifest: Manifest) -> None:
        last, self.last_index = self.last_index, index
        if last is None:
            self.first_index = index
        elif index <= last:
            self.result.find(f"row {row_id} (index {index}) comes after that of index {last}")
        elif manifest.kind is Kind.RANGE and index > last + 1:
            self.result.find(f"{ROWS}: the rows of index {last + 1} to {index - 1} are left out")

    def _verify_extent(self, count: int, manifest: Manifest) -> None:
        there = _extent(count, self.first_index, self.last_index)
        said = _extent(manifest.rows, manifest.first_index, manifest.last_index)
        if there != said:
            self.result.find(f"{ROWS}: it has {there}, and {MANIFEST} says {said}")

    def _state_rows(self, manifest: Manifest) -> None:
        log = self.checkpoint
        extent = _extent(manifest.rows, self.first_index, self.last_index)
        verb = "is" if manifest.rows == 1 else "are"
        signer = self.note.signers(self.policy.keys_of(log))[0]
        sentences = [
            f"{extent} {verb}, byte for byte, in the log {log.origin} of {log.size:,} rows, as its"
            f" checkpoint says, which {signer.label} signed",
        ]
        if manifest.kind is Kind.RANGE and manifest.rows > 1:
            sentences.append("no row is left out between these indexes")
        self.result.proved[:0] = sentences
        self.result.not_proved.append(
            "that all was written that happened, or that created_at is true: rows are as logged"
        )

    def _verify_older(self) -> Checkpoint:
        proof = ConsistencyProof.parse(self.bundle.read(CONSISTENCY).decode())
        old, new = self.policy.checkpoint(proof.checkpoint), self.checkpoint
        if old.origin != new.origin or old.size != proof.old:
            raise ValueError(f"it is of the first {proof.old:,} rows of {old.origin}")
        verify_consistency(old.size, new.size, old.root, new.root, proof.hashes)
        self.result.proved.append(f"the log of {old.size:,} rows of an older checkpoint begins it")
        return old

    def _verify_receipt(self, older: Checkpoint | None, exports: Sequence[str]) -> None:
        receipt, named = verify_receipt(self.bundle.read(RECEIPT), self.policy)
        if receipt.tenant_id not in self.checkpoint.origin.split("/"):
            raise ValueError(f"it is of another organisation, {receipt.tenant_id}")
        if (named.origin, named.size) == (self.checkpoint.origin, self.checkpoint.size):
            self._verify_same(named)
        elif named != older:
            self.result.not_proved.append(
                f"that the log of {named.size:,} rows, which the receipt names, begins this one:"
                f" there is no {CONSISTENCY} from it"
            )
        self.result.proved.append(receipt.statement(named))
        for name in exports:
            with self.result.about(name), self.bundle.open(name) as file:
                receipt.compare(file)
                self.result.proved.append(f"{name} is the file of this export")


def _extent(rows: int, first: int | None, last: int | None) -> str:
    if rows == 1:
        return f"1 row (index {first})"
    return f"{rows:,} rows (index {first} to {last})" if rows else "no rows"
