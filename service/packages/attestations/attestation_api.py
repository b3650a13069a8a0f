"""The endpoints for statements on admitted packages, signed when they are asked for."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct
from quart import Response

from analytics.evidence.dsse import Envelope, seal
from analytics.export.wire import json_objects
from analytics.model.envelopes import Admission, Cured, InstallCut, InstallWouldBlock, OssFirstParty
from analytics.model.events import Decision
from analytics.model.filters import Order, Query, among
from analytics.model.schema import parse_audit_id
from service.access.roles import Capability
from service.audit.evidence.keys import (
    KEY_LOST,
    SigningKey,
    find_signing_key,
    signing_key,
)
from service.audit.query_service import PageRequest, find_entry
from service.audit.refusals import QUERY_REFUSALS, AuditRowNotFound
from service.audit.services import AuditServices
from service.audit.tenant_log import TenantLog, open_log
from service.packages.policy.evaluation import reason_of_cure
from service.packages.refusals import CUT_OFF, NOT_ADMITTED, NOT_AS_POLICY_SAYS, NoStatement
from service.store.transaction import within
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, PageCursor, Request, TimestampUs
from service.web.refusals import INVALID_CURSOR
from service.web.responses import json_answer

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

        The statement is in-toto's, version 1, and made of nothing but the row and where the service
        is. Its predicate is the ingestion provenance of SLSA's dependency track, a draft:
        https://slsa.dev/spec/draft/dependency-provenance.

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


LIMIT_MAX: Final = 100
_ROWS: Final = 1_000
_CUT_WITHIN: Final = timedelta(days=2)
"""How long after an install its transfer may be cut off: a later part may come for a day."""

_READ: Final = Capability.AUDIT_READ

resource = Resource("installs", "/installs", Tag.INSTALLS, AuditServices)


class SignedStatement(Answer, Envelope, kw_only=True, rename="camel"):
    """A statement as a DSSE envelope. One of the log's keys signed it."""


class AttestationsQuery(Request):
    """Which installs, and which page of them."""

    run_id: Annotated[str, Meta(min_length=1, description="Of this CI run.")] | None = None
    repository_id: (
        Annotated[str, Meta(min_length=1, description="The run's: it is unique within one.")] | None
    ) = None
    limit: Annotated[
        int, Meta(ge=1, le=LIMIT_MAX, description=f"At most so many; default {LIMIT_MAX}.")
    ] = LIMIT_MAX
    cursor: PageCursor | None = None


class AttestedInstall(Struct, kw_only=True):
    """An allowed install, and the statement about it; or in `missing`, why there is none."""

    id: str
    created_at: TimestampUs
    ecosystem: str | None
    package: str | None
    version: str | None
    file_name: str | None
    missing: str | None
    statement: Envelope | None


class AttestationList(Answer):
    """Allowed installs, the oldest first. `next_cursor` is null on the last page."""

    org: str
    installs: list[AttestedInstall]
    next_cursor: str | None


@resource.get(
    "get_attestation",
    "/<row:audit_id>/attestation",
    needs=_READ,
    returns=SignedStatement,
    refuses=[
        AuditRowNotFound,
        NOT_ADMITTED,
        NOT_AS_POLICY_SAYS,
        CUT_OFF,
        KEY_LOST,
        *QUERY_REFUSALS,
    ],
)
async def show(call: Call[AuditServices], audit_id: str) -> Response:
    """The signed statement on the package that an install admitted (SLSA, dependency track)."""
    log = await _log(call)
    (signed,) = await _signed(call, log, [await find_entry(log, audit_id)])
    if isinstance(signed, NoStatement):
        raise signed
    return json_answer(signed)


@resource.get(
    "list_attestations",
    "/attestations",
    needs=_READ,
    query=AttestationsQuery,
    returns=AttestationList,
    refuses=[INVALID_CURSOR, KEY_LOST, *QUERY_REFUSALS],
)
async def list_(call: Call[AuditServices], query: AttestationsQuery) -> AttestationList:
    """List allowed installs, such as those of a CI run, with the signed statement on each."""
    log = await _log(call)
    of_run = {"run_id": query.run_id, "repository_id": query.repository_id}
    conditions = [among(name, [text]) for name, text in of_run.items() if text is not None]
    allowed = Query(
        conditions=(among("decision", [Decision.ALLOWED]), *conditions), order=Order.OLDEST_FIRST
    )
    page = await call.services.queries.page(
        call.org, PageRequest(allowed, query.limit, query.cursor), call.services.clock(), log
    )
    signed = await _signed(call, log, page.entries)
    rows = map(json.loads, page.entries)
    return AttestationList(
        org=call.org.slug,
        installs=[_install(row, each) for row, each in zip(rows, signed, strict=True)],
        next_cursor=page.next_cursor,
    )


async def _log(call: Call[AuditServices]) -> TenantLog:
    services = call.services
    return await open_log(services.store, services.lake, call.org, services.clock())


async def _signed(
    call: Call[AuditServices], log: TenantLog, entries: Sequence[str]
) -> list[Envelope | NoStatement]:
    """The statement on each of `entries` (rows as JSON objects), or why there is none."""
    if not entries:
        return []
    ingestor = Ingestor(call.services.settings.public_url, call.org.slug)
    key, rows = await _key(call), [json.loads(entry) for entry in entries]
    cuts = await _cuts(log, rows)

    def sign(row: dict[str, Any]) -> Envelope | NoStatement:
        try:
            if row["id"] in cuts:
                raise CUT_OFF(value=cuts[row["id"]])
            return seal(key.private, key.id, PAYLOAD_TYPE, ingestor.statement(row))
        except NoStatement as refusal:
            return refusal

    return list(map(sign, rows))


async def _key(call: Call[AuditServices]) -> SigningKey:
    """The key that signs now; the first one is begun. Raises KEY_LOST."""
    secret, store = call.services.settings.secret_key, call.services.store
    async with store.read() as session:
        key = await within(session, find_signing_key, secret)
    if key is None:
        async with store.write() as work:
            key = await within(work.session, signing_key, secret, work.now)
    return key


async def _cuts(log: TenantLog, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Which rows say that the files of these installs did not arrive whole, by install."""
    at = [datetime.fromisoformat(row["created_at"]) for row in rows]
    names = {row["packageName"] for row in rows} - {None}
    if not names:
        return {}
    query = Query(
        min(at),
        max(at) + _CUT_WITHIN,
        (among("event", [InstallCut.event]), among("package_name", names)),
    )
    cuts: dict[str, str] = {}
    after: int | None = parse_audit_id(min(row["id"] for row in rows))
    while after is not None:
        found = await log.accepted_after(query, after, _ROWS, None)
        for cut in map(json.loads, json_objects(found, log.org.id)):
            cuts[cut["payload"]["install_id"]] = cut["id"]
        after = found["seq"][-1].as_py() if found.num_rows == _ROWS else None
    return cuts


def _install(row: dict[str, Any], signed: Envelope | NoStatement) -> AttestedInstall:
    is_missing = isinstance(signed, NoStatement)
    said = {
        "package": row["packageName"],
        "missing": str(signed) if is_missing else None,
        "statement": None if is_missing else signed,
    }
    return msgspec.convert(row | said, AttestedInstall)
