"""Creates and serves the organisation with sample data: what `countersign demo` does."""

import asyncio
import sys
from contextlib import ExitStack

import msgspec

from service.access.callers import cli_caller
from service.access.roles import Role
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.app.server import listen, serve
from service.cli.demo.installs import install_lines, issue_demo_key
from service.cli.demo.registry import releases, serve_registry
from service.cli.demo.seed import DEMO_ORG, seed_demo
from service.cli.output import CommandResult, Output
from service.cli.progress import row_progress
from service.core.clock import utc_now
from service.core.secrets import current_admin_token
from service.core.settings import Settings, load_settings
from service.orgs.members import issue_sign_in
from service.packages.clients import ProxyAddress
from service.store.organisations import get_org, list_members

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
    - Export all 90 days of rows, and compare the file with its receipt: Audit log, Exports.

  And in another terminal:
    curl -s -H 'x-service-admin-token: {token}' '{api}/oidc-bindings/rejected'
    curl -s -H 'x-service-admin-token: {token}' '{api}/audit?decision=BLOCKED&limit=5'
    curl -s -H 'x-service-admin-token: {token}' '{ui}/audit/export?format=csv&decision=BLOCKED'

{installs}  API documentation: {url}/docs      Stop with Ctrl-C.
"""

_INSTALLS = """  Install through the proxy, which records each install. This one is allowed:
    {allowed}
  and this one the policy blocks:
    {blocked}

"""


def run_demo(output: Output, *, is_serving: bool) -> None:
    """Create the demo organisation, unless it exists, and serve it."""
    with ExitStack() as stack:
        settings = load_settings()
        listener = None
        if is_serving:
            listener = stack.enter_context(listen(settings.host, settings.port))
        ready, token, installs = asyncio.run(_prepare(settings, is_serving=is_serving))
        _welcome(ready, token, installs).show(output)
        sys.stdout.flush()
        if listener is not None:
            upstream = ready.proxy_pypi_upstream
            if not upstream:
                upstream = stack.enter_context(serve_registry(releases(utc_now())))
            # The log lines of requests would scroll the lines above off the screen.
            serving = msgspec.structs.replace(
                ready, log_level="warning", components_page=True, proxy_pypi_upstream=upstream
            )
            serve(serving, listener)


def _welcome(ready: Settings, token: str, installs: dict[str, str]) -> CommandResult:
    """The demo's addresses and credentials, and while it serves lines to install."""
    url = ready.public_url
    values = {
        "org": DEMO_ORG,
        "url": url,
        "api": f"{url}/api/v1/admin/orgs/{DEMO_ORG}",
        "ui": f"{url}/admin/ui/orgs/{DEMO_ORG}",
        "token": current_admin_token(ready),
        "link": f"{url}/sign-in?token={token}",
    }
    text = _INSTALLS.format(**installs) if installs else ""
    data = values | ({"installs": installs} if installs else {})
    # One line each: control characters in a line are shown, not interpreted.
    return CommandResult(data, _WELCOME.format(**values, installs=text).splitlines())


async def _prepare(settings: Settings, *, is_serving: bool) -> tuple[Settings, str, dict[str, str]]:
    """Store the demo; return the complete settings, a sign-in token and lines to install."""
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
            token = await issue_sign_in(work, org, owner, audit_context)
            if not is_serving:
                return ready, token, {}
            secret = await issue_demo_key(work, org, audit_context)
            lines = install_lines(
                ProxyAddress(ready.public_url, DEMO_ORG),
                secret,
                has_upstream=bool(ready.proxy_pypi_upstream),
            )
            return ready, token, lines
    finally:
        await services.close()
