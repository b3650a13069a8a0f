"""The auditor's report: clauses, live evidence for each, and reviews, which are rows."""

import base64
from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import fields
from sqlalchemy import update

from analytics.evidence.notes import Note
from analytics.model.log_envelopes import AuditRead
from service.audit.evidence.clauses import CLAUSES
from service.audit.evidence.report import WINDOW_OPEN, EvidenceReport
from service.audit.evidence.witnesses import add_witness
from service.audit.tenant_log import TenantLog
from service.core.text_rules import NOTE_INVALID, REASON_MAX
from service.orgs.organisations import hold
from service.store.tables import EvidenceCheckpoint, EvidenceTree, Organisation, SegmentEntry
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START
from tests.evidence.logs import SomeWitness
from tests.service.audit.evidence.proving import answer, sign

W1 = SomeWitness("w1.example/a")
WINDOW = {"since": f"{START - timedelta(days=1):%Y-%m-%d}", "until": f"{START:%Y-%m-%dT%H:%M:%S}Z"}


async def report(audit):
    return await answer(audit, "/evidence")


async def review(audit, who="auditor", **given):
    headers = audit.world.admin if who == "admin" else audit.world.session(who)
    answered = await audit.world.client.post(
        "/api/v1/admin/orgs/acme/audit/reviews",
        headers=headers | {"sec-fetch-site": "same-origin"},
        json=WINDOW | given,
    )
    return answered.status_code, await answered.get_json()


def test_every_clause_names_evidence_that_the_report_has():
    members = {field.name for field in fields(EvidenceReport)}
    for clause in CLAUSES:
        assert clause.shown
        assert set(clause.shown) <= members, clause


async def test_before_the_first_checkpoint_nothing_is_claimed(audit):
    said = await report(audit)
    assert (said["checkpoint"], said["witnesses"]) == (None, {})
    assert (said["compared_at"], said["difference_id"]) == (None, None)
    assert said["held_since"] is None
    assert said["object_lock"]["mode"] == "off"
    assert said["clock_refusal"] is None
    assert (said["readers"], said["reviews"]) == ([], [])
    assert (said["tier"], said["retention_days"]) == ("org", 365)
    assert len(said["clauses"]) == len(CLAUSES)


async def test_the_checkpoint_and_its_witnesses_are_those_of_now(audit):
    await audit.accept([sample_row()])
    await sign(audit)
    await add_witness(audit.services.store, BY_OPERATOR, str(W1.key), "https://w1.example/")
    said, checkpoint = await report(audit), await answer(audit, "/checkpoint")
    assert said["checkpoint"]["size"] == checkpoint["size"]
    assert said["checkpoint"]["signed_at"] == checkpoint["signed_at"]
    assert said["checkpoint"]["origin"] == checkpoint["origin"]
    assert said["checkpoint"]["suspended"] is None
    assert said["witnesses"] == {W1.name: False}

    (line,) = W1.cosign(Note.parse(checkpoint["note"])).signatures[-1:]
    async with audit.services.store.write() as work:
        signatures = EvidenceCheckpoint.signatures + f"{line}\n"
        await work.session.execute(update(EvidenceCheckpoint).values(signatures=signatures))
    assert (await report(audit))["witnesses"] == {W1.name: True}


async def test_what_differed_is_told_with_its_row(audit):
    await audit.accept([sample_row()])
    await sign(audit)
    async with audit.services.store.write() as work:
        await work.session.execute(update(EvidenceCheckpoint).values(root=b"\0" * 32))
    while await audit.services.monitor.compare_due():
        pass
    said = await report(audit)
    (row,) = await audit.pages(event="evidence_differs")
    assert said["difference_id"] == row["id"]
    assert said["compared_at"] is not None


async def test_a_hold_and_a_suspended_tree_are_told(audit):
    await audit.accept([sample_row()])
    await sign(audit)
    async with audit.services.store.write() as work:
        org = await work.session.get_one(Organisation, audit.world.acme.id)
        await hold(work, org, "case 7", BY_OPERATOR)
        await work.session.execute(update(EvidenceTree).values(suspended="restored"))
    said = await report(audit)
    assert said["held_reason"] == "case 7"
    assert said["checkpoint"]["suspended"] == "restored"


