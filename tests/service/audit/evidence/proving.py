"""What tests of evidence share: proofs through the API, verified as another party would."""

import asyncio
import base64
import json
from typing import Any

from sqlalchemy import select

from analytics.evidence.merkle import leaf_hash, verify_consistency, verify_inclusion
from analytics.evidence.notes import Checkpoint, VerifierKey, parse_inclusion
from service.app.composition import Services
from service.store.lease import LeaseTaken
from service.store.tables import EvidenceCheckpoint
from tests.service.audit.conftest import AuditWorld


async def take_in(services: Services) -> int:
    """Sign what is due, once the job of the app that runs has ended its step; how many rows."""
    while True:
        try:
            return await services.checkpointer.take_in()
        except LeaseTaken:
            await asyncio.sleep(0.01)  # no event tells; the test's own timeout ends a wait in vain


async def sign(audit: AuditWorld) -> int:
    """Sign what is due; how many rows that were."""
    return await audit.services.checkpointer.take_in()


async def answer(audit: AuditWorld, path: str, slug: str = "acme", **query: Any) -> dict[str, Any]:
    response = await audit.get(path, slug, **query)
    body = await response.get_json()
    assert response.status_code == 200, body
    return body


async def refusal(
    audit: AuditWorld, path: str, slug: str = "acme", **query: Any
) -> tuple[int, str]:
    """Status and text."""
    response = await audit.get(path, slug, **query)
    return response.status_code, (await response.get_json())["error"]


def checked(said: dict[str, Any]) -> Checkpoint:
    """The checkpoint that a proof leads to, once the proof is verified with what it says itself."""
    proof = parse_inclusion(said["proof"])
    keys = [VerifierKey.parse(key) for key in said["keys"]]
    proof.checkpoint.check(keys)
    checkpoint = Checkpoint.parse(proof.checkpoint.text)
    leaf = leaf_hash(said["entry"].encode())
    verify_inclusion(leaf, proof.number, checkpoint.size, proof.hashes, checkpoint.root)
    assert (proof.number, checkpoint.size) == (said["index"], said["size"])
    assert [base64.b64decode(each) for each in said["hashes"]] == list(proof.hashes)
    return checkpoint


async def prove(audit: AuditWorld, row: dict[str, Any]) -> dict[str, Any]:
    """The verified proof of a row, which is of what the API says the row is."""
    said = await answer(audit, f"/{row['id']}/proof")
    checked(said)
    entry = json.loads(said["entry"])
    assert len(entry.pop("nonce")) == 32
    assert entry.pop("v") == "1"
    assert json.loads(entry.pop("payload")) == row["payload"]
    assert entry == {name: value for name, value in row.items() if name != "payload"}
    return said


async def checkpoints(audit: AuditWorld) -> list[EvidenceCheckpoint]:
    """Acme's, the oldest first."""
    async with audit.services.store.read() as session:
        stored = await session.scalars(
            select(EvidenceCheckpoint)
            .where(EvidenceCheckpoint.tenant_id == audit.world.acme.id)
            .order_by(EvidenceCheckpoint.size)
        )
        return [*stored]


async def check_consistency(
    audit: AuditWorld, old: EvidenceCheckpoint, new: EvidenceCheckpoint
) -> None:
    said = await answer(audit, "/consistency", old=old.size, new=new.size)
    hashes = [base64.b64decode(each) for each in said["hashes"]]
    verify_consistency(old.size, new.size, old.root, new.root, hashes)
