"""The page of one CI run: which job it was, and every package it installed."""

from collections.abc import Mapping
from dataclasses import dataclass

from analytics.export.wire import json_objects
from analytics.model.filters import only, parse_query
from service.audit.tenant_log import open_log
from service.core.errors import Invalid
from service.pages.investigate.groups import ShownGroup, load_groups, of_log
from service.pages.retention_window import RetentionWindow, retention_window
from service.pages.rows import ShownRow
from service.pages.services import DashboardServices
from service.pages.shown_rows import load_shown_rows
from service.pages.state import State
from service.pages.summary_panel import SummaryUnavailable
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class RunView:
    """The page's data. `latest` is the run's newest row, which tells its job; None: no rows."""

    run_id: str
    state: State
    latest: ShownRow | None
    packages: list[ShownGroup] | SummaryUnavailable
    retention: RetentionWindow


async def load_run_view(
    services: DashboardServices, org: Organisation, parameters: Mapping[str, list[str]]
) -> RunView:
    """The view of the run `run_id`, of one repository if `repository_id` is given.

    Raises Invalid, StoreFault, QueryTooSlow.
    """
    run_id, repository_id = only(parameters, "run_id"), only(parameters, "repository_id")
    if not run_id:
        raise Invalid("run_id must be the id of a CI run", field="run_id")
    state = of_log(org.slug, run_id=run_id)
    if repository_id:
        state = state.only("repository_id", repository_id)
    now = services.clock()
    log = await open_log(services.store, services.audit.lake, org, now)
    newest = await log.page(parse_query(state.filters), 1)
    texts = json_objects(newest, org.id)
    shown = await load_shown_rows(services, org, texts, of_log(org.slug), now)
    by = ["ecosystem", "package", "version"]
    packages = await load_groups(services.store, log, state, by)
    return RunView(run_id, state, next(iter(shown), None), packages, retention_window(org, now))
