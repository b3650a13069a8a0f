"""The page of one package: its versions, when they came and went, and who used them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analytics.model.filters import only
from analytics.model.rows import Ecosystem
from service.audit.tenant_log import open_log
from service.core.errors import Invalid
from service.pages.investigate.groups import ShownGroup, load_groups, of_log
from service.pages.retention_window import RetentionWindow, retention_window
from service.pages.services import DashboardServices
from service.pages.state import State
from service.pages.streaming import Later
from service.pages.summary_panel import SummaryUnavailable
from service.store.tables import Organisation

Groups = list[ShownGroup] | SummaryUnavailable


@dataclass(frozen=True, slots=True)
class PackageView:
    """The page's data; `jobs` and `actors` are loaded after the versions are sent."""

    name: str
    ecosystem: str | None
    state: State
    versions: Groups
    jobs: Later[Groups]
    actors: Later[Groups]
    retention: RetentionWindow

    @property
    def policy_ecosystem(self) -> str | None:
        """The ecosystem to ask the policy about, None if no row names one."""
        if self.ecosystem is not None or isinstance(self.versions, SummaryUnavailable):
            return self.ecosystem
        ecosystems = (group.values["ecosystem"] for group in self.versions)
        return next((ecosystem for ecosystem in ecosystems if ecosystem), None)

    @property
    def totals(self) -> dict[str, Any]:
        """The number of rows and blocked rows of the versions, and when the first and last were."""
        groups = [] if isinstance(self.versions, SummaryUnavailable) else self.versions
        return {
            "rows": sum(group.rows for group in groups),
            "blocked": sum(group.blocked for group in groups),
            "first": min((group.first for group in groups), default=None),
            "last": max((group.last for group in groups), default=None),
        }


async def load_package_view(
    services: DashboardServices, org: Organisation, parameters: Mapping[str, list[str]]
) -> PackageView:
    """The view of the package `name`, of one `ecosystem` if given. Raises Invalid, StoreFault."""
    name, ecosystem = only(parameters, "name"), only(parameters, "ecosystem")
    if not name:
        raise Invalid("name must be a package's name", field="name")
    if ecosystem is not None and ecosystem not in set(Ecosystem):
        known = ", ".join(sorted(Ecosystem))
        raise Invalid(f"ecosystem must be one of {known}", field="ecosystem")
    state = of_log(org.slug, package=name)
    if ecosystem is not None:
        state = state.only("ecosystem", ecosystem)
    now = services.clock()
    log = await open_log(services.store, services.audit.lake, org, now)
    store = services.store
    return PackageView(
        name=name,
        ecosystem=ecosystem,
        state=state,
        versions=await load_groups(store, log, state, ["ecosystem", "version"]),
        jobs=Later(lambda: load_groups(store, log, state, ["subject"])),
        actors=Later(lambda: load_groups(store, log, state, ["actor"])),
        retention=retention_window(org, now),
    )
