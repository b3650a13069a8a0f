"""The bytes of entries: those of another implementation of RFC 8785, and never others."""

import hashlib
import hmac
import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
import rfc8785

from analytics.evidence.canonical import COLUMNS, entries, nonces
from analytics.evidence.groups import leaves_of
from analytics.evidence.merkle import leaf_hash
from analytics.model.schema import AUDIT_SCHEMA, WIRE_COLUMNS

KEY = bytes(range(32))
AT = datetime(2026, 11, 5, 23, 59, 59, 123_400, tzinfo=UTC)
REQUIRED = {"seq": 41, "created_at": AT, "received_at": AT}


def table(**values: object) -> pa.Table:
    given = dict.fromkeys(AUDIT_SCHEMA.names) | REQUIRED
    given |= {f.name: "x" for f in AUDIT_SCHEMA if not f.nullable and f.name not in REQUIRED}
    return pa.Table.from_pylist([given | values], schema=AUDIT_SCHEMA)


def test_the_first_version_never_changes() -> None:
    """A customer may hold a proof of this entry: change no byte of it."""
    row = table(
        event="blocklist_hit",
        package_name="@acme/ui",
        payload='{"b": 1,\n "a": "é"}',
        actor="key_1",
        decision="BLOCKED",
    )
    (entry,) = entries(row, "org_1", KEY)
    assert json.loads(entry)["payload"] == '{"b": 1,\n "a": "é"}'
    assert entry.startswith(b'{"actor":"key_1","actor_source":"x","actor_tenant_id":null,"client"')
    assert hashlib.sha256(entry).hexdigest() == (
        "2f32d16f8c902a6403b1787716ba3a9279d00f2d897a529a9214f0fa91909c64"
    )


def test_version_1_has_the_columns_of_schema_version_3() -> None:
    """A later column belongs into a later version of entries."""
    assert {name: WIRE_COLUMNS[name] for name in COLUMNS} == COLUMNS
    assert set(WIRE_COLUMNS) == set(COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "\0\x01\x08\t\n\x0b\x0c\r\x1f",
        '"\\/',
        "\x7f\x80\u2028\u2029",
        "é",
        "\U0001f600",
        "\ufeff",
        "",
    ],
)
def test_text_is_spelt_as_rfc_8785_does(text: str) -> None:
    (entry,) = entries(table(payload=text, subject=text), "org_1", KEY)
    assert rfc8785.dumps(json.loads(entry)) == entry


def test_a_leaf_is_the_hash_of_the_entry_with_its_nonce() -> None:
    row, day = table(), date(2026, 3, 5)
    (entry,) = entries(row, "org_1", KEY)
    assert leaves_of([(day, row)], "org_1", {day: KEY}) == [(41, leaf_hash(entry))]
    assert [json.loads(entry)["nonce"]] == nonces(KEY, [41]) != nonces(KEY, [42])
    assert leaves_of([(day, row)], "org_2", {day: KEY}) != [(41, leaf_hash(entry))]


def test_a_nonce_is_the_beginning_of_an_hmac() -> None:
    seqs = [0, 1, 41, 2**63 - 1]
    expected = [hmac.digest(KEY, seq.to_bytes(8), "sha256")[:16].hex() for seq in seqs]
    assert nonces(KEY, seqs) == expected
