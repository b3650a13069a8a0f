"""What is stated of an admitted package, made of nothing but its row and where the service is.

The predicate is the ingestion provenance of SLSA's dependency track, a draft:
https://slsa.dev/spec/draft/dependency-provenance. The statement is in-toto's, version 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import msgspec

from analytics.model.envelopes import Admission, Cured, InstallWouldBlock, OssFirstParty
from service.packages.policy.evaluation import reason_of_cure
from service.packages.refusals import NOT_ADMITTED, NOT_AS_POLICY_SAYS

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_NOTED: Final = {
    "auditId": "id",
    "organisation": "tenant_id",
    "repositoryId": "repository_id",
    "runId": "run_id",
}
"""The annotations of a subject, and the members of the row that they have."""

_STORED_WITHIN: Final = timedelta(seconds=1)
"""The proxy stores a row at once: one that was received at another time is from a file."""

_ISOLATION: Final = "The service stores and forwards package files, and executes nothing of them."


@dataclass(frozen=True, slots=True)
class Ingestor:
    """The organisation `slug` of the service at the URL `platform`."""

    platform: str
    slug: str

    def statement(self, row: Mapping[str, Any]) -> bytes:
        """What is stated of `row`, in the wire form, as RFC 8785 JSON: the same bytes each time.

        Raises NOT_AS_POLICY_SAYS, NOT_ADMITTED.
        """
        admission = _admission(row)
        package, version = row["packageName"], row["version"]
        seen = {} if row["file_sha256"] is None else {"sha256": row["file_sha256"]}
        algorithm, _, digest = (admission.digest or "").partition(":")
        stated = {algorithm: digest} if digest else seen
        subject = {
            "name": row["file_name"] or f"{package}@{version}",
            # See github.com/package-url/purl-spec.
            "uri": f"pkg:{row['ecosystem']}/{quote(package)}@{quote(version, safe='')}",
            "digest": stated | seen,
            "annotations": {name: row[key] for name, key in _NOTED.items() if row[key]},
        }
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [subject],
            "predicateType": "https://slsa.dev/dependency/v1",
            "predicate": self._predicate(row, admission, stated),
        }
        # Names of members are ASCII, and there are no numbers: sorted, this is RFC 8785.
        return msgspec.json.encode(statement, order="sorted")

    def _predicate(
        self, row: Mapping[str, Any], admission: Admission, stated: Mapping[str, str]
    ) -> dict[str, Any]:
        at, is_first_party = row["created_at"], row["event"] == OssFirstParty.event
        isolation = {"description": _ISOLATION}
        upstream = {"name": row["packageName"], "version": row["version"], "digest": stated}
        return {
            "ingestor": {"id": f"{self.platform}/admin/ui/orgs/{self.slug}"},
            "ingestionPlatform": {"id": self.platform},
            "upstream": {"registry": admission.registry, **upstream},
            "ingestion": {
                "timestamp": at,
                "path": f"{self.platform}/proxy/{self.slug}/{row['ecosystem']}/",
            },
            # The blocklist is not asked about first-party packages.
            "scans": [] if is_first_party else [self._scan(at, admission.blocklist_generation)],
            "integrity": {"method": "hash", "expected": stated, "result": "verified"},
            "publisherSignature": {"result": "unverified"},
            "policyEvaluations": [
                {
                    "policy": {
                        "id": f"{self.platform}/api/v1/admin/orgs/{self.slug}/policy",
                        "version": str(admission.policy_revision),
                    },
                    "timestamp": at,
                    "result": "allow",
                    "description": _reason(row, admission),
                }
            ],
            "ingestionIsolation": {"method": "no-dep-code-executed", **isolation},
        }

    def _scan(self, at: str, generation: int) -> dict[str, Any]:
        scan = {"type": "blocklist", "timestamp": at}
        if not generation:
            return scan | {"dataSource": "blocklist", "availability": "unavailable"}
        source = f"blocklist, generation {generation}"
        return scan | {
            "dataSource": source,
            "scanner": {"id": self.platform},
            "verdict": "clean",
        }


def _reason(row: Mapping[str, Any], admission: Admission) -> str:
    if row["event"] == OssFirstParty.event:
        return f"first-party: from {row['payload']['registry']} alone"
    if admission.rule_id:
        return f"rule {admission.rule_id} lifts the cooldown"
    if cured := row["payload"].get("cured"):
        return reason_of_cure(msgspec.convert(cured, Cured))
    return "no rule is against it"


def _admission(row: Mapping[str, Any]) -> Admission:
    """What the proxy based the install on. Raises NOT_AS_POLICY_SAYS, NOT_ADMITTED."""
    if row["event"] == InstallWouldBlock.event:
        raise NOT_AS_POLICY_SAYS
    said = (row["payload"] or {}).get("admission")
    created_at, received_at = map(datetime.fromisoformat, (row["created_at"], row["received_at"]))
    if said is None or abs(received_at - created_at) > _STORED_WITHIN:
        raise NOT_ADMITTED
    return msgspec.convert(said, Admission)
