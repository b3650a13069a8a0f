"""The API keys page: issue and revoke the keys that proxies and scripts send rows with."""

from typing import Any, Final

from quart import url_for
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller
from service.dashboard.people.form_actions import Change
from service.dashboard.people.page import IssuedSecret, OrgPage
from service.dashboard.services import DashboardServices
from service.orgs.changes import issue_api_key, revoke_api_key
from service.orgs.repository import get_api_key, get_project, list_api_keys, list_projects
from service.store.tables import Organisation
from service.web.header_names import API_KEY_HEADER

REVOKED_MAX: Final = 100
"""How many revoked keys the page shows."""

_TRIAL_ROW: Final = '[{"event": "install_allowed", "packageName": "countersign-trial"}]'


async def load_keys_view(
    services: DashboardServices, session: AsyncSession, caller: Caller, org: Organisation
) -> dict[str, Any]:
    """All live keys, and the latest revoked ones, newest first."""
    keys = await list_api_keys(session, org)
    projects = await list_projects(session, org)
    revoked = [key for key in keys if key.revoked_at is not None]
    return {
        "live": [key for key in keys if key.revoked_at is None],
        "revoked": revoked[:REVOKED_MAX],
        "has_more": len(revoked) > REVOKED_MAX,
        "project_names": {project.id: project.name for project in projects},
        "choices": [("", "whole organisation"), *((item.id, item.name) for item in projects)],
    }


async def issue_key(change: Change) -> IssuedSecret:
    """A new key, for a project or the whole organisation."""
    project_id = change.typed("project")
    project = await get_project(change.work.session, change.org, project_id) if project_id else None
    key, secret = await issue_api_key(
        change.work, change.org, change.typed("name"), project, change.by
    )
    return IssuedSecret(f"{key.name} ({key.id})", secret, _trial(change, secret))


async def revoke_key(change: Change, key_id: str) -> str:
    """Revoke a key."""
    key = await get_api_key(change.work.session, change.org, key_id)
    await revoke_api_key(change.work, change.org, key, change.by)
    return "revoked"


def _trial(change: Change, secret: str) -> str:
    """A shell command that sends one row with the key."""
    path = url_for("ingest.events", slug=change.org.slug)
    return (
        f"curl -X POST {change.public_url}{path}"
        f" -H '{API_KEY_HEADER}: {secret}' -H 'content-type: application/json' -d '{_TRIAL_ROW}'"
    )


KEYS: Final = OrgPage(
    endpoint="dashboard_people.keys_page",
    template="people/keys.html",
    load=load_keys_view,
    done={"revoked": "The key was revoked and no longer works."},
)
