"""Subjects that were rejected recently, why, and the binding that would help."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.ci.verifier.codes import Detail
from service.pages.display_names import Names, find_names
from service.pages.trust.failures import Failure, failure_of
from service.store.tables import Organisation, RejectedSubject
from service.trust.bindings.services import BindingServices
from service.trust.rejected.listing import (
    LIMIT_DEFAULT,
    RejectedFilter,
    Resolution,
    ResolvedSubject,
    get_resolved,
    list_resolved,
)
from service.trust.rejected.subjects import KEPT_FOR


@dataclass(frozen=True, slots=True)
class ShownRejection:
    """One rejected subject. `project` is the name of the project of the API key used."""

    row: RejectedSubject
    failure: Failure
    resolution: Resolution
    project: str | None

    @property
    def lacks_binding(self) -> bool:
        """Whether it was rejected, as far as is known, for lack of a binding."""
        return self.row.is_verified and self.failure.is_fixed_by_a_binding

    @property
    def is_ambiguous(self) -> bool:
        """Whether several bindings matched it equally well, and it is not trusted yet."""
        is_fixed = self.resolution.trusted_by is not None
        return self.row.is_verified and self.row.detail == Detail.BINDING_AMBIGUOUS and not is_fixed


@dataclass(frozen=True, slots=True)
class RejectedView:
    """The template's data: subjects confirmed by their issuer, and unconfirmed ones."""

    verified: list[ShownRejection]
    unverified: list[ShownRejection]

    listed_max = LIMIT_DEFAULT
    kept_days = KEPT_FOR.days


async def load_rejected_view(services: BindingServices, org: Organisation) -> RejectedView:
    """The latest rejected subjects of `org`.

    Each kind has its own limit, so that forged subjects cannot displace verified ones.
    """
    verified, unverified = [
        await list_resolved(
            services.store,
            services.issuers,
            org.id,
            RejectedFilter(is_verified=kind),
            services.clock(),
        )
        for kind in (True, False)
    ]
    names = await _names(services, org, [*verified, *unverified])
    return RejectedView(
        [_shown(entry, names) for entry in verified],
        [_shown(entry, names) for entry in unverified],
    )


async def load_rejection_view(
    services: BindingServices, org: Organisation, digest: str
) -> ShownRejection:
    """One of `org`'s stored rejected subjects. Raises REJECTED_NOT_FOUND."""
    entry = await get_resolved(services.store, services.issuers, org.id, digest, services.clock())
    return _shown(entry, await _names(services, org, [entry]))


def _shown(entry: ResolvedSubject, names: Names) -> ShownRejection:
    row = entry.row
    project = None if row.project_id is None else names.projects.get(row.project_id, row.project_id)
    return ShownRejection(row, failure_of(row.code, row.detail), entry.resolution, project)


async def _names(
    services: BindingServices, org: Organisation, entries: Sequence[ResolvedSubject]
) -> Names:
    ids = {entry.row.project_id for entry in entries if entry.row.project_id}
    async with services.store.read() as session:
        return await find_names(session, org.id, projects=ids)
