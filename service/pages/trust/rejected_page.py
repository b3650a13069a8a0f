"""Subjects that were rejected recently, why, and the binding that would help."""

from collections.abc import Sequence
from dataclasses import dataclass

from quart import Blueprint

from service.access.roles import Capability
from service.ci.verifier.codes import Detail
from service.pages.display_names import Names, find_names
from service.pages.page import Page, PageCall, View
from service.pages.trust.failures import Failure, failure_of
from service.store.tables import RejectedSubject
from service.trust.rejected.rejected_api import (
    LIMIT_DEFAULT,
    RejectedQuery,
    Resolution,
    ResolvedSubject,
    get_resolved,
    list_resolved,
)
from service.trust.rejected.subjects import LISTED_FOR

blueprint = Blueprint("dashboard_rejected", __name__, url_prefix="/admin/ui/orgs/<slug>/rejected")


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


@Page(blueprint, "", "rejected.html", needs=Capability.OIDC_READ)
async def rejected_page(call: PageCall) -> View:
    """The CI identities that were rejected recently, and what each of them lacks.

    Each kind has its own limit, so that forged subjects cannot displace verified ones.
    """
    services, org = call.services.bindings, call.org
    (verified, _), (unverified, _) = [
        await list_resolved(services, org.id, RejectedQuery(verified=is_verified))
        for is_verified in (True, False)
    ]
    names = await _names(call, [*verified, *unverified])
    view = {
        "verified": [_view(subject, names) for subject in verified],  # by their issuer
        "unverified": [_view(subject, names) for subject in unverified],
        "listed_max": LIMIT_DEFAULT,
        "kept_days": LISTED_FOR.days,
    }
    return {"page": view}


async def load_rejection_view(call: PageCall, digest: str) -> ShownRejection:
    """One of the organisation's stored rejected subjects. Raises REJECTED_NOT_FOUND."""
    services = call.services.bindings
    subject = await get_resolved(
        services.store, services.issuers, call.org.id, digest, services.clock()
    )
    return _view(subject, await _names(call, [subject]))


def _view(subject: ResolvedSubject, names: Names) -> ShownRejection:
    row = subject.row
    project = None if row.project_id is None else names.projects.get(row.project_id, row.project_id)
    return ShownRejection(row, failure_of(row.code, row.detail), subject.resolution, project)


async def _names(call: PageCall, subjects: Sequence[ResolvedSubject]) -> Names:
    ids = {subject.row.project_id for subject in subjects if subject.row.project_id}
    async with call.read() as session:
        return await find_names(session, call.org.id, projects=ids)
