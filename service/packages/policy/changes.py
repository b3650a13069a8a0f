"""Replacing an organisation's policy; each change is one revision and one audit row."""

import hashlib

from sqlalchemy.exc import IntegrityError

from analytics.model.policy_envelopes import PolicyChanged
from analytics.model.rows import AuditContext
from service.packages.policy.document import decode_document, encode_document
from service.packages.policy.model import NO_POLICY, InstallPolicy, difference
from service.packages.policy.repository import find_revision, forget_old_revisions
from service.packages.refusals import PolicyMoved
from service.store.store import UnitOfWork
from service.store.tables import Organisation, PolicyRevision


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
    before = NO_POLICY if current is None else decode_document(current.document)
    if before == policy:
        return current
    revision = await _add_revision(work, org, policy, last + 1, by)
    await forget_old_revisions(work.session, org.id, revision.revision)
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
