"""The canonical bytes of rows, and their hashes as leaves of the tree.

An entry is the row as one JSON object (RFC 8785): the wire columns of schema version 3 as strings
or null, `payload` as its stored text, with `nonce` and `v`. These bytes never change: a proof that
was given is verified with them for years. What a later schema version adds is in a later version
of entries, which begins at a `seq` and not before.
"""

import hashlib
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from analytics.export.csv_json import around
from analytics.export.text_encoder import TextEncoder
from analytics.export.wire import wire_values

VERSION: Final = "1"
DAY_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 16
_SEQ_BYTES: Final = 8
_BLOCK_BYTES: Final = 64
_PADS: Final = (0x36, 0x5C)
_ESCAPED: Final = r'["\\\x00-\x1f]'

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

# RFC 8785 sorts members.
_MEMBERS: Final = {name: COLUMNS.get(name, name) for name in sorted([*COLUMNS, "nonce", "v"])}
_FIRST, *_, _LAST = _MEMBERS


class _EntrySpelling:
    """An entry, and a line feed, which none has."""

    def around(self, name: str) -> tuple[str, str]:
        """See Spelling."""
        key = f'{"{" if name == _FIRST else ","}"{name}":"'
        return key, '"}\n' if name == _LAST else '"'

    def texts(self, name: str, values: pa.StringArray) -> pa.StringArray:
        """See Spelling."""
        before, after = self.around(name)
        spelt = around(before, _escaped(values), after)
        return spelt.fill_null(f"{before[:-1]}null{after[1:]}")


# Those of a struct are encoded in the order of its fields.
_Entry: Final = msgspec.defstruct("_Entry", [(name, Any) for name in _MEMBERS], gc=False)
_encode: Final = msgspec.json.Encoder().encode
_MANY_ROWS: Final = 2_048
"""For fewer the columns are not worth more than a look at each value."""


def entries(rows: pa.Table, tenant_id: str, day_key: bytes) -> list[bytes]:
    """The entry of each of `rows`: of one tenant and day, AUDIT_SCHEMA.

    Text columns may be dictionaries.
    """
    codes = nonces(day_key, rows.column("seq").to_pylist())
    if rows.num_rows < _MANY_ROWS:
        members = wire_values(rows, tenant_id) | {"nonce": codes, "v": repeat(VERSION)}
        return list(map(_encode, map(_Entry, *(members[name] for name in _MEMBERS))))
    rows = rows.append_column("nonce", pa.array(codes, pa.string()))
    rows = rows.append_column("v", pa.repeat(pa.scalar(VERSION, pa.string()), rows.num_rows))
    pieces = TextEncoder(tenant_id, _EntrySpelling(), _MEMBERS).texts(rows)
    return [entry for piece, _ in pieces for entry in piece.split(b"\n")[:-1]]


def _escaped(values: pa.StringArray) -> pa.StringArray:
    """`values` with what RFC 8785 escapes; all else is as it is."""
    is_escaped = pc.match_substring_regex(values, _ESCAPED).fill_null(False)
    if not pc.any(is_escaped).as_py():
        return values
    spelt = [_encode(text)[1:-1] for text in values.filter(is_escaped).to_pylist()]
    return pc.replace_with_mask(values, is_escaped, pa.array(spelt, pa.string()))


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
