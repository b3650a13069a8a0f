"""The operator's answer to a registry that offers another file under a name."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.policy_envelopes import ArtifactAccepted
from analytics.model.rows import AuditContext
from service.errors import ArtifactAmbiguous, ArtifactNotOffered
from service.orgs.repository import list_orgs
from service.proxy.file_keys import parse_file_key
from service.store.store import UnitOfWork
from service.store.tables import Artifact

LISTED_MAX: Final = 1_000


async def list_changed(session: AsyncSession) -> Sequence[Artifact]:
    """The files under whose names a registry offers others, the latest offer first."""
    changed = select(Artifact).where(Artifact.offered_digest.is_not(None))
    latest = changed.order_by(Artifact.offered_at.desc()).limit(LISTED_MAX)
    return (await session.scalars(latest)).all()


async def accept_artifact(
    work: UnitOfWork, file_name: str, digest: str, registry_url: str | None, by: AuditContext
) -> Artifact:
    """Take the file with `digest` for the one of this name from now on.

    It must be the one that the registry offered last: a digest is named, so that what was looked at
    is what is accepted. Every organisation gets the row: its installs get another file. Raises
    ArtifactNotOffered and ArtifactAmbiguous.
    """
    offered = select(Artifact).where(
        Artifact.file_name == file_name, Artifact.offered_digest == digest
    )
    if registry_url is not None:
        offered = offered.where(Artifact.registry_url == registry_url)
    found = (await work.session.scalars(offered.limit(2))).all()
    if not found:
        raise ArtifactNotOffered(value=file_name)
    if len(found) > 1:
        raise ArtifactAmbiguous(value=file_name)
    (artifact,) = found
    accepted = ArtifactAccepted(
        ecosystem=artifact.ecosystem,
        registry=artifact.registry_url,
        package=artifact.package,
        version=artifact.version,
        file_name=artifact.file_name,
        digest_before=artifact.digest,
        digest_now=digest,
    )
    key = parse_file_key(digest)
    artifact.digest = digest
    artifact.sha256 = key.hex if key.algorithm == "sha256" else None
    artifact.published_at = None
    artifact.offered_digest = artifact.offered_at = None
    artifact.accepted_at = work.now
    for org in await list_orgs(work.session):
        work.record(org.id, accepted, by)
    return artifact