async def test_readers_are_those_of_90_days_with_exports(audit):
    async with audit.services.store.write() as work:
        read = AuditRead(hour="2026-01-01T00:00:00Z", kind="page")
        work.record(audit.world.acme.id, read, BY_OPERATOR)
    audit.clock.advance(days=91)
    exported = await audit.export(format="csv")
    await exported.get_data()
    async with audit.services.store.write() as work:
        for _ in range(2):
            work.record(audit.world.acme.id, read, replace(BY_OPERATOR, actor="github:mem_1"))
    readers = {
        (each["actor"], each["event"]): each["rows"] for each in (await report(audit))["readers"]
    }
    assert readers == {
        ("github:mem_1", "audit_read"): 2,
        ("system:admin-token", "audit_exported"): 1,
    }


async def test_a_review_is_a_row_with_count_and_checkpoint(audit):
    await audit.accept([sample_row(START - timedelta(hours=n), version=str(n)) for n in range(3)])
    await audit.accept([sample_row(START - timedelta(days=9))])
    await sign(audit)
    status, said = await review(audit, note="all expected")
    assert status == 201
    (row,) = await audit.pages(event="audit_reviewed")
    checkpoint = await answer(audit, "/checkpoint")
    window = {"since": WINDOW["since"], "until": WINDOW["until"]}
    counted = len(await audit.pages(**window))
    assert row["actor"] == f"github:{audit.world.members['auditor'].id}"
    assert said["rows"] == row["payload"]["rows"] == counted >= 2
    assert (said["checkpoint_size"], said["checkpoint_root"]) == (
        checkpoint["size"],
        checkpoint["root"],
    )
    assert len(base64.b64decode(said["checkpoint_root"])) == 32
    (listed,) = (await report(audit))["reviews"]
    assert listed == said | {
        "id": row["id"],
        "created_at": row["created_at"],
        "actor": row["actor"],
    }


async def test_a_review_before_the_first_checkpoint_says_so(audit):
    status, said = await review(audit)
    assert status == 201
    assert (said["checkpoint_size"], said["checkpoint_root"], said["note"]) == (None, None, None)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"since": "x"}, "since must be"),
        ({"since": ""}, "since must not be empty"),
        ({"since": WINDOW["until"]}, "since must be before until"),
        ({"until": "2099-01-01"}, WINDOW_OPEN.text),
        ({"note": "x" * (REASON_MAX + 1)}, NOTE_INVALID.example_text()),
        ({"note": "two\nlines"}, NOTE_INVALID.example_text()),
        ({"note": "\N{RIGHT-TO-LEFT OVERRIDE}x"}, NOTE_INVALID.example_text()),
        ({"more": 1}, "more"),
    ],
)
async def test_a_wrong_review_is_refused_and_no_row(audit, wrong, text):
    status, said = await review(audit, **wrong)
    assert status == 400
    assert text in said["error"]
    assert await audit.pages(event="audit_reviewed") == []


async def test_a_member_without_the_right_reviews_nothing(audit):
    assert (await review(audit, "member"))[0] == 403
    assert await audit.pages(event="audit_reviewed") == []


async def test_the_count_does_not_keep_other_writers_waiting(audit, monkeypatch):
    """The rows are counted before the transaction, which others wait for."""
    counted = TenantLog.count

    async def count(self, query, time_max_s):
        await audit.accept([sample_row()])  # needs the write lock
        return await counted(self, query, time_max_s)

    monkeypatch.setattr(TenantLog, "count", count)
    assert (await review(audit))[0] == 201


async def test_locked_files_are_counted(audit):
    """Of a bucket; a folder locks nothing."""
    await audit.accept([sample_row()])
    await audit.seal()
    files = (await report(audit))["object_lock"]
    assert (files["mode"], files["locked"]) == ("off", 0)
    assert files["files"] > 0
    async with audit.services.store.write() as work:
        locked = update(SegmentEntry).values(locked_until=work.now + timedelta(days=1))
        await work.session.execute(locked.where(SegmentEntry.tenant_id == audit.world.acme.id))
    files = (await report(audit))["object_lock"]
    assert files["locked"] == files["files"]
