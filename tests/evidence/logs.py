"""Logs in memory: entries of rows, their tree, signed checkpoints, and what a verifier gets."""

import hashlib
import io
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from analytics.evidence.bundle import ProvenRow, write_bundle
from analytics.evidence.canonical import entries
from analytics.evidence.merkle import GROUP, HASH_BYTES, Tree, leaf_hash, root_of, split
from analytics.evidence.notes import (
    COSIGNATURE,
    Checkpoint,
    Note,
    VerifierKey,
    cosigned,
    inclusion_text,
    sign,
)
from analytics.evidence.receipts import digest_of, signed_text
from analytics.model.schema import AUDIT_SCHEMA, audit_id

BEGUN_AT = datetime(2026, 11, 5, 8, tzinfo=UTC)
COSIGNED_AT_S = 1_795_000_000


def private_key(seed: object) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(random.Random(str(seed)).randbytes(32))


def rows_of(count: int, first_seq: int = 1) -> pa.Table:
    """So many rows, with texts that JSON must escape."""
    required = {f.name: "x" for f in AUDIT_SCHEMA if not f.nullable and pa.types.is_string(f.type)}
    given = dict.fromkeys(AUDIT_SCHEMA.names) | required
    return pa.Table.from_pylist(
        [
            given
            | {
                "seq": first_seq + n,
                "created_at": BEGUN_AT + timedelta(seconds=n),
                "received_at": BEGUN_AT + timedelta(seconds=n, microseconds=n),
                "event": "blocklist_hit",
                "package_name": f"@acme/é\N{LINE SEPARATOR}{n}",
                "payload": json.dumps({"n": n, "text": '"\\\n\N{GRINNING FACE}'}),
            }
            for n in range(count)
        ],
        schema=AUDIT_SCHEMA,
    )


@dataclass
class Log:
    """The log of one organisation, whose entries are the rows of a table."""

    size: int
    tenant_id: str = "org_acme"
    host: str = "audit.example"
    seed: str = "key"
    first_seq: int = 1
    entries: list[bytes] = field(init=False)
    leaves: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        day_key = random.Random(f"day {self.seed}").randbytes(32)
        rows = rows_of(self.size, self.first_seq)
        self.entries = [*entries(rows, self.tenant_id, day_key)]
        self.leaves = [*map(leaf_hash, self.entries)]

    @property
    def origin(self) -> str:
        return f"{self.host}/{self.tenant_id}"

    @property
    def private(self) -> Ed25519PrivateKey:
        return private_key(self.seed)

    @property
    def key(self) -> VerifierKey:
        return VerifierKey(self.origin, self.private.public_key().public_bytes_raw())

    @property
    def tree(self) -> Tree:
        return tree_of(self.leaves)

    @property
    def policy(self) -> str:
        return f"log {self.key}\nquorum none\n"

    def id(self, index: int) -> str:
        return audit_id(self.first_seq + index)

    def checkpoint(self, size: int | None = None) -> Note:
        """The signed root of the first rows, by default of all."""
        size = self.size if size is None else size
        text = Checkpoint(self.origin, size, self.tree.root(size)).text
        return Note(text, (sign(self.private, self.origin, text),))

    def proof(self, index: int, checkpoint: Note | None = None) -> str:
        checkpoint = checkpoint or self.checkpoint()
        size = Checkpoint.parse(checkpoint.text).size
        return inclusion_text(index, self.tree.inclusion(index, size), str(checkpoint))

    def proven(self, indexes: Iterable[int], checkpoint: Note) -> list[ProvenRow]:
        return [ProvenRow(self.id(n), self.entries[n], self.proof(n, checkpoint)) for n in indexes]

    def receipt(self, exported: bytes, checkpoint: Note | None = None, **changes: object) -> bytes:
        """A signed receipt of an export with this content."""
        fields: dict[str, object] = {
            "receipt": 1,
            "tenant_id": self.tenant_id,
            "export_id": "exp_1",
            "file_name": "acme.csv",
            "rows": 2,
            "bytes": len(exported),
            "sha256": hashlib.sha256(exported).hexdigest(),
            "checkpoint": str(checkpoint or self.checkpoint()),
        } | changes
        fields["signature"] = sign(self.private, self.origin, signed_text(fields))
        fields["digest"] = digest_of(fields)
        return json.dumps(fields, indent=2, ensure_ascii=False).encode()

    def bundle(
        self,
        indexes: Sequence[int],
        checkpoint: Note | None = None,
        policy: str | None = None,
    ) -> bytes:
        """A bundle of these rows."""
        target, checkpoint = io.BytesIO(), checkpoint or self.checkpoint()
        write_bundle(target, self.proven(indexes, checkpoint), checkpoint, policy or self.policy)
        return target.getvalue()


def tree_of(leaves: Sequence[bytes]) -> Tree:
    """A tree over leaves in memory."""
    levels = [b"".join(leaves)]
    while len(levels[-1]) >= GROUP * HASH_BYTES:
        hashes = split(levels[-1])
        whole = len(hashes) // GROUP * GROUP
        groups = [hashes[at : at + GROUP] for at in range(0, whole, GROUP)]
        levels.append(b"".join(map(root_of, groups)))

    def tile(level: int, number: int) -> bytes:
        size = GROUP * HASH_BYTES
        return levels[level][number * size : (number + 1) * size]

    return Tree(len(leaves), tile)


@dataclass(frozen=True)
class SomeWitness:
    """A witness that cosigns whatever it is given."""

    name: str

    @property
    def key(self) -> VerifierKey:
        public = private_key(self.name).public_key().public_bytes_raw()
        return VerifierKey(self.name, public, COSIGNATURE)

    def cosign(self, note: Note, at_s: int = COSIGNED_AT_S) -> Note:
        import base64

        signature = private_key(self.name).sign(cosigned(note.text, at_s))
        content = self.key.key_id + at_s.to_bytes(8) + signature
        line = f"— {self.name} {base64.b64encode(content).decode()}"
        return Note(note.text, (*note.signatures, line))
