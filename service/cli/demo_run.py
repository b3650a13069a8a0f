"""Creates and serves the organisation with sample data: what `countersign demo` does."""

import asyncio
import sys
from contextlib import nullcontext

import msgspec

from service.access.callers import cli_caller
from service.bootstrap import prepare
from service.cli.context import Answer, one_line_failures
from service.cli.progress import row_progress
from service.clock import utc_now
from service.composition import build_services
from service.demo.seed import DEMO_ORG, seed_demo
from service.orgs.changes import issue_sign_in
from service.orgs.repository import get_org, list_members
from service.orgs.roles import Role
from service.server import listen, serve
from service.settings import Settings, load_settings

_WELCOME = """
{org} is ready: {url}

  Sign in (once, within 10 minutes):
    {link}

  Admin token:
    {token}

  Three things to try in the browser:
    - A malicious package got through: search the audit log for acme-telemetry@9.9.1.
      Who installed it, from which CI job, and what else did that run install?
    - A job is rejected: Trust, Rejected; trust it in two clicks.
    - Export a year of rows, and compare the file with its receipt: Audit log, Exports.

  And in another terminal:
    curl -s -H 'x-service-admin-token: {token}' '{api}/oidc-bindings/rejected'
    curl -s -H 'x-service-admin-token: {token}' '{api}/audit?decision=BLOCKED&limit=5'
    curl -s -H 'x-service-admin-token: {token}' '{ui}/audit/export?format=csv&decision=BLOCKED'

  API documentation: {url}/docs      Stop with Ctrl-C.
"""


def run_demo(*, is_serving: bool, as_json: bool) -> None:
    """Create the demo organisation, unless it exists, and serve it."""
    with one_line_failures(as_json=as_json):
        settings = load_settings()
        with listen(settings.host, settings.port) if is_serving else nullcontext() as listener:
            ready, token = asyncio.run(_prepare(settings))
            _welcome(ready, token).show(as_json=as_json)
            sys.stdout.flush()
            if listener is not None:
                # The log lines of requests would scroll the lines above off the screen.
                serve(
                    msgspec.structs.replace(ready, log_level="warning", components_page=True),
                    listener,
                )


def _welcome(ready: Settings, token: str) -> Answer:
    """The demo's addresses and credentials."""
    url = ready.public_url
    values = {
        "org": DEMO_ORG,
        "url": url,
        "api": f"{url}/api/v1/admin/orgs/{DEMO_ORG}",
        "ui": f"{url}/admin/ui/orgs/{DEMO_ORG}",
        "token": ready.admin_token,
        "link": f"{url}/sign-in?token={token}",
    }
    return Answer(values, [_WELCOME.format(**values)])


async def _prepare(settings: Settings) -> tuple[Settings, str]:
    """Store the demo; return the complete settings and a sign-in token for its owner."""
    ready = await prepare(settings)
    services = build_services(ready, utc_now)
    try:
        with row_progress("Creating 90 days of history") as show:
            await seed_demo(services, utc_now(), show)
        async with services.store.write() as work:
            org = await get_org(work.session, DEMO_ORG)
            members = await list_members(work.session, org)
            owner = next(member for member in members if member.role == Role.OWNER)
            audit_context = cli_caller(ready.platform_tenant_id).audit_context
            return ready, await issue_sign_in(work, org, owner, audit_context)
    finally:
        await services.close()
