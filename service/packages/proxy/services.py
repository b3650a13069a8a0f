"""Dependencies of the install proxy's endpoints."""

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from quart import Request, Response, request

from analytics.model.ecosystems import Ecosystem
from service.audit.worker_process import WorkerProcess
from service.core.clock import Clock
from service.packages.ecosystem import EcosystemFacts, InvalidPackageName
from service.packages.install_tokens.authorization import InstallAuthorizer, InstallPrincipal
from service.packages.names import canonical_name
from service.packages.policy.evaluation import PackagePolicy
from service.packages.policy.policy_cache import PolicyCache
from service.packages.proxy.admission import AnswerLimiter
from service.packages.proxy.artifacts import ArtifactName, Artifacts
from service.packages.proxy.credentials import read_credentials
from service.packages.proxy.document_cache import JUDGED_BYTES, CachedDocument
from service.packages.proxy.file_cache import FileCache
from service.packages.proxy.file_keys import KnownFile
from service.packages.proxy.install_log import InstallLog
from service.packages.proxy.page_cache import PageCache, RenderedPage, page_answer
from service.packages.proxy.registries import PackageRegistry, Registries
from service.packages.refusals import (
    ECOSYSTEM_NOT_SERVED,
    FIRST_PARTY_NOT_SERVED,
    NO_PACKAGE_NAME,
    UpstreamFailed,
    UpstreamMissing,
)
from service.store.tables import Organisation

