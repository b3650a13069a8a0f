"""Queries for policies and the blocklist, and the change of a policy. None of them commits."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Row, and_, bindparam, delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.ecosystems import Ecosystem
from analytics.model.policy_envelopes import PolicyChanged
from analytics.model.rows import AuditContext
from service.packages.policy.advisories import Advisory, AdvisorySpec
from service.packages.policy.blocklist_contents import (
    NOTHING,
    BlocklistContents,
    FeedState,
    earlier_contents,
    feed_states,
    own_id,
)
from service.packages.policy.document import decode_document, encode_document
from service.packages.policy.model import NO_POLICY, InForce, InstallPolicy, difference
from service.packages.refusals import PolicyMoved
from service.store.store import UnitOfWork
from service.store.tables import (
    AdvisoryEntry,
    AdvisoryName,
    BlocklistImport,
    Organisation,
    PolicyRevision,
)
from service.store.transaction import Transaction

REVISIONS_KEPT: Final = 200
"""How many revisions of its policy an organisation keeps; older ones are deleted."""

_CONTENTS: Final = msgspec.json.Decoder(BlocklistContents)
_SPEC: Final = msgspec.json.Decoder(AdvisorySpec)

_REVISION: Final = (
    select(func.coalesce(func.max(PolicyRevision.revision), 0))
    .where(PolicyRevision.tenant_id == bindparam("tenant_id"))
    .scalar_subquery()
)
_GENERATION: Final = (
    select(func.coalesce(func.max(BlocklistImport.generation), 0))
    # An import under way must not be in force while only half of it is loaded.
    .where(BlocklistImport.switched_at.is_not(None))
    .scalar_subquery()
)
_IN_FORCE: Final = select(_REVISION.label("revision"), _GENERATION.label("generation"))
_POLICY: Final = select(PolicyRevision.document).where(
    PolicyRevision.tenant_id == bindparam("tenant_id"),
    PolicyRevision.revision == bindparam("revision"),
)
_ADVISORIES: Final = (
    select(AdvisoryEntry.advisory_id, AdvisoryEntry.spec)
    .where(
        AdvisoryEntry.generation == bindparam("generation"),
        AdvisoryEntry.ecosystem == bindparam("ecosystem"),
        AdvisoryEntry.package == bindparam("package"),
    )
    .order_by(AdvisoryEntry.advisory_id)
)


_NAMED: Final = (
    select(
        AdvisoryEntry.ecosystem,
        AdvisoryEntry.package,
        AdvisoryEntry.advisory_id,
        AdvisoryEntry.spec,
    )
    .select_from(AdvisoryName)
    .join(
        AdvisoryEntry,
        and_(
            AdvisoryEntry.generation == _GENERATION,
            AdvisoryEntry.ecosystem == AdvisoryName.ecosystem,
            AdvisoryEntry.package == AdvisoryName.package,
            AdvisoryEntry.advisory_id == AdvisoryName.advisory_id,
        ),
    )
    .order_by(AdvisoryEntry.ecosystem, AdvisoryEntry.package, AdvisoryEntry.advisory_id)
)


def find_in_force(transaction: Transaction, tenant_id: str) -> InForce:
    """What is in force for the organisation now: one statement on two indexes."""
    ((revision, generation),) = transaction.rows(_IN_FORCE, {"tenant_id": tenant_id})
    return InForce(int(revision), int(generation))


def load_document(transaction: Transaction, tenant_id: str, revision: int) -> bytes | None:
    """The stored document of the organisation's policy as of `revision`; None without one."""
    for (document,) in transaction.rows(_POLICY, {"tenant_id": tenant_id, "revision": revision}):
        return bytes(document)
    return None


def load_advisories(
    transaction: Transaction, generation: int, ecosystem: Ecosystem, package: str
) -> list[tuple[str, bytes]]:
    """The ids and stored forms of the advisories on a package, by id."""
    where = {"generation": generation, "ecosystem": str(ecosystem), "package": package}
    rows = transaction.rows(_ADVISORIES, where)
    return [(own_id(stored_id), spec) for stored_id, spec in rows]


def decode_advisories(ecosystem: Ecosystem, stored: Sequence[tuple[str, bytes]]) -> list[Advisory]:
    """What `load_advisories` loaded."""
    return [Advisory.of(ecosystem, advisory_id, _SPEC.decode(spec)) for advisory_id, spec in stored]


async def list_advisories_named(
    session: AsyncSession, names: Sequence[str], limit: int
) -> dict[tuple[Ecosystem, str], list[tuple[str, bytes]]]:
    """The stored advisories in force with these names, by ecosystem and package."""
    rows = await session.execute(_NAMED.where(AdvisoryName.name.in_(names)).limit(limit))
    named: dict[tuple[Ecosystem, str], list[tuple[str, bytes]]] = {}
    for ecosystem, package, advisory_id, spec in rows:
        named.setdefault((Ecosystem(ecosystem), package), []).append((advisory_id, spec))
    return named


