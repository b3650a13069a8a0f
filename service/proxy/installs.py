"""Decides on a request for a file, and records it."""

from quart import Response, request

from service.install_tokens.principal import InstallPrincipal
from service.packages.release import Release
from service.policy.evaluation import PackagePolicy
from service.proxy.blocked import blocked_path, blocked_redirect
from service.proxy.file_answer import is_continuation, is_known
from service.proxy.file_keys import FileKey
from service.proxy.install_log import Install
from service.proxy.services import ProxyServices
from service.store.tables import Organisation


async def refuse_or_record(
    services: ProxyServices,
    org: Organisation,
    principal: InstallPrincipal,
    policy: PackagePolicy,
    release: Release,
    key: FileKey,
) -> Response | None:
    """None once the install is recorded and the file may be served, else a redirect to the reason.

    A request that gets no byte of the file (HEAD, or one for a file that the client already has)
    installs nothing: it is refused like any other, but recorded only if it is refused.
    """
    decision = policy.decide(release, services.clock())
    gets_no_byte = request.method == "HEAD" or is_known(request, key)
    if gets_no_byte and not decision.is_refused:
        return None
    install = Install(release, str(key), decision, is_continuation=is_continuation(request, key))
    # A refused one as well: the address that explains it names its row.
    audit_id = await services.installs.record(org, principal, install)
    if not decision.is_refused:
        return None
    path = blocked_path(org.slug, audit_id, release.name, release.version, decision)
    return blocked_redirect(f"{services.public_url}{path}")
