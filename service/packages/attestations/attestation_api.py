"""The endpoints for statements on admitted packages, signed when they are asked for."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from quart import Response

from analytics.evidence.dsse import Envelope, seal
from analytics.export.wire import json_objects
from analytics.model.envelopes import InstallCut
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
from service.packages.attestations.statement import PAYLOAD_TYPE, Ingestor
from service.packages.refusals import CUT_OFF, NOT_ADMITTED, NOT_AS_POLICY_SAYS, NoStatement
from service.store.transaction import within
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, PageCursor, Request, TimestampUs
from service.web.refusals import INVALID_CURSOR
from service.web.responses import json_answer

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
