"""Bundles: rows, their proofs and what these are checked with, in one file (zip).

To verify one needs no network: nothing is asked of a server, and nothing is written.
"""

import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import BytesIO
from tempfile import TemporaryFile
from typing import IO, BinaryIO, Final

import msgspec

from analytics.evidence.merkle import (
    leaf_hash,
    merge_into_ranges,
    verify_consistency,
    verify_inclusion,
)
from analytics.evidence.notes import (
    Checkpoint,
    Note,
    VerifierKey,
    parse_consistency,
    parse_inclusion,
)
from analytics.evidence.policies import Policy
from analytics.evidence.verification import TooManyFindings, Verification

README: Final = "README.txt"
KEYS: Final = "log.vkey"
POLICY: Final = "policy.txt"
CHECKPOINT: Final = "checkpoint.txt"
CONSISTENCY: Final = "consistency.txt"
ROWS: Final = "rows.ndjson"
_NEEDED: Final = (KEYS, POLICY, CHECKPOINT, ROWS)
FILES: Final = (*_NEEDED, README, CONSISTENCY)
"""All but the proofs."""

_PROOF: Final = re.compile(r"proofs/aud_[0-9]{19}\.tlog-proof", re.ASCII)

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
{CONSISTENCY}  optional: proof that an older checkpoint's log begins this one

