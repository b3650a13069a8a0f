"""The canonical bytes of rows, and their hashes as leaves of the tree.

An entry is the row as one JSON object (RFC 8785): the wire columns of schema version 3 as strings
or null, `payload` as its stored text, with `nonce` and `v`. These bytes never change: a proof that
was given is verified with them for years. What a later schema version adds is in a later version
of entries, which begins at a `seq` and not before.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.schema import audit_id

VERSION: Final = "1"
DAY_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 16
_SEQ_BYTES: Final = 8
_BLOCK_BYTES: Final = 64
_PADS: Final = (0x36, 0x5C)
_NAIVE: Final = pa.timestamp("us")

_OF_ONE_NAME: Final = (
    "created_at event version decision decision_reason verdict_source actor_tenant_id actor"
    " actor_source subject oidc_binding_id request_id source_ip received_at payload ecosystem"
    " repository_id run_id token_id file_name file_sha256 client"
)
COLUMNS: Final = {
    "id": "seq",
    "packageName": "package_name",
    "tenant_id": "",
    **{name: name for name in _OF_ONE_NAME.split()},
}
"""Member to stored column. Written out, and not derived: what follows from it must not change."""

# RFC 8785 sorts members; those of a struct are encoded in the order of its fields.
_MEMBERS: Final = sorted([*COLUMNS, "nonce", "v"])
_Entry: Final = msgspec.defstruct("_Entry", [(name, Any) for name in _MEMBERS], gc=False)
_encode: Final = msgspec.json.Encoder().encode


def entries(rows: pa.Table, tenant_id: str, day_key: bytes) -> Iterator[bytes]:
    """The entry of each of `rows`: of one tenant and day, AUDIT_SCHEMA."""
    seqs = rows.column("seq").to_pylist()
    members: dict[str, Iterable[str | None]] = {
        "id": map(audit_id, seqs),
        "created_at": _instants(rows.column("created_at")),
        "received_at": _instants(rows.column("received_at")),
        "nonce": nonces(day_key, seqs),
        "tenant_id": repeat(tenant_id),
        "v": repeat(VERSION),
    }
    for name in COLUMNS.keys() - members.keys():
        members[name] = rows.column(COLUMNS[name]).to_pylist()
    return map(_encode, map(_Entry, *(members[name] for name in _MEMBERS)))


def nonces(day_key: bytes, seqs: Iterable[int]) -> list[str]:
    """What hides rows from those who have only their hashes; without the day's key it is random.

    HMAC-SHA256 (RFC 2104) of each seq. The two blocks of the key are hashed once: with `hmac` it
    takes a third of the time of all that a row costs.
    """
    padded = day_key.ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in padded)) for pad in _PADS)
    found = []
    for seq in seqs:
        message, code = inner.copy(), outer.copy()
        message.update(seq.to_bytes(_SEQ_BYTES))
        code.update(message.digest())
        found.append(code.digest()[:_NONCE_BYTES].hex())
    return found


def _instants(column: pa.ChunkedArray) -> list[str]:
    spelt = column.cast(_NAIVE).cast(pa.string())
    spelt = pc.binary_join_element_wise(pc.binary_replace_slice(spelt, 10, 11, "T"), "Z", "")
    texts: list[str] = spelt.to_pylist()
    return texts
