"""The bytes of entries: those of another implementation of RFC 8785, and never others."""

import hashlib
import hmac
import json
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.evidence import canonical
from analytics.evidence.canonical import COLUMNS, entries, nonces
from analytics.evidence.groups import leaf_parts
from analytics.evidence.merkle import leaf_hash
from analytics.model.instants import format_us
from analytics.model.schema import AUDIT_SCHEMA, WIRE_COLUMNS, audit_id
from analytics.storage.segment_reader import ENCODED_SCHEMA
from analytics.storage.segment_writer import ROW_GROUP_BYTES
from tests.budgets import budget

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


AWKWARD = (
    "\0\x01\x08\t\n\x0b\x0c\r\x1f",
    '"\\/',
    "\x7f\x80\u2028\u2029",
    "é",
    "\U0001f600",
    "\ufeff",
    "",
)
TEXTS = st.sampled_from(AWKWARD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
INSTANTS = st.integers(-(10**16), 10**17).map(lambda us: AT + timedelta(microseconds=us))


@st.composite
def several_rows(draw: st.DrawFn) -> pa.Table:
    """Rows whose columns have few different values, or none, or many."""
    count = draw(st.integers(1, 40))
    columns = []
    for field in AUDIT_SCHEMA:
        kind = {"seq": st.integers(0, 2**63 - 1)}.get(field.name, TEXTS)
        kind = INSTANTS if pa.types.is_timestamp(field.type) else kind
        values = draw(st.lists(kind, min_size=1, max_size=4))
        if field.nullable:
            values.append(None)
        columns.append(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)))
    return pa.table(columns, schema=AUDIT_SCHEMA)


def plain(row: dict[str, object], tenant_id: str) -> bytes:
    """A row's entry, by another implementation."""
    seq = row["seq"]
    at = {name: format_us(row[name]) for name in ("created_at", "received_at")}
    code = hmac.digest(KEY, seq.to_bytes(8), "sha256")[:16].hex()
    own = {"id": audit_id(seq), "tenant_id": tenant_id, "nonce": code, "v": "1", **at}
    return rfc8785.dumps({name: row.get(stored) for name, stored in COLUMNS.items()} | own)


@settings(max_examples=budget(60, 1_000), deadline=None)
@given(several_rows(), TEXTS, st.sampled_from([0, 2_048]))
def test_entries_are_those_of_another_implementation(
    rows: pa.Table, tenant_id: str, many: int
) -> None:
    """Encoded row by row and column by column, from text and from dictionaries."""
    expected = [plain(row, tenant_id) for row in rows.to_pylist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "_MANY_ROWS", many)
        assert entries(rows, tenant_id, KEY) == expected
        assert entries(rows.cast(ENCODED_SCHEMA), tenant_id, KEY) == expected


def test_entries_of_very_many_rows_are_those_of_few() -> None:
    """With more texts than are kept together, in which a line feed could part an entry."""
    texts = [f"{number}\n{AWKWARD[number % len(AWKWARD)]}" for number in range(5_000)]
    rows = pa.concat_tables(table(seq=n, payload=text) for n, text in enumerate(texts))
    alone = [*entries(rows[:2_000], "o", KEY), *entries(rows[2_000:4_000], "o", KEY)]
    assert entries(rows, "o", KEY)[:4_000] == alone


@pytest.mark.parametrize("text", AWKWARD)
def test_text_is_spelt_as_rfc_8785_does(text: str) -> None:
    (entry,) = entries(table(payload=text, subject=text), "org_1", KEY)
    assert rfc8785.dumps(json.loads(entry)) == entry


def test_a_leaf_is_the_hash_of_the_entry_with_its_nonce() -> None:
    row, day = table(), date(2026, 3, 5)
    (entry,) = entries(row, "org_1", KEY)
    (leaves,) = leaf_parts([(day, row)], "org_1", {day: KEY})
    assert leaves == [(41, leaf_hash(entry))]
    assert [json.loads(entry)["nonce"]] == nonces(KEY, [41]) != nonces(KEY, [42])
    assert [*leaf_parts([(day, row)], "org_2", {day: KEY})] != [leaves]


def test_few_long_rows_are_in_memory_at_once() -> None:
    """As many as of usual rows took a gigabyte, if each had eight kilobytes."""
    day, megabytes = date(2026, 3, 5), ROW_GROUP_BYTES >> 21
    rows = ((day, table(seq=seq, payload="x" * 2**20)) for seq in range(2 * megabytes + 1))
    parts = [len(leaves) for leaves in leaf_parts(rows, "org_1", {day: KEY})]
    assert parts == [megabytes, megabytes, 1]


def test_a_nonce_is_the_beginning_of_an_hmac() -> None:
    seqs = [0, 1, 41, 2**63 - 1]
    expected = [hmac.digest(KEY, seq.to_bytes(8), "sha256")[:16].hex() for seq in seqs]
    assert nonces(KEY, seqs) == expected
