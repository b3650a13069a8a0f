"""Decides on a request for a file, and records it."""

from quart import Response, request

from service.install_tokens.principal import InstallPrincipal
from service.packages.release import Release
from service.policy.evaluation import PackagePolicy
from service.proxy.blocked import blocked_path, blocked_redirect
from service.proxy.file_answer import is_continuation
from service.proxy.install_log import Install
from service.proxy.services import ProxyServices
from service.store.tables import Organisation


async def refuse_or_record(
    services: ProxyServices,
    org: Organisation,
    principal: InstallPrincipal,
    policy: PackagePolicy,
    release: Release,
    file: str,
) -> Response | None:
    """None once the install is recorded and the file may be served, else where to find out why.

    HEAD asks about a file and installs nothing: it is refused alike, and recorded only if refused.
    """
    decision = policy.decide(release, services.clock())
    if request.method == "HEAD" and not decision.is_refused:
        return None
    install = Install(release, file, decision, is_continuation=is_continuation(request))
    audit_id = await services.installs.record(org, principal, install)
    if not decision.is_refused:
        return None
    path = blocked_path(org.slug, audit_id, release.name, release.version, decision)
    return blocked_redirect(f"{services.public_url}{path}")