_Value = TypeVar("_Value")
_Entry = TypeVar("_Entry")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class LocatedPackage(Generic[_Value]):
    """A package: the policy on it, and the document of the registry that it comes from."""

    policy: PackagePolicy
    registry: PackageRegistry[_Value]
    document: CachedDocument

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Everything that its pages depend on, except the time."""
        return self.registry.identity, self.policy.name, self.document.version, self.policy.version

    def artifact(self, file_name: str) -> ArtifactName:
        """The name of a file of the package."""
        url = self.registry.artifacts_url
        return ArtifactName(self.policy.ecosystem, url, self.policy.name, file_name)

    async def read(self, function: Callable[[_Value], _Result]) -> _Result:
        """The result of `function` on the document, of which it may keep single entries only."""
        return await self.registry.documents.read(self.document, function)

    async def judge(self, function: Callable[[_Value], _Result]) -> _Result:
        """As `read`, for a function that decides on every release of the document."""
        documents = self.registry.documents
        return await documents.read(self.document, function, bytes_at_once=JUDGED_BYTES)

    def marked(self, answer: Response) -> Response:
        """`answer`, which says so if the document is stale (RFC 9211)."""
        if self.document.is_stale:
            ttl_s = self.registry.documents.ttl_s(self.document)
            answer.headers["cache-status"] = f"countersign; hit; ttl={ttl_s}"
        return answer


@dataclass(frozen=True, slots=True)
class ProxyServices:
    """Dependencies for requests of package managers."""

    public_url: str
    clock: Clock
    installers: InstallAuthorizer
    answers: AnswerLimiter
    policies: PolicyCache
    installs: InstallLog
    artifacts: Artifacts
    pages: PageCache
    files: FileCache
    worker: WorkerProcess
    registries: Mapping[Ecosystem, Registries[Any]]

    async def authorize(self, request: Request, slug: str) -> tuple[InstallPrincipal, Organisation]:
        """Who installs, and in which organisation; the answer counts from now to its last byte.

        Raises InstallUnauthenticated, OrgNotFound, Forbidden, TOO_MANY_ANSWERS.
        """
        credentials = read_credentials(request.headers)
        principal, org = await self.installers.authorize(request, slug, credentials)
        self.answers.count(org.id, principal.key_id)
        return principal, org

    def of(self, facts: EcosystemFacts[_Value]) -> Registries[_Value]:
        """The registries of an ecosystem."""
        return self.registries[facts.ecosystem]

    async def page(
        self,
        located: LocatedPackage[_Value],
        content_type: str,
        parts: tuple[Hashable, ...],
        render: Callable[[_Value, Mapping[str, KnownFile]], RenderedPage],
    ) -> Response:
        """The page that `render` makes of the document and of the files that were served before.

        `parts` is everything else that it depends on, except the time.
        """
        policy, url = located.policy, located.registry.artifacts_url

        async def make() -> RenderedPage:
            known = await self.artifacts.of_package(policy.ecosystem, url, policy.name)
            return await located.judge(lambda document: render(document, known))

        accepted_at = await self.artifacts.last_accepted_at()
        page = await self.pages.get((*located.identity, accepted_at, *parts), make)
        return located.marked(page_answer(request, page, content_type))

    async def ask_again(self, org: str) -> None:
        """Ask for packages of which a document lacked files, as a client of `org` would."""
        for ecosystem, name in await self.artifacts.missed():
            if (public := self.registries[Ecosystem(ecosystem)].public) is not None:
                with suppress(UpstreamMissing, UpstreamFailed):
                    await public.documents.get(name, org)

    async def close(self) -> None:
        """Cancel requests to registries and rendering under way; record what was cut off."""
        await self.installs.close()
        await self.pages.close()
        for registries in self.registries.values():
            for registry in registries.all():
                await registry.documents.close()

    def circuits(self) -> dict[str, str]:
        """The state of the circuit of each public registry, by ecosystem: that of its worst origin.

        Not of an organisation's own registries: their names are not for everyone.
        """
        return {
            str(ecosystem): str(registries.public.upstream.state)
            for ecosystem, registries in self.registries.items()
            if registries.public is not None
        }

    def base(self, slug: str, ecosystem: Ecosystem) -> str:
        """The URL of the organisation's proxied registry, without a trailing slash."""
        return f"{self.public_url}/proxy/{slug}/{ecosystem}"

    async def locate(
        self, facts: EcosystemFacts[_Value], org: Organisation, name: str
    ) -> LocatedPackage[_Value]:
        """The package called `name`, in any spelling, with the policy as of its document's arrival.

        Raises NO_PACKAGE_NAME, ECOSYSTEM_NOT_SERVED, FIRST_PARTY_NOT_SERVED, UpstreamMissing,
        UpstreamFailed and StoreUnavailable.
        """
        ecosystem = facts.ecosystem
        canonical = _canonical(ecosystem, name)
        policy = await self.policies.of(org, ecosystem, canonical)
        while True:
            registry = _registry(self.of(facts), org, policy)
            known = registry.documents.in_memory(canonical)
            # Nothing was awaited since the policy was read: it is the one in force.
            if known is not None:
                return LocatedPackage(policy, registry, known)
            document = await registry.documents.get(canonical, org.id)
            # Read again: the registry may have taken a minute, and rules may have changed.
            asked_for, policy = policy, await self.policies.of(org, ecosystem, canonical)
            if policy.registry == asked_for.registry:
                return LocatedPackage(policy, registry, document)

    async def source(
        self, facts: EcosystemFacts[_Value], org: Organisation, name: str
    ) -> tuple[PackagePolicy, PackageRegistry[_Value]]:
        """The policy on the package called `name`, and its registry. Raises as `locate`."""
        policy = await self.policies.of(org, facts.ecosystem, _canonical(facts.ecosystem, name))
        return policy, _registry(self.of(facts), org, policy)

    async def find(
        self,
        facts: EcosystemFacts[_Value],
        org: Organisation,
        name: str,
        find: Callable[[_Value], _Entry],
    ) -> tuple[LocatedPackage[_Value], _Entry]:
        """The package, with the policy as of now, and what `find` finds in its document."""
        while True:
            located = await self.locate(facts, org, name)
            policy = located.policy
            read = located.judge if policy.is_relative else located.read
            found = partial(_found, facts=facts, find=find, policy=policy, now=self.clock())
            entry, among = await read(found)
            if policy.is_relative or located.registry.documents.is_heavy(located.document):
                # Read again: rules may have changed while a thread read the document.
                policy = await self.policies.of(org, facts.ecosystem, policy.name)
            if policy.version == among.version:
                return replace(located, policy=replace(among, in_force=policy.in_force)), entry


def _found(
    document: _Value,
    facts: EcosystemFacts[_Value],
    find: Callable[[_Value], _Entry],
    policy: PackagePolicy,
    now: datetime,
) -> tuple[_Entry, PackagePolicy]:
    return find(document), policy.among(facts.releases(document), now)


def _registry(
    registries: Registries[_Value], org: Organisation, policy: PackagePolicy
) -> PackageRegistry[_Value]:
    """The registry of the package. Raises FIRST_PARTY_NOT_SERVED, ECOSYSTEM_NOT_SERVED."""
    if policy.registry is not None:
        own = registries.own_of(org.slug, policy.registry)
        if own is None:
            # Never the public registry: a stranger could have taken the name there.
            raise FIRST_PARTY_NOT_SERVED(value=policy.registry)
        return own
    if registries.public is None:
        raise ECOSYSTEM_NOT_SERVED(value=policy.ecosystem)
    return registries.public


def _canonical(ecosystem: Ecosystem, name: str) -> str:
    try:
        return canonical_name(ecosystem, name)
    except InvalidPackageName as error:
        raise NO_PACKAGE_NAME(value=str(error)) from error