Verify it on any machine: countersign evidence verify FILE --key VKEY
All formats are public; docs/evidence.md of Countersign says how to check them without it.
"""


@dataclass(frozen=True, slots=True)
class ProvenRow:
    """An entry with the id of its row, and the file that proves it."""

    id: str
    entry: bytes
    proof: str


def write_bundle(
    target: BinaryIO,
    rows: Iterable[ProvenRow],
    checkpoint: Note,
    policy: str,
    consistency: str | None = None,
) -> None:
    """Write the bundle of `rows`, in the order of `seq`, whose proofs lead to `checkpoint`."""
    keys = Policy.parse(policy.encode()).logs
    texts = {
        README: README_TEXT,
        KEYS: "".join(f"{key}\n" for key in keys),
        POLICY: policy,
        CHECKPOINT: str(checkpoint),
    }
    texts |= {} if consistency is None else {CONSISTENCY: consistency}
    with zipfile.ZipFile(target, "w") as bundle, TemporaryFile() as entries:
        for row in rows:
            _add(bundle, f"proofs/{row.id}.tlog-proof", BytesIO(row.proof.encode()))
            entries.write(row.entry + b"\n")
        entries.seek(0)
        _add(bundle, ROWS, entries)
        for name, text in texts.items():
            _add(bundle, name, BytesIO(text.encode()))


def _add(bundle: zipfile.ZipFile, name: str, content: IO[bytes]) -> None:
    # One time for all, so that the same rows make the same file.
    info = zipfile.ZipInfo(name, _SAME_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    with bundle.open(info, "w", force_zip64=True) as member:
        shutil.copyfileobj(content, member)


def verify_bundle(
    file: BinaryIO,
    policy: Policy | None = None,
    keys: Sequence[VerifierKey] = (),
    *,
    is_complete: bool = False,
) -> Verification:
    """What `file` proves. `policy`, or `keys` of the log, replace those that it brings.

    If it `is_complete`, rows that are left out between its first and last one are a finding.
    """
    result = Verification()
    with suppress(TooManyFindings), result.about("the bundle"), zipfile.ZipFile(file) as bundle:
        _check_files(bundle.infolist())
        with result.about(POLICY):
            trusted = policy or _brought_policy(bundle, result, keys)
            with result.about(CHECKPOINT):
                note = Note.parse(bundle.read(CHECKPOINT).decode())
                log = trusted.checkpoint(note)
                _Verifier(bundle, result, trusted, note, log, is_complete).verify()
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
        if not (name in FILES or _PROOF.fullmatch(name)):
            raise ValueError(f"{name} does not belong in it")
        if name != ROWS and info.file_size > TEXT_BYTES_MAX:
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
    is_complete: bool
    rows: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """The indexes of the rows, first and last of each range."""

    def verify(self) -> None:
        """Verify all of it. Raises TooManyFindings."""
        self._verify_cosignatures()
        self._verify_rows()
        if CONSISTENCY in self.bundle.namelist():
            with self.result.about(CONSISTENCY):
                self._verify_older()

    def _verify_cosignatures(self) -> None:
        cosigners = self.note.signers(self.policy.witnesses.values())
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

    def _verify_rows(self) -> None:
        findings = len(self.result.findings)
        unused = {name for name in self.bundle.namelist() if _PROOF.fullmatch(name)}
        with self.bundle.open(ROWS) as lines:
            while line := lines.readline(TEXT_BYTES_MAX):
                self.rows += 1
                with self.result.about(f"{ROWS}, line {self.rows}"):
                    self._verify_row(line.removesuffix(b"\n"), unused)
        for name in sorted(unused):
            self.result.find(f"{name}: its row is left out of {ROWS}")
        if len(self.result.findings) == findings:
            self._state_rows()

    def _verify_row(self, entry: bytes, unused: set[str]) -> None:
        row = _decode_row(entry)
        name = f"proofs/{row.id}.tlog-proof"
        if name not in unused:
            raise ValueError(f"row {row.id} has no proof, or is there twice")
        unused.remove(name)
        with self.result.about(name):
            proof = parse_inclusion(self.bundle.read(name).decode())
            place = f"row {row.id} (index {proof.number})"
            if self.ranges and proof.number <= self.ranges[-1][1]:
                self.result.find(f"{place} comes after that of index {self.ranges[-1][1]}")
            merge_into_ranges(self.ranges, proof.number)
            if proof.checkpoint != self.note:
                self._verify_same(self.policy.checkpoint(proof.checkpoint))
            with self.result.about(f"{place} or its proof is changed"):
                size, root = self.checkpoint.size, self.checkpoint.root
                verify_inclusion(leaf_hash(entry), proof.number, size, proof.hashes, root)
        if row.tenant_id not in self.checkpoint.origin.split("/"):
            self.result.find(f"row {row.id}: it is of another organisation, {row.tenant_id}")

    def _verify_same(self, other: Checkpoint) -> None:
        if other != self.checkpoint:
            raise ValueError(
                f"it leads to another checkpoint, of {other.size:,} rows of {other.origin}"
            )

    def _state_rows(self) -> None:
        log, result = self.checkpoint, self.result
        signer = self.note.signers(self.policy.keys_of(log))[0]
        result.proved[:0] = [
            f"{self._extent()}, byte for byte, in the log {log.origin} of {log.size:,} rows, as its"
            f" checkpoint says, which {signer.label} signed",
        ]
        if len(self.ranges) == 1 and self.rows > 1:
            result.proved.insert(1, "no row is left out between these indexes")
        elif self.ranges[1:]:
            (_, last), (first, _) = self.ranges[:2]
            others = f", and {len(self.ranges) - 2:,} ranges behind" if self.ranges[2:] else ""
            left_out = f"the rows of index {last + 1} to {first - 1} are left out{others}"
            if self.is_complete:
                result.find(f"{ROWS}: {left_out}")
            else:
                result.not_proved.append(f"that these are all: {left_out}")
        result.not_proved.append(
            "that all was written that happened, or that created_at is true: rows are as logged"
        )

    def _extent(self) -> str:
        if not self.rows:
            return "no rows are"
        if self.rows == 1:
            return f"1 row (index {self.ranges[0][0]}) is"
        return f"{self.rows:,} rows (index {self.ranges[0][0]} to {self.ranges[-1][1]}) are"

    def _verify_older(self) -> None:
        proof = parse_consistency(self.bundle.read(CONSISTENCY).decode())
        old, new = self.policy.checkpoint(proof.checkpoint), self.checkpoint
        if old.origin != new.origin or old.size != proof.number:
            raise ValueError(f"it is of the first {proof.number:,} rows of {old.origin}")
        verify_consistency(old.size, new.size, old.root, new.root, proof.hashes)
        self.result.proved.append(f"the log of {old.size:,} rows of an older checkpoint begins it")
