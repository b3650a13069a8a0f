"""What keeps one history signed: rotation of keys, and what follows a restore.

A restored database may be older than checkpoints that others hold. To sign on would give sizes a
second root. So a restored tree is suspended until the operator shows the newest checkpoint that
was kept elsewhere, or accepts that rows are lost: then the log goes on under another name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from analytics.evidence.notes import Checkpoint, InvalidNote, Note
from analytics.model.log_envelopes import EvidenceKeyRotated, EvidenceResumed
from analytics.model.rows import AuditContext
from service.audit.evidence.keys import begin_key, encoded, list_keys, read_verifier_keys
from service.audit.evidence.trees import begin_generation, log_name
from service.core.errors import Conflict, Invalid
from service.store.organisations import list_orgs
from service.store.store import Store
from service.store.tables import EvidenceCheckpoint, EvidenceTree
from service.store.transaction import within

TREES_SINCE: Final = "0028"
"""The migration that adds the trees: an older database has none."""

RESTORED: Final = "restored from a backup"

ROLLED_BACK: Final = Conflict.of(
    "the checkpoint of {name} is of {value} rows, and this database has signed {size}: restore a"
    " newer backup, or accept with --accept-rollback that the rows between are lost",
    name="audit.example/org_acme",
    value="1204",
    size="1100",
)
ANOTHER_HISTORY: Final = Conflict.of(
    "this database has never signed the checkpoint of {name} of {value} rows: restore another"
    " backup, or accept with --accept-rollback that this history goes on under another name",
    name="audit.example/org_acme",
    value="1204",
)
NOTHING_SHOWN: Final = Conflict.of(
    "give the newest checkpoint of {name} that is kept elsewhere (--checkpoint FILE), or accept"
    " with --accept-rollback that rows which were signed after this backup are lost",
    name="audit.example/org_acme",
)


@dataclass(frozen=True, slots=True)
class Resumed:
    """A log that is signed again, and under which name."""

    slug: str
    name: str
    size: int


async def suspend_trees(connection: AsyncSession | AsyncConnection, reason: str) -> None:
    """Let nothing be signed until `resume`."""
    await connection.execute(
        update(EvidenceTree).where(EvidenceTree.suspended.is_(None)).values(suspended=reason)
    )


async def resume(
    store: Store,
    by: AuditContext,
    held: Iterable[tuple[Note, Checkpoint]],
    *,
    is_rollback_accepted: bool,
    tenant_id: str | None = None,
) -> list[Resumed]:
    """Sign all suspended logs again, or only that of one organisation.

    `held` are the newest checkpoints of them that were kept elsewhere.

    Raises Invalid, ROLLED_BACK, ANOTHER_HISTORY, NOTHING_SHOWN; then none is signed again.
    """
    shown_of = {checkpoint.origin: (checkpoint, note) for note, checkpoint in held}
    suspended = select(EvidenceTree).where(EvidenceTree.suspended.is_not(None))
    if tenant_id is not None:
        suspended = suspended.where(EvidenceTree.tenant_id == tenant_id)
    resumed: list[Resumed] = []
    async with store.write() as work:
        slugs = {org.id: org.slug for org in await list_orgs(work.session)}
        for tree in await work.session.scalars(suspended.order_by(EvidenceTree.tenant_id)):
            name = log_name(tree.origin, tree.generation)
            shown = shown_of.get(name)
            if not is_rollback_accepted:
                await _check(work.session, tree, name, shown)
            else:
                tree.generation = max(tree.generation + 1, await begin_generation(work))
            envelope = EvidenceResumed(
                reason=tree.suspended or "",
                size=tree.size,
                held_size=None if shown is None else shown[0].size,
                rollback_accepted=is_rollback_accepted,
                origin=log_name(tree.origin, tree.generation),
            )
            tree.suspended = None
            work.record(tree.tenant_id, envelope, by)
            slug = slugs.get(tree.tenant_id, tree.tenant_id)
            resumed.append(Resumed(slug, envelope.origin, tree.size))
    return resumed


async def _check(
    session: AsyncSession,
    tree: EvidenceTree,
    name: str,
    shown: tuple[Checkpoint, Note] | None,
) -> None:
    """Raise unless the checkpoint that is shown is one of the tree's."""
    if shown is None:
        raise NOTHING_SHOWN(name=name)
    checkpoint, note = shown
    try:
        note.check(await within(session, read_verifier_keys, name))
    except InvalidNote as error:
        raise Invalid(f"the checkpoint of {name} is not this service's: {error}") from error
    if checkpoint.size > tree.size:
        raise ROLLED_BACK(name=name, value=str(checkpoint.size), size=str(tree.size))
    place = (tree.tenant_id, tree.generation, checkpoint.size)
    signed = await session.get(EvidenceCheckpoint, place)
    if signed is None or signed.root != checkpoint.root:
        raise ANOTHER_HISTORY(name=name, value=str(checkpoint.size))


async def rotate_key(store: Store, secret_key: str, by: AuditContext) -> str:
    """Begin a key, which signs from now on, and record it in every log; its public half.

    The next checkpoint of each log is signed by the former key, too.
    """
    async with store.write() as work:
        before = await list_keys(work.session)
        key = await within(work.session, begin_key, secret_key, work.now)
        former = before[0].public if before else None
        envelope = EvidenceKeyRotated(former_key=former, key=encoded(key.public))
        for org in await list_orgs(work.session):
            work.record(org.id, envelope, by)
    return envelope.key
