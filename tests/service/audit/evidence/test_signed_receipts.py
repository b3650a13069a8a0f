"""Receipts of exports are signed with the last checkpoint, and stay as they were given."""

import hashlib
import json
import re
from datetime import timedelta

import msgspec
import pytest
from sqlalchemy import update

from analytics.evidence.notes import Checkpoint, Note, VerifierKey
from analytics.evidence.policies import Policy
from analytics.evidence.receipts import SignedReceipt, WrongReceipt, digest_of, verify_receipt
from service.audit.evidence.continuity import RESTORED, resume, suspend_trees
from service.audit.evidence.keys import begin_key
from service.store.tables import EvidenceCheckpoint, EvidenceTree
from service.store.transaction import within
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.evidence.proving import answer, checkpoints, sign

EXPORTS = "/api/v1/admin/orgs/acme/exports"


@pytest.fixture
async def filled(audit: AuditWorld) -> AuditWorld:
    await audit.accept([sample_row(START - timedelta(days=n)) for n in range(3)])
    await audit.seal()
    return audit


async def exported(audit: AuditWorld) -> tuple[str, bytes]:
    """The id of a finished export, and its file."""
    response = await audit.export(format="csv")
    content = await response.get_data()
    await audit.services.exporter.drain()
    return response.headers["x-export-id"], content


async def receipt_of(audit: AuditWorld, export_id: str) -> bytes:
    path = f"{EXPORTS}/{export_id}/receipt"
    response = await audit.world.client.get(path, headers=audit.world.admin)
    assert response.status_code == 200
    return await response.get_data()


async def policy_of(audit: AuditWorld) -> Policy:
    """The keys that the API gives."""
    said = await answer(audit, "/checkpoint")
    return Policy(tuple(map(VerifierKey.parse, said["keys"])))


async def verified(audit: AuditWorld, receipt: bytes) -> tuple[SignedReceipt, Checkpoint]:
    return verify_receipt(receipt, await policy_of(audit))


async def test_a_receipt_is_signed_with_the_last_checkpoint(filled: AuditWorld) -> None:
    await sign(filled)
    (signed,) = await checkpoints(filled)
    export_id, content = await exported(filled)

    receipt, checkpoint = await verified(filled, await receipt_of(filled, export_id))

    assert (checkpoint.size, checkpoint.root) == (signed.size, signed.root)
    assert checkpoint.origin.endswith(filled.world.acme.id)
    assert (receipt.export_id, receipt.size) == (export_id, len(content))
    assert receipt.sha256 == hashlib.sha256(content).hexdigest()


async def test_a_receipt_stays_the_same(filled: AuditWorld) -> None:
    """Whatever is signed later: who keeps one can compare it with what is given now."""
    await sign(filled)
    export_id, _ = await exported(filled)
    first = await receipt_of(filled, export_id)

    await sign(filled)
    assert len(await checkpoints(filled)) == 2
    async with filled.services.store.write() as work:
        cosigned = EvidenceCheckpoint.signatures + "— w1.example AAAAAAAA\n"
        await work.session.execute(update(EvidenceCheckpoint).values(signatures=cosigned))
    assert await receipt_of(filled, export_id) == first

    secret_key = filled.services.settings.secret_key
    async with filled.services.store.write() as work:
        await within(work.session, begin_key, secret_key, work.now)
    assert await receipt_of(filled, export_id) == first
    await verified(filled, first)
    new_id, _ = await exported(filled)
    await sign(filled)
    later_id, _ = await exported(filled)
    for each in (new_id, later_id):
        await verified(filled, await receipt_of(filled, each))
    keys = {
        Note.parse(json.loads(await receipt_of(filled, each))["checkpoint"]).signatures[0]
        for each in (new_id, later_id)
    }
    assert len(keys) == 2


@pytest.mark.parametrize("is_suspended", [False, True])
async def test_without_a_checkpoint_a_receipt_is_not_signed_and_stays_so(
    filled: AuditWorld, is_suspended: bool
) -> None:
    """An export of before the log was signed, or while it was not."""
    if is_suspended:
        await sign(filled)
        async with filled.services.store.write() as work:
            await work.session.execute(update(EvidenceTree).values(suspended="rollback"))
    export_id, _ = await exported(filled)
    first = await receipt_of(filled, export_id)
    assert not {"checkpoint", "signature"} & {*json.loads(first)}

    async with filled.services.store.write() as work:
        await work.session.execute(update(EvidenceTree).values(suspended=None))
    await sign(filled)
    assert await receipt_of(filled, export_id) == first
    with pytest.raises(WrongReceipt, match="not signed"):
        await verified(filled, first)


async def test_after_a_rollback_receipts_are_signed_by_the_log_that_begins(
    filled: AuditWorld,
) -> None:
    """Those of before keep the name of the former one."""
    await sign(filled)
    first_id, _ = await exported(filled)
    first = await receipt_of(filled, first_id)
    async with filled.services.store.write() as work:
        await suspend_trees(work.session, RESTORED)
    await resume(filled.services.store, BY_OPERATOR, (), is_rollback_accepted=True)
    between_id, _ = await exported(filled)
    await sign(filled)
    later_id, _ = await exported(filled)

    assert "checkpoint" not in json.loads(await receipt_of(filled, between_id))
    _, checkpoint = await verified(filled, await receipt_of(filled, later_id))
    assert re.fullmatch(r".+/\d+", checkpoint.origin)
    assert await receipt_of(filled, first_id) == first


async def test_with_another_secret_key_a_receipt_is_no_longer_signed(filled: AuditWorld) -> None:
    """The private key is derived from it, and stored nowhere."""
    await sign(filled)
    export_id, _ = await exported(filled)
    signed = json.loads(await receipt_of(filled, export_id))
    settings = filled.services.settings
    msgspec.structs.force_setattr(settings, "secret_key", "another-secret-key-of-this-test")

    unsigned = json.loads(await receipt_of(filled, export_id))

    assert unsigned["checkpoint"] == signed["checkpoint"]
    assert "signature" not in unsigned


@pytest.mark.parametrize("change", ["rows", "retention_floor", "filters", "checkpoint"])
async def test_every_member_of_a_receipt_is_signed(filled: AuditWorld, change: str) -> None:
    await sign(filled)
    export_id, _ = await exported(filled)
    fields = json.loads(await receipt_of(filled, export_id))
    policy = await policy_of(filled)
    fields[change] = 7 if change == "rows" else None
    if change == "checkpoint":
        await sign(filled)
        fields[change] = (await answer(filled, "/checkpoint"))["note"]
    fields["digest"] = digest_of(fields, "digest")
    with pytest.raises(ValueError, match=r"the signature of .* is wrong"):
        verify_receipt(json.dumps(fields, ensure_ascii=False).encode(), policy)
