"""Decides on a request for a file, records it, and serves the file or the reason for a refusal."""

from dataclasses import dataclass, replace

from quart import Response, request

from service.install_tokens.principal import InstallPrincipal
from service.packages.release import Release
from service.policy.evaluation import PackagePolicy
from service.proxy.blocked import blocked_path, blocked_redirect
from service.proxy.downloads import Admit
from service.proxy.file_answer import file_answer, is_continuation, is_known
from service.proxy.file_keys import FileKey
from service.proxy.install_log import Install
from service.proxy.services import ProxyServices
from service.proxy.transfers import OnCut
from service.proxy.user_agents import client_of
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class OfferedFile:
    """A file that a registry's document offers.

    `size` and `sha256` are None if the document does not state them.
    """

    release: Release
    name: str
    key: FileKey
    size: int | None
    sha256: str | None
    admit: Admit


async def serve(
    services: ProxyServices,
    org: Organisation,
    principal: InstallPrincipal,
    policy: PackagePolicy,
    file: OfferedFile,
) -> Response:
    """The file, once its install is recorded, or a redirect to the reason for its refusal.

    A request that gets no byte of the file (HEAD, or one for a file that the client already has)
    installs nothing: it is refused like any other, but recorded only if it is refused.
    """
    decision = policy.decide(file.release, services.clock())
    install = Install(
        file.release,
        str(file.key),
        decision,
        is_continuation=is_continuation(request, file.key),
        file_name=file.name,
        sha256=file.sha256,
        client=client_of(request.headers.get("user-agent")),
    )
    if decision.is_refused:
        # Recorded as well: the address that explains it names its row.
        recorded = await services.installs.record(org, principal, install)
        release = file.release
        path = blocked_path(org.slug, recorded.audit_id, release.name, release.version, decision)
        return blocked_redirect(f"{services.public_url}{path}")

    async def record(sha256: str | None) -> OnCut:
        recorded = await services.installs.record(org, principal, replace(install, sha256=sha256))
        return recorded.cut

    gets_no_byte = request.method == "HEAD" or is_known(request, file.key)
    return await file_answer(
        request,
        services.files,
        file.key,
        file.size,
        file.admit,
        None if gets_no_byte else record,
    )
