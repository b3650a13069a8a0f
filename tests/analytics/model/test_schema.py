"""The audit row: its wire spelling and its public id."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.schema import (
    AUDIT_SCHEMA,
    JOURNAL_SCHEMA,
    WIRE_COLUMNS,
    audit_id,
    parse_audit_id,
)

SEQS = st.integers(min_value=0, max_value=2**63 - 1)


def test_the_wire_has_one_order_and_one_spelling():
    """JSON keys and CSV headers: the audit row as docs/audit-rows.md lists it."""
    assert list(WIRE_COLUMNS) == [
        "id",
        "created_at",
        "event",
        "packageName",
        "version",
        "decision",
        "decision_reason",
        "verdict_source",
        "tenant_id",
        "actor_tenant_id",
        "actor",
        "actor_source",
        "subject",
        "oidc_binding_id",
        "request_id",
        "source_ip",
        "received_at",
        "payload",
    ]


def test_every_stored_column_leaves_under_exactly_one_name():
    """Nothing stored is hidden from an export; only the tenant is added on the way out."""
    stored = [column for column in WIRE_COLUMNS.values() if column]

    assert sorted(stored) == sorted(AUDIT_SCHEMA.names)


def test_the_row_has_these_columns_and_no_tenant_or_day():
    """The path carries tenant and day; a second copy could contradict it."""
    assert AUDIT_SCHEMA.names == [
        "seq",
        "created_at",
        "received_at",
        "event",
        "package_name",
        "version",
        "decision",
        "decision_reason",
        "verdict_source",
        "actor_tenant_id",
        "actor",
        "actor_source",
        "subject",
        "oidc_binding_id",
        "request_id",
        "source_ip",
        "payload",
    ]
    assert AUDIT_SCHEMA.field("seq").type == pa.int64()
    for instant in ("created_at", "received_at"):
        assert AUDIT_SCHEMA.field(instant).type == pa.timestamp("us", tz="UTC")


def test_what_every_row_must_say_cannot_be_null():
    """Who did what, when, through which surface."""
    required = {field.name for field in AUDIT_SCHEMA if not field.nullable}

    assert required == {
        "seq",
        "created_at",
        "received_at",
        "event",
        "verdict_source",
        "actor",
        "actor_source",
    }


def test_a_journal_row_is_an_audit_row_without_its_place():
    """`seq` comes with the commit."""
    assert JOURNAL_SCHEMA.names == AUDIT_SCHEMA.names[1:]


@given(SEQS, SEQS)
def test_ids_sort_as_rows_were_accepted(one, other):
    """A reader may compare ids as text."""
    assert (audit_id(one) < audit_id(other)) == (one < other)


@given(SEQS)
def test_an_id_leads_back_to_its_row(seq):
    """GET audit/<id> finds what a page showed."""
    assert parse_audit_id(audit_id(seq)) == seq


@pytest.mark.parametrize(
    "text",
    [
        "",
        "aud_",
        "aud_1",
        "0000000000000000001",
        "aud_000000000000000000",
        "aud_00000000000000000001",
        "aud_9223372036854775808",
        "aud_9999999999999999999",
        "aud_000000000000000000a",
        "aud_-000000000000000001",
        "aud_+000000000000000001",
        "aud_ 000000000000000001",
        "aud_000000000000000001\n",
        "aud_0000000000000000001\n",
        "aud_00000000_0000000001",
        "aud_000000000000000000١",
        "aud_000000000000000000²",
        "AUD_0000000000000000001",
        "aud_aud_0000000000000000001",
        "obind_0000000000000000001",
    ],
)
def test_only_the_one_spelling_of_an_id_names_a_row(text):
    """A second spelling would be a second address of the same thing."""
    assert parse_audit_id(text) is None
