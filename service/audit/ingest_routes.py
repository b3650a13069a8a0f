"""The ingest endpoint, to which proxies send install events."""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, Struct
from quart import Blueprint
from quart.globals import request_ctx
from quart.typing import ResponseReturnValue

from analytics.model.ingest_validation import IngestItem
from service.audit.ingest_items import NDJSON_TYPE, Body
from service.audit.services import IngestServices
from service.core.errors import (
    AnswersFull,
    ApiKeyExpired,
    BodyTooLarge,
    Busy,
    IdempotencyKeyInvalid,
    JournalFull,
    KeyOfAnotherOrg,
    KeyReused,
    NotForSessions,
    NotGzip,
    NotIngestType,
    NotItems,
    OrgNotFound,
    TooManyItems,
    UnknownEncoding,
    UnknownParameter,
)
from service.web.bodies import idempotency_key, read_body
from service.web.dependencies import receives
from service.web.documentation import JSON, Tag, documented
from service.web.parameter_types import Omittable
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer

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


class Headers(Struct, rename="kebab"):
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
@documented(
    "ingest_events",
    Tag.AUDIT,
    answers={200: IngestResult},
    request={JSON: list[IngestItem], NDJSON_TYPE: str},
    request_headers=Headers,
    request_example=EXAMPLE,
    refusals=[
        NotItems,
        NotGzip,
        IdempotencyKeyInvalid,
        UnknownParameter,
        ApiKeyExpired,
        NotForSessions,
        KeyOfAnotherOrg,
        OrgNotFound,
        KeyReused,
        BodyTooLarge,
        TooManyItems,
        NotIngestType,
        UnknownEncoding,
        Busy,
        JournalFull,
        AnswersFull,
    ],
    credentials=("adminToken", "apiKey"),
)
@receives(IngestServices)
async def events(services: IngestServices, slug: str) -> ResponseReturnValue:
    """Store install events; those counted as accepted are durable when this answers."""
    sent = request_ctx.request
    principal, org = await services.access.authorize_ingest(slug)
    query_parameters(sent, ())
    key = idempotency_key(sent)
    body = await read_body(sent, services.body_bytes_max)
    return json_answer(
        Raw(await services.ingest.take(org, principal, Body(body, sent.mimetype), key))
    )
