"""The endpoints that prove rows: checkpoints, proofs of inclusion and consistency, tiles."""

import re
from typing import Annotated, Final

from msgspec import Meta
from quart import Response

from analytics.evidence.groups import LeavesDiffer
from analytics.model.instants import format_us
from analytics.model.schema import audit_id as row_id
from analytics.model.schema import parse_audit_id
from service.access.roles import Capability
from service.audit.evidence.keys import read_verifier_keys
from service.audit.evidence.prover import Prover, RowProof, Size, in_base64, note_of
from service.audit.evidence.trees import log_name, read_checkpoint, read_tree
from service.audit.evidence.witnesses import list_witnesses
from service.audit.refusals import (
    CHECKPOINT_NOT_FOUND,
    EVIDENCE_DIFFERS,
    LEAVES_PRUNED,
    NO_CHECKPOINT,
    QUERY_REFUSALS,
    ROW_PRUNED,
    SIZES_INVALID,
    TILE_NOT_FOUND,
    AuditRowNotFound,
    NotSignedYet,
)
from service.audit.services import AuditServices
from service.audit.tenant_log import open_log
from service.store.tables import Organisation
from service.store.transaction import within
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import (
    OCTETS,
    Answer,
    NonNegative,
    RawBytes,
    Request,
    TimestampUs,
)

_LEVEL: Final = re.compile(r"[0-7]", re.ASCII)
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)

resource = Resource("evidence", "/audit", Tag.EVIDENCE, AuditServices)


class CheckpointQuery(Request):
    """Which checkpoint."""

    size: (
        Annotated[Size, Meta(description="The checkpoint of this size; default: the last one.")]
        | None
    ) = None


class SignedCheckpoint(Answer):
    """The root of the organisation's tree at one size, signed (C2SP tlog-checkpoint)."""

    org: str
    origin: Annotated[str, Meta(description="The name of the log, and of its keys.")]
    size: Annotated[Size, Meta(description="How many rows it covers.")]
    root: Annotated[str, Meta(description="In base64.")]
    last_id: Annotated[str, Meta(description="The id of the last row that it covers.")]
    min_index: Annotated[NonNegative, Meta(description="All leaves before it are pruned.")]
    signed_at: TimestampUs
    note: Annotated[str, Meta(description="The signed note, as verifiers take it.")]
    keys: Annotated[list[str], Meta(description="The keys of the log, the newest one first.")]
    witnesses: Annotated[list[str], Meta(description="The keys of those asked to cosign it.")]


@resource.get(
    "get_checkpoint",
    "/checkpoint",
    needs=Capability.AUDIT_READ,
    query=CheckpointQuery,
    returns=SignedCheckpoint,
    refuses=[NO_CHECKPOINT, CHECKPOINT_NOT_FOUND],
)
async def checkpoint(call: Call[AuditServices], query: CheckpointQuery) -> SignedCheckpoint:
    """The last signed checkpoint of the organisation's log, or the one of a size."""
    async with call.read() as session:
        tree = await within(session, read_tree, call.org.id)
        if tree is None:
            raise NO_CHECKPOINT
        found = await within(session, read_checkpoint, tree, query.size)
        if found is None:
            raise CHECKPOINT_NOT_FOUND
        name = log_name(tree.origin, found.generation)
        keys = await within(session, read_verifier_keys, name)
        witnesses = await list_witnesses(session)
    return SignedCheckpoint(
        org=call.org.slug,
        origin=name,
        size=found.size,
        root=in_base64([found.root])[0],
        last_id=row_id(found.last_seq),
        min_index=tree.min_index,
        signed_at=format_us(found.signed_at),
        note=note_of(tree.origin, found),
        keys=[str(key) for key in keys],
        witnesses=[witness.vkey for witness in witnesses],
    )


@resource.get(
    "prove_audit_row",
    "/<row:audit_id>/proof",
    needs=Capability.AUDIT_READ,
    query=CheckpointQuery,
    returns=RowProof,
    refuses=[
        AuditRowNotFound,
        CHECKPOINT_NOT_FOUND,
        NotSignedYet,
        ROW_PRUNED,
        EVIDENCE_DIFFERS,
        *QUERY_REFUSALS,
    ],
)
async def proof(call: Call[AuditServices], query: CheckpointQuery, audit_id: str) -> RowProof:
    """Prove that a row is in the log, unchanged, by the last checkpoint or another one."""
    return await prove(call.services, call.org, audit_id, query.size)


async def prove(
    services: AuditServices, org: Organisation, audit_id: str, size: int | None = None
) -> RowProof:
    """The proof of a row by the checkpoint of a size (None: the last one).

    Raises what the endpoint refuses.
    """
    seq = parse_audit_id(audit_id)
    if seq is None:
        raise AuditRowNotFound
    try:
        return await (await _prover(services, org)).inclusion(seq, size)
    except LeavesDiffer:
        # Rows around it may have been pruned meanwhile: then it is found as they are now.
        try:
            return await (await _prover(services, org)).inclusion(seq, size)
        except LeavesDiffer as fault:
            raise EVIDENCE_DIFFERS(value=audit_id) from fault


class ConsistencyQuery(Request):
    """Two sizes of the log."""

    old: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="Rows of the older checkpoint.", examples=[0])
    ]
    new: (
        Annotated[Size, Meta(description="Those of the newer one; default: the last checkpoint.")]
        | None
    ) = None


class Consistency(Answer):
    """The proof that the log of `old` rows is the beginning of that of `new` rows."""

    org: str
    old: NonNegative
    new: NonNegative
    hashes: Annotated[list[str], Meta(description="As RFC 6962 orders them, in base64.")]


@resource.get(
    "prove_consistency",
    "/consistency",
    needs=Capability.AUDIT_READ,
    query=ConsistencyQuery,
    returns=Consistency,
    refuses=[NO_CHECKPOINT, SIZES_INVALID, LEAVES_PRUNED, EVIDENCE_DIFFERS],
)
async def consistency(call: Call[AuditServices], query: ConsistencyQuery) -> Consistency:
    """Prove that nothing of the log has changed between two of its sizes."""
    try:
        new, hashes = await (await _prover(call.services, call.org)).consistency(
            query.old, query.new
        )
    except LeavesDiffer as fault:
        raise EVIDENCE_DIFFERS(value=f"number {query.old}") from fault
    return Consistency(org=call.org.slug, old=query.old, new=new, hashes=in_base64(hashes))


@resource.get(
    "get_tile",
    "/tile/<level>/<number>",
    needs=Capability.AUDIT_READ,
    returns=RawBytes,
    refuses=[TILE_NOT_FOUND, LEAVES_PRUNED, EVIDENCE_DIFFERS],
)
async def tile(call: Call[AuditServices], level: str, number: str) -> Response:
    """The hashes of a tile of the tree (C2SP tlog-tiles), as many as there are yet.

    Of 32 bytes each. At level 0 they are those of the leaves.
    """
    if not (_LEVEL.fullmatch(level) and _NUMBER.fullmatch(number)):
        raise TILE_NOT_FOUND
    try:
        hashes = await (await _prover(call.services, call.org)).tile(int(level), int(number))
    except LeavesDiffer as fault:
        raise EVIDENCE_DIFFERS(value=f"of tile {level}/{number}") from fault
    if not hashes:
        raise TILE_NOT_FOUND
    return Response(hashes, content_type=OCTETS)


async def _prover(services: AuditServices, org: Organisation) -> Prover:
    log = await open_log(services.store, services.lake, org, services.clock())
    return Prover(services.store, log)
