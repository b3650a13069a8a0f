"""Ingest of rows: validated one by one, committed together, answered once they are durable."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct
from quart import Blueprint
from quart.globals import request_ctx
from quart.typing import ResponseReturnValue

from analytics.model.ingest_validation import IngestItem
from analytics.model.retention import Tier, retention_floor
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import AuditContext
from service.access.authorization import Authorizer
from service.access.callers import IngestPrincipal
from service.access.refusals import KEY_OF_ANOTHER_ORG, NOT_FOR_SESSIONS, ApiKeyExpired
from service.access.roles import Capability
from service.audit.ingest_items import (
    NDJSON_TYPE,
    TOO_MANY_ITEMS,
    IngestBody,
    Prepared,
    prepare_body,
)
from service.audit.lake import Lake
from service.audit.refusals import NOT_INGEST_TYPE, NOT_ITEMS, JournalFull
from service.audit.sealer import Sealer, check_journal_room, is_large
from service.audit.worker_process import WorkerProcess
from service.ci.verifier.verifier import Verifier
from service.core.clock import Clock
from service.core.errors import BodyTooLarge, Busy, OrgNotFound
from service.core.settings import Settings
from service.store.group_commit import GroupCommit
from service.store.idempotency import (
    ANSWERS_FULL,
    KEY_REUSED,
    RepeatableRequest,
    check_room,
    find_answer,
    keep_answer,
)
from service.store.journal import JournalSize
from service.store.organisations import find_trust_revision, get_org_by_id
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import Organisation
from service.web.bodies import idempotency_key, read_body
from service.web.dependencies import group_of
from service.web.documentation import JSON, Documentation, Tag
from service.web.models import Omittable
from service.web.refusals import (
    IDEMPOTENCY_KEY_INVALID,
    NOT_GZIP,
    UNKNOWN_ENCODING,
    UNKNOWN_PARAMETER,
)
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer

ATTRIBUTIONS_MAX: Final = 3
"""Attempts to attribute rows to a CI job while bindings keep changing."""
SMALL_BYTES: Final = 8 * 1024
SMALL_MARKS: Final = 256
"""Limits for bodies prepared on the event loop, where a thread switch would take longer: their
bytes, and their commas and line feeds, which bound the number of items."""
LARGE_BYTES: Final = 64 * 1024
"""Bodies of at least this length are prepared by the worker process."""
WAITING_MAX: Final = 64
"""Requests of one organisation that may wait for their commit at the same time."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """Accepts rows of organisations; limits each, so that one cannot block the others."""

    _store: Store
    _group_commit: GroupCommit
    _lake: Lake
    _worker: WorkerProcess
    _verifier: Verifier
    _clock: Clock
    _sealer: Sealer
    _settings: Settings
    _waiting: Counter[str] = field(init=False, default_factory=Counter)

    async def take(
        self,
        org: Organisation,
        principal: IngestPrincipal,
        body: IngestBody,
        idempotency_key: str | None,
    ) -> bytes:
        """The JSON answer for the items of `body`: how many are durable, and the others' errors.

        With a key, a repeated `body` gets its first answer again and adds nothing. Rows are
        attributed to the CI job of `principal` if it is still trusted at the commit. Raises
        NOT_INGEST_TYPE, NOT_ITEMS, TOO_MANY_ITEMS, Busy, JournalFull, ANSWERS_FULL, KEY_REUSED,
        StoreUnavailable.
        """
        now = self._clock()
        window = AcceptedInterval(now, retention_floor(Tier(org.tier), now))
        attempt = None
        if idempotency_key is not None:
            digest = hashlib.sha256(body.content).hexdigest()
            attempt = RepeatableRequest(
                org.id, principal.audit_context.actor, idempotency_key, digest
            )
        with self._waits(org.id):
            for _ in range(ATTRIBUTIONS_MAX):
                answer = await self._try(org.id, principal, body, window, attempt)
                if answer is not None:
                    return answer
                principal = await self._as_trusted_now(org.id, principal)
            # Rows are stored without attribution rather than delayed by changing bindings.
            alone = principal.with_ci(None)
            return cast("bytes", await self._try(org.id, alone, body, window, attempt))

    async def _try(
        self,
        tenant_id: str,
        principal: IngestPrincipal,
        body: IngestBody,
        window: AcceptedInterval,
        attempt: RepeatableRequest | None,
    ) -> bytes | None:
        """The answer, or None with nothing stored if the organisation's bindings have changed.

        Time passes between authorisation and commit: the body is read, and other writes go first.
        """
        prepared = await self._prepare(tenant_id, body, principal.audit_context, window)
        ci = principal.origin.ci
        is_seal_due = False

        def change(work: SyncUnitOfWork) -> bytes | None:
            # First: a repeat of rows that are stored is answered even if it would be refused now.
            known = find_answer(work.transaction, attempt, work.now) if attempt else None
            if known is not None:
                return known
            if ci and ci.trust_revision != find_trust_revision(work.transaction, tenant_id):
                return None
            nonlocal is_seal_due
            waiting = work.journal.count(work.transaction, tenant_id)
            is_seal_due = is_large(waiting, self._settings.seal_rows)
            return self._commit(work, tenant_id, prepared, waiting, attempt)

        try:
            return await self._group_commit.commit(change)
        finally:
            if is_seal_due:
                self._sealer.wanted.set()

    async def _prepare(
        self,
        tenant_id: str,
        body: IngestBody,
        audit_context: AuditContext,
        window: AcceptedInterval,
    ) -> Prepared:
        if _is_small(body.content):
            return prepare_body(body, audit_context, window)
        if len(body.content) < LARGE_BYTES:
            return await self._lake.run_in_thread(prepare_body, body, audit_context, window)
        return await self._worker.compute(tenant_id, prepare_body, body, audit_context, window)

    async def _as_trusted_now(self, tenant_id: str, principal: IngestPrincipal) -> IngestPrincipal:
        """`principal` with its CI job, if the re-read organisation still trusts it."""
        ci = principal.origin.ci
        if ci is None:
            return principal
        org = await self._store.fetch(get_org_by_id, tenant_id)
        return principal.with_ci(await self._verifier.revalidate(ci, org))

    def _commit(
        self,
        work: SyncUnitOfWork,
        tenant_id: str,
        prepared: Prepared,
        waiting: JournalSize,
        attempt: RepeatableRequest | None,
    ) -> bytes:
        accepted = prepared.accepted
        if accepted:
            added = JournalSize(prepared.accepted, len(prepared.batches), prepared.bytes)
            # Refusals come before the first write: the rest of the group is committed in any case.
            check_journal_room(waiting, added, self._settings.ingest_journal_rows_max)
        answer = msgspec.json.encode({"accepted": accepted, "rejected": prepared.rejected})
        # If no item was accepted, a repeat adds nothing and may be validated again.
        if attempt is not None and accepted:
            check_room(work.transaction, attempt, answer)
            keep_answer(work.transaction, attempt, answer, work.now)
        work.journal.add(tenant_id, prepared.rows)
        work.journal.add_batches(tenant_id, prepared.batches)
        return answer

    @contextmanager
    def _waits(self, tenant_id: str) -> Iterator[None]:
        if self._waiting[tenant_id] >= WAITING_MAX:
            raise Busy
        self._waiting[tenant_id] += 1
        try:
            yield
        finally:
            self._waiting[tenant_id] -= 1


def _is_small(content: bytes) -> bool:
    return len(content) <= SMALL_BYTES and content.count(b",") + content.count(b"\n") <= SMALL_MARKS


@dataclass(frozen=True, slots=True)
class IngestServices:
    """Dependencies for ingest. A body has at most `body_bytes_max`."""

    access: Authorizer
    ingest: Ingest
    body_bytes_max: int


blueprint = Blueprint("ingest", __name__)

INGEST_PATH_END: Final = "/audit/events"

EXAMPLE: Final = [
    {
        "event": "blocklist_hit",
        "created_at": "2026-01-31T08:00:00Z",
        "packageName": "left-pad",
        "version": "1.3.0",
        "ecosystem": "npm",
        "decision": "BLOCKED",
        "envelope": {"rule_id": "GHSA-xxxx-yyyy-zzzz", "source": "osv"},
    }
]


class RejectedItem(Struct):
    """A rejected item: its index in the request, from 0, and the reason."""

    index: int
    error: str


class IngestResult(Struct):
    """The number of items stored durably, and the rejected ones with their reasons."""

    accepted: int
    rejected: list[RejectedItem]


class IngestHeaders(Struct, rename="kebab"):
    """Makes a request safe to repeat."""

    idempotency_key: Omittable[
        Annotated[
            str,
            Meta(
                pattern="^[ -~]{1,255}$",
                description="A repeat within 24 hours gets the first answer again.",
            ),
        ]
    ] = UNSET


@blueprint.post(f"/api/v1/admin/orgs/<slug>{INGEST_PATH_END}")
@Documentation(
    "ingest_events",
    Tag.AUDIT,
    answers={200: IngestResult},
    request={JSON: list[IngestItem], NDJSON_TYPE: str},
    request_headers=IngestHeaders,
    request_example=EXAMPLE,
    refusals=[
        NOT_ITEMS,
        NOT_GZIP,
        IDEMPOTENCY_KEY_INVALID,
        UNKNOWN_PARAMETER,
        ApiKeyExpired,
        NOT_FOR_SESSIONS,
        KEY_OF_ANOTHER_ORG,
        OrgNotFound,
        KEY_REUSED,
        BodyTooLarge,
        TOO_MANY_ITEMS,
        NOT_INGEST_TYPE,
        UNKNOWN_ENCODING,
        Busy,
        JournalFull,
        ANSWERS_FULL,
    ],
    credentials=("adminToken", "apiKey"),
    capability=Capability.AUDIT_INGEST,
)
async def events(slug: str) -> ResponseReturnValue:
    """Store install events; those counted as accepted are durable when this answers."""
    services = group_of(IngestServices)
    sent = request_ctx.request
    principal, org = await services.access.authorize_ingest(slug)
    query_parameters(sent, ())
    key = idempotency_key(sent)
    body = await read_body(sent, services.body_bytes_max)
    return json_answer(
        Raw(await services.ingest.take(org, principal, IngestBody(body, sent.mimetype), key))
    )
