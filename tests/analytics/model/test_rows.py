"""Audit rows: what an event and its stamp become."""

import json
from dataclasses import asdict, replace
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.model.envelopes import (
    Admission,
    BlocklistHit,
    InstallAllowed,
    OidcBindingRevoked,
    OssFirstParty,
    VerifiedCi,
)
from analytics.model.events import Envelope
from analytics.model.org_envelopes import SignedOut
from analytics.model.rows import AuditContext, VerdictSource, audit_row, ci_columns
from analytics.model.schema import JOURNAL_SCHEMA, to_table
from tests.analytics.samples import NOON, sample_row
from tests.budgets import budget

AUDIT_CONTEXT = AuditContext(
    actor="github:mem_1",
    actor_source="session",
    verdict_source=VerdictSource.DASHBOARD,
    actor_tenant_id="org_platform",
    request_id="req_1",
    source_ip="192.0.2.7",
)


def test_a_row_says_who_did_what_when_and_through_which_door():
    row = audit_row(
        SignedOut(member_id="mem_1", session_id="ses_1"), AUDIT_CONTEXT, NOON, subject="mem_1"
    )

    audit_context = asdict(AUDIT_CONTEXT)
    assert audit_context.pop("ci") is None
    assert msgspec.structs.asdict(row) == audit_context | {
        "created_at": NOON,
        "received_at": NOON,
        "event": "signed_out",
        "package_name": None,
        "version": None,
        "decision": None,
        "decision_reason": '{"member_id":"mem_1","session_id":"ses_1"}',
        "subject": "mem_1",
        "oidc_binding_id": None,
        "payload": '{"member_id":"mem_1","session_id":"ses_1"}',
        "ecosystem": None,
        "repository_id": None,
        "run_id": None,
        "token_id": None,
        "file_name": None,
        "file_sha256": None,
        "client": None,
    }


@pytest.mark.parametrize(
    ("envelope", "keys"),
    [
        (InstallAllowed(), {}),
        (BlocklistHit(rule_id="r", source="osv"), {"rule_id": "r", "source": "osv"}),
    ],
)
def test_a_row_of_a_ci_job_says_what_its_token_said(envelope: Envelope, keys: dict[str, str]):
    audit_context = AUDIT_CONTEXT.of_ci_job(
        "github", "obind_1", VerifiedCi(sub="repo:a/b", run_id="7", jti="j")
    )

    row = audit_row(envelope, audit_context, NOON)

    assert json.loads(row.payload) == keys | {"ci": {"sub": "repo:a/b", "run_id": "7", "jti": "j"}}
    assert (row.repository_id, row.run_id, row.token_id) == (None, "7", "j")
    assert json.loads(row.decision_reason) == keys
    assert (row.actor, row.actor_source) == (AUDIT_CONTEXT.actor, "oidc_github")
    assert row.oidc_binding_id == "obind_1"


def test_a_row_says_what_an_install_was_admitted_by():
    admission = Admission(registry="https://pypi.org/", policy_revision=7, blocklist_generation=3)
    facts = {"registry": "https://pypi.org/", "policy_revision": 7, "blocklist_generation": 3}

    row = audit_row(InstallAllowed(), AUDIT_CONTEXT, NOON, admission=admission)
    of_job = AUDIT_CONTEXT.of_ci_job("github", "obind_1", VerifiedCi(sub="s"))
    both = audit_row(OssFirstParty(registry="own"), of_job, NOON, admission=admission)

    assert json.loads(row.payload) == {"admission": facts}
    assert json.loads(both.payload) == {
        "registry": "own",
        "ci": {"sub": "s"},
        "admission": facts,
    }
    assert (row.decision_reason, both.decision_reason) == ("{}", '{"registry":"own"}')


@pytest.mark.parametrize("claim", ["", None, msgspec.UNSET, "a\0b", "\u202e7", "x" * 257])
def test_a_column_has_no_claim_that_cannot_be_typed(claim):
    """The payload keeps it; a filter needs text that looks like what it is."""
    columns = ci_columns(VerifiedCi(sub="s", repository_id=claim, run_id=claim, jti=claim))

    assert columns == (None, None, None)
    assert ci_columns(VerifiedCi(sub="s", jti="x" * 256)).token_id == "x" * 256


def test_what_the_reason_has_no_room_for_the_payload_keeps():
    """The column is for people; the payload is the whole evidence."""
    revoked = OidcBindingRevoked(binding_id="b", revoked_reason="x" * 1024, by_user_id="u")

    row = audit_row(revoked, AUDIT_CONTEXT, NOON)

    assert len(row.decision_reason) <= 256
    assert json.loads(row.decision_reason)["truncated"] is True
    assert json.loads(row.payload)["revoked_reason"] == "x" * 1024
    assert "truncated" not in json.loads(row.payload)


def test_rows_become_a_table_in_their_order():
    rows = [sample_row(package_name=name) for name in ("b", "a", None)]

    assert to_table(rows).to_pylist() == [msgspec.structs.asdict(row) for row in rows]
    assert to_table([]).schema.equals(JOURNAL_SCHEMA)


SOME = st.sampled_from([None, "", "a", "é"])


@settings(max_examples=budget(10, 50))
@given(
    rows=st.lists(
        st.builds(
            sample_row,
            st.sampled_from([NOON, NOON + timedelta(microseconds=1)]),
            package_name=SOME,
            request_id=SOME,
            verdict_source=st.sampled_from(VerdictSource),
        ),
        max_size=5,
    )
)
def test_what_rows_have_in_common_is_stored_like_what_they_have_not(rows):
    table = to_table(rows)

    table.validate(full=True)
    assert table.schema.equals(JOURNAL_SCHEMA)
    assert table.to_pylist() == [msgspec.structs.asdict(row) for row in rows]


@pytest.mark.parametrize("name", ["proxy", "admin_api", "dashboard", "cli", "system"])
def test_these_surfaces_produce_rows(name):
    assert replace(AUDIT_CONTEXT, verdict_source=VerdictSource(name)).verdict_source == name
    assert len(VerdictSource) == 5
