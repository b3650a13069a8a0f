"""The canonical bytes of rows, and their hashes as leaves of the tree.

An entry is the row as one JSON object (RFC 8785): the wire columns of schema version 3 as strings
or null, `payload` as its stored text, with `nonce` and `v`. These bytes never change: a proof that
was given is verified with them for years. What a later schema version adds is in a later version
of entries, which begins at a `seq` and not before.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from analytics.evidence.merkle import leaf_hash
from analytics.model.schema import audit_id

VERSION: Final = "1"
DAY_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 16
_SEQ_BYTES: Final = 8
_NAIVE: Final = pa.timestamp("us")

COLUMNS: Final = {
    "id": "seq",
    "created_at": "created_at",
    "event": "event",
    "packageName": "package_name",
    "version": "version",
    "decision": "decision",
    "decision_reason": "decision_reason",
    "verdict_source": "verdict_source",
    "tenant_id": "",
    "actor_tenant_id": "actor_tenant_id",
    "actor": "actor",
    "actor_source": "actor_source",
    "subject": "subject",
    "oidc_binding_id": "oidc_binding_id",
    "request_id": "request_id",
    "source_ip": "source_ip",
    "received_at": "received_at",
    "payload": "payload",
    "ecosystem": "ecosystem",
    "repository_id": "repository_id",
    "run_id": "run_id",
    "token_id": "token_id",
    "file_name": "file_name",
    "file_sha256": "file_sha256",
    "client": "client",
}
"""Member to stored column. Written out, and not derived: what follows from it must not change."""

# RFC 8785 sorts members; those of a struct are encoded in the order of its fields.
_MEMBERS: Final = sorted([*COLUMNS, "nonce", "v"])
_Entry: Final = msgspec.defstruct("_Entry", [(name, Any) for name in _MEMBERS], gc=False)
_encode: Final = msgspec.json.Encoder().encode


def entries(rows: pa.Table, tenant_id: str, day_key: bytes) -> Iterator[bytes]:
    """The entry of each of `rows`: of one tenant and day, AUDIT_SCHEMA."""
    seqs = rows.column("seq").to_pylist()
    constant = {"tenant_id": tenant_id, "v": VERSION}
    special: dict[str, Callable[[], list[Any]]] = {
        "id": lambda: [audit_id(seq) for seq in seqs],
        "created_at": lambda: _instants(rows.column("created_at")),
        "received_at": lambda: _instants(rows.column("received_at")),
        "nonce": lambda: [nonce(day_key, seq) for seq in seqs],
    }

    def values(name: str) -> list[Any]:
        if name in constant:
            return [constant[name]] * len(seqs)
        return special[name]() if name in special else rows.column(COLUMNS[name]).to_pylist()

    return map(_encode, map(_Entry, *map(values, _MEMBERS)))


def leaf_hashes(rows: pa.Table, tenant_id: str, day_key: bytes) -> bytes:
    """The hashes of `rows` as leaves, one behind the other."""
    return b"".join(map(leaf_hash, entries(rows, tenant_id, day_key)))


def nonce(day_key: bytes, seq: int) -> str:
    """What hides a row from those who have only its hash; without the day's key it is random."""
    message = seq.to_bytes(_SEQ_BYTES)
    return hmac.digest(day_key, message, hashlib.sha256)[:_NONCE_BYTES].hex()


def _instants(column: pa.ChunkedArray) -> list[str]:
    spelt = column.cast(_NAIVE).cast(pa.string()).to_pylist()
    return [f"{text[:10]}T{text[11:]}Z" for text in spelt]
