"""The audit row: its wire spelling and its public id."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.schema import (
    AUDIT_SCHEMA,
    COLUMNS,
    JOURNAL_SCHEMA,
    SCHEMA_VERSION,
    WIRE_COLUMNS,
    NewerSchema,
    audit_id,
    parse_audit_id,
    schema_of,
)

SEQS = st.integers(min_value=0, max_value=2**63 - 1)
NAMES = (
    "seq created_at received_at event package_name version decision decision_reason verdict_source"
    " actor_tenant_id actor actor_source subject oidc_binding_id request_id source_ip payload"
    " ecosystem repository_id run_id token_id file_name file_sha256 client"
)
NUMBERS = {name: number for number, name in enumerate(NAMES.split(), start=1)}


def test_the_wire_has_one_order_and_one_spelling():
    """The audit row as docs/audit-rows.md lists it."""
    expected = (
        "id created_at event packageName version decision decision_reason verdict_source tenant_id"
        " actor_tenant_id actor actor_source subject oidc_binding_id request_id source_ip"
        " received_at payload ecosystem repository_id run_id token_id file_name file_sha256 client"
    )

    assert list(WIRE_COLUMNS) == expected.split()


def test_every_stored_column_leaves_under_exactly_one_name():
    """Nothing stored is hidden from an export; only the tenant is added."""
    stored = [column for column in WIRE_COLUMNS.values() if column]

    assert sorted(stored) == sorted(AUDIT_SCHEMA.names)


def test_the_row_has_these_columns_and_no_tenant_or_day():
    """The path carries tenant and day; a second copy could contradict it."""
    assert AUDIT_SCHEMA.names == list(NUMBERS)
    assert AUDIT_SCHEMA.field("seq").type == pa.int64()
    for instant in ("created_at", "received_at"):
        assert AUDIT_SCHEMA.field(instant).type == pa.timestamp("us", tz="UTC")
    required = {field.name for field in AUDIT_SCHEMA if not field.nullable}
    assert required == {*NAMES.split()[:4], "verdict_source", "actor", "actor_source"}


def test_a_journal_row_is_an_audit_row_without_its_place():
    assert JOURNAL_SCHEMA.names == AUDIT_SCHEMA.names[1:]


def test_a_column_keeps_its_number():
    """Parquet readers find columns by it: reused, it would mix two columns."""
    assert {column.name: column.field_id for column in COLUMNS} == NUMBERS


def test_a_version_only_appends_columns_that_may_be_null():
    """Rows of all earlier versions can then be read as rows of this one."""
    added = [column.since for column in COLUMNS]

    assert added == sorted(added)
    assert SCHEMA_VERSION == added[-1] == 3
    assert [len(schema_of(version, "a file")) for version in (1, 2, 3)] == [17, 21, 24]
    assert schema_of(SCHEMA_VERSION, "a file").equals(AUDIT_SCHEMA)
    assert all(
        column.type == pa.string() and not column.is_required
        for column in COLUMNS
        if column.since > 1
    )


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
def test_a_version_that_is_not_known_is_refused(version):
    """Only a later version of Countersign can have written it."""
    with pytest.raises(NewerSchema, match=r"^a file was written by a newer version"):
        schema_of(version, "a file")


@given(SEQS, SEQS)
def test_ids_sort_as_rows_were_accepted(one, other):
    """A reader may compare ids as text."""
    assert (audit_id(one) < audit_id(other)) == (one < other)


@given(SEQS)
def test_an_id_leads_back_to_its_row(seq):
    assert parse_audit_id(audit_id(seq)) == seq


@pytest.mark.parametrize(
    "text",
    [
        *("", "aud_", "aud_1", "0000000000000000001", "AUD_0000000000000000001"),
        *("aud_000000000000000000", "aud_00000000000000000001", "aud_aud_0000000000000000001"),
        *("aud_9223372036854775808", "aud_9999999999999999999", "obind_0000000000000000001"),
        *("aud_000000000000000000a", "aud_000000000000000000١", "aud_000000000000000000²"),
        *("aud_-000000000000000001", "aud_+000000000000000001", "aud_ 000000000000000001"),
        *("aud_000000000000000001\n", "aud_0000000000000000001\n", "aud_00000000_0000000001"),
    ],
)
def test_only_the_one_spelling_of_an_id_names_a_row(text):
    """A second spelling would be a second address of the same thing."""
    assert parse_audit_id(text) is None
