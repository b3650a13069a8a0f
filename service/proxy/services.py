"""Dependencies of the install proxy's endpoints."""

from dataclasses import dataclass
from typing import TypeVar

from quart import Request

from service.clock import Clock
from service.errors import EcosystemNotServed, FirstPartyNotServed
from service.install_tokens.authorization import InstallAuthorizer
from service.install_tokens.principal import InstallPrincipal
from service.packages.ecosystems import Ecosystem
from service.policy.book import PolicyBook
from service.policy.evaluation import PackagePolicy
from service.proxy.credentials import read_credentials
from service.proxy.file_cache import FileCache
from service.proxy.install_log import InstallLog
from service.proxy.npm.document import Package
from service.proxy.page_cache import PageCache
from service.proxy.pypi.project import Project
from service.proxy.registries import PackageRegistry
from service.store.tables import Organisation

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ProxyServices:
    """Dependencies for requests of package managers. A registry is None where none is set."""

    public_url: str
    clock: Clock
    installers: InstallAuthorizer
    policies: PolicyBook
    installs: InstallLog
    pages: PageCache
    files: FileCache
    pypi: PackageRegistry[Project] | None
    npm: PackageRegistry[Package] | None

    async def authorize(self, request: Request, slug: str) -> tuple[InstallPrincipal, Organisation]:
        """Who installs, and where. Raises InstallUnauthenticated, OrgNotFound, Forbidden."""
        return await self.installers.authorize(request, slug, read_credentials(request.headers))

    async def close(self) -> None:
        """End what is under way."""
        await self.pages.close()
        for registry in (self.pypi, self.npm):
            if registry is not None:
                await registry.documents.close()

    def base(self, slug: str, ecosystem: Ecosystem) -> str:
        """The URL of the organisation's proxied registry, without a slash at its end."""
        return f"{self.public_url}/proxy/{slug}/{ecosystem}"


def project_registry(services: ProxyServices, policy: PackagePolicy) -> PackageRegistry[Project]:
    """Where the project of `policy` comes from. Raises what `_of` raises."""
    return _of(services.pypi, policy)


def package_registry(services: ProxyServices, policy: PackagePolicy) -> PackageRegistry[Package]:
    """Where the package of `policy` comes from. Raises what `_of` raises."""
    return _of(services.npm, policy)


def _of(registry: PackageRegistry[_Value] | None, policy: PackagePolicy) -> PackageRegistry[_Value]:
    if policy.registry is not None:
        # Never the public registry: a stranger could have taken the name there.
        raise FirstPartyNotServed(value=policy.registry)
    if registry is None:
        raise EcosystemNotServed(value=policy.ecosystem)
    return registry
