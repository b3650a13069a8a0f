"""Who was turned away lately, why, and what would help; and the draft that a click makes of one."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.bindings.services import BindingServices
from service.dashboard.display_names import Names, find_names
from service.dashboard.trust.failures import Failure, failure_of
from service.rejected.listing import LIMIT_DEFAULT, Entry, Wanted, get_entry, list_entries
from service.rejected.proposals import Resolution
from service.rejected.subjects import KEPT_FOR
from service.store.tables import Organisation, RejectedSubject


@dataclass(frozen=True, slots=True)
class ShownRejection:
    """One rejected subject. `project` is that of the API key it came with, by its name."""

    row: RejectedSubject
    failure: Failure
    resolution: Resolution
    project: str | None

    @property
    def lacks_binding(self) -> bool:
        """Whether it was for want of a binding that it was turned away, as far as is known."""
        return self.row.is_verified and self.failure.is_mended_by_a_binding


@dataclass(frozen=True, slots=True)
class RejectedView:
    """What the template shows: what an issuer vouches for, and what nobody does."""

    verified: list[ShownRejection]
    unverified: list[ShownRejection]

    listed_max = LIMIT_DEFAULT
    kept_days = KEPT_FOR.days


async def load_rejected_view(services: BindingServices, org: Organisation) -> RejectedView:
    """The last of `org`'s rejected subjects, of each kind by itself.

    Apart, so that what somebody makes up never takes the room of what an issuer says.
    """
    verified, unverified = [
        await list_entries(
            services.store, services.issuers, org.id, Wanted(is_verified=kind), services.clock()
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
    """One of `org`'s rejected subjects as it is stored. Raises RejectedNotFound."""
    entry = await get_entry(services.store, services.issuers, org.id, digest, services.clock())
    return _shown(entry, await _names(services, org, [entry]))


def _shown(entry: Entry, names: Names) -> ShownRejection:
    row = entry.row
    project = None if row.project_id is None else names.projects.get(row.project_id, row.project_id)
    return ShownRejection(row, failure_of(row.code, row.detail), entry.resolution, project)


async def _names(services: BindingServices, org: Organisation, entries: Sequence[Entry]) -> Names:
    ids = {entry.row.project_id for entry in entries if entry.row.project_id}
    async with services.store.read() as session:
        return await find_names(session, org.id, projects=ids)
