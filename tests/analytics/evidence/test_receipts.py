"""Signed receipts: what was changed in one is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from analytics.evidence.policies import Policy
from analytics.evidence.receipts import digest_of, verify_receipt_file
from tests.evidence.logs import Log

LOG = Log(30)
OTHER = Log(30, tenant_id="org_other")
EXPORTED = b"id,event\naud_1,blocklist_hit\n"


def changed(receipt: bytes) -> bytes:
    return receipt.replace(b'"rows": 2', b'"rows": 3')


def changed_with_its_digest(receipt: bytes) -> bytes:
    """Anyone can compute a digest, and only the key signs."""
    forged = json.loads(LOG.receipt(EXPORTED, rows=3))
    forged["signature"] = json.loads(receipt)["signature"]
    forged["digest"] = digest_of(forged, "digest")
    return json.dumps(forged).encode()


def unsigned(receipt: bytes) -> bytes:
    fields = json.loads(receipt)
    del fields["signature"]
    fields["digest"] = digest_of(fields, "digest")
    return json.dumps(fields).encode()


def other_log(receipt: bytes) -> bytes:
    return OTHER.receipt(EXPORTED)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed, "changed, as its digest is another one"),
        (changed_with_its_digest, f"the signature of {LOG.origin} is wrong"),
        (unsigned, "not signed"),
        (other_log, f"of the log {OTHER.origin}; trusted are: {LOG.key.label}"),
    ],
)
def test_what_is_changed_in_a_receipt_is_named(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    (tmp_path / "acme.csv").write_bytes(EXPORTED)
    path = tmp_path / "acme.csv.receipt.json"
    policy = Policy((LOG.key,))
    path.write_bytes(LOG.receipt(EXPORTED))
    assert verify_receipt_file(path, policy).findings == []
    path.write_bytes(change(LOG.receipt(EXPORTED)))
    result = verify_receipt_file(path, policy)
    assert result.findings == [f"acme.csv.receipt.json: {said}"]
    assert result.proved == []


def test_an_exported_file_may_be_large(tmp_path: Path) -> None:
    exported = bytes(3 * 2**20)
    path = tmp_path / "acme.csv.receipt.json"
    path.write_bytes(LOG.receipt(exported))
    for content, findings in (
        (exported, []),
        (exported + b"x", ["acme.csv: not the file of export exp_1: its SHA-256 differs"]),
    ):
        (tmp_path / "acme.csv").write_bytes(content)
        assert verify_receipt_file(path, Policy((LOG.key,))).findings == findings