async def find_revision(
    session: AsyncSession, tenant_id: str, revision: int | None = None
) -> PolicyRevision | None:
    """The organisation's revision with this number, by default the one in force; or None."""
    mine = select(PolicyRevision).where(PolicyRevision.tenant_id == tenant_id)
    if revision is not None:
        mine = mine.where(PolicyRevision.revision == revision)
    return await session.scalar(mine.order_by(PolicyRevision.revision.desc()).limit(1))


def policy_of(revision: PolicyRevision | None) -> InstallPolicy:
    """The policy of a revision; without one, NO_POLICY."""
    return NO_POLICY if revision is None else decode_document(revision.document)


async def list_revisions(
    session: AsyncSession, tenant_id: str
) -> Sequence[Row[int, str, datetime]]:
    """All kept revisions of the organisation's policy without their documents, newest first.

    Of each its number, who put it in force, and when: `revision`, `changed_by`, `changed_at`.
    """
    columns = (PolicyRevision.revision, PolicyRevision.changed_by, PolicyRevision.changed_at)
    newest = (
        select(*columns)
        .where(PolicyRevision.tenant_id == tenant_id)
        .order_by(PolicyRevision.revision.desc())
        .limit(REVISIONS_KEPT)
    )
    return (await session.execute(newest)).all()


async def list_imports(session: AsyncSession, limit: int) -> Sequence[BlocklistImport]:
    """The last imports of the blocklist, newest first."""
    newest = select(BlocklistImport).order_by(BlocklistImport.generation.desc()).limit(limit)
    return (await session.scalars(newest)).all()


async def find_current_import(session: AsyncSession) -> BlocklistImport | None:
    """The import in force, or None."""
    return await session.scalar(
        select(BlocklistImport)
        .where(BlocklistImport.switched_at.is_not(None))
        .order_by(BlocklistImport.generation.desc())
        .limit(1)
    )


async def contents_of(session: AsyncSession, entry: BlocklistImport) -> BlocklistContents:
    """What the list of this import is made of.

    Versions without feeds did not store it: their list is all of the feed `osv`, and of one file.
    """
    if entry.contents is not None:
        return _CONTENTS.decode(entry.contents)
    counts = await session.execute(
        select(AdvisoryEntry.ecosystem, func.count())
        .where(AdvisoryEntry.generation == entry.generation)
        .group_by(AdvisoryEntry.ecosystem)
        .order_by(AdvisoryEntry.ecosystem)
    )
    return earlier_contents(
        entry.source,
        entry.sha256,
        entry.ids,
        entry.switched_at or entry.started_at,
        {Ecosystem(ecosystem): count for ecosystem, count in counts},
    )


async def load_feed_states(session: AsyncSession) -> list[FeedState]:
    """The state of each feed of the blocklist in force, by ecosystem."""
    entry = await find_current_import(session)
    contents = NOTHING if entry is None else await contents_of(session, entry)
    return feed_states(contents)


async def set_policy(
    work: UnitOfWork,
    org: Organisation,
    policy: InstallPolicy,
    by: AuditContext,
    *,
    replaces: int | None = None,
) -> PolicyRevision | None:
    """Put `policy` in force; returns the revision in force, None if there never was a policy.

    If the policy is already in force, nothing changes. `replaces` is the revision that the caller
    has seen (0: none), or None for any. Raises PolicyMoved if another one is in force by now.
    """
    current = await find_revision(work.session, org.id)
    last = 0 if current is None else current.revision
    # Under the write lock: of two owners who saw the same revision, only one can replace it.
    if replaces is not None and replaces != last:
        raise PolicyMoved(value=str(last))
    before = policy_of(current)
    if before == policy:
        return current
    revision = await _add_revision(work, org, policy, last + 1, by)
    too_old = PolicyRevision.revision <= revision.revision - REVISIONS_KEPT
    old = delete(PolicyRevision).where(PolicyRevision.tenant_id == org.id, too_old)
    await work.session.execute(old)
    changed = difference(before, policy)
    work.record(
        org.id,
        PolicyChanged(
            revision=revision.revision,
            before=changed.before,
            after=changed.after,
            omitted=changed.omitted,
            sha256_before=None if current is None else current.sha256,
            sha256_after=revision.sha256,
        ),
        by,
    )
    return revision


async def _add_revision(
    work: UnitOfWork, org: Organisation, policy: InstallPolicy, number: int, by: AuditContext
) -> PolicyRevision:
    document = encode_document(policy)
    revision = PolicyRevision(
        tenant_id=org.id,
        revision=number,
        document=document,
        sha256=hashlib.sha256(document).hexdigest(),
        changed_by=by.actor,
        changed_at=work.now,
    )
    work.session.add(revision)
    try:
        await work.session.flush()
    except IntegrityError as error:  # a concurrent transaction, where writers are not serialised
        raise PolicyMoved(value=str(number)) from error
    return revision
