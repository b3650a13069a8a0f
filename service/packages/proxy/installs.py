"""Decides on a request for a file, records it, and serves the file or the reason for a refusal."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import structlog
from quart import Response, request

from analytics.model.envelopes import ArtifactChanged
from analytics.model.rows import CLIENT_MAX
from service.packages.ecosystem import EcosystemFacts, Release
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.install_tokens.authorization import InstallPrincipal
from service.packages.policy.evaluation import PackagePolicy
from service.packages.policy.model import FILE_CHANGED, PolicyDecision
from service.packages.proxy.artifacts import ArtifactName
from service.packages.proxy.blocked import blocked_path, blocked_redirect
from service.packages.proxy.downloads import Admit
from service.packages.proxy.file_answer import file_answer, is_continuation, is_known
from service.packages.proxy.file_keys import FileKey, KnownFile
from service.packages.proxy.install_log import Install, RecordedInstall
from service.packages.proxy.services import ProxyServices
from service.packages.proxy.upstream import AdmittedFile
from service.packages.refusals import DECIDED_BEFORE, PACKAGE_FILE_MISSING, UpstreamMissing
from service.store.tables import Organisation

# A product as RFC 9110 (10.1.5) defines it: a name, and a version behind a slash.
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PRODUCT: Final = re.compile(rf"({_WORD}(?:/{_WORD})?)(?:[ \t(]|$)", re.ASCII)

DECISIONS_MAX: Final = 3
"""How often an install is decided while what it is decided under keeps changing."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OfferedFile:
    """A file that a registry's document offers.

    `registry` is the identity of its registry. `size` and `sha256` are None if the document does
    not state them. `publisher` tells who published a file, by the URL of its attestations.
    `is_offered` is False for the file that was served before under the name of the
    one that is offered now.
    """

    artifact: ArtifactName
    release: Release
    key: FileKey
    registry: str
    size: int | None
    sha256: str | None
    admit: Admit
    publisher: Callable[[str | None], Awaitable[Sequence[str] | None]]
    is_offered: bool = True

    def known_as(self, known: KnownFile) -> "OfferedFile":
        """The same file, verified by the digest by which it was served before."""
        return replace(self, key=known.key, sha256=known.sha256 or self.sha256)

    def before(self, known: KnownFile) -> "OfferedFile":
        """The file that was served under the name before, without the registry."""
        release = known.release(self.release)
        return replace(
            self.known_as(known),
            release=release,
            size=None,
            admit=_not_at_the_registry,
            is_offered=False,
        )


@dataclass(frozen=True, slots=True)
class Installer:
    """Who asks for a file, and the policy on it."""

    services: ProxyServices
    org: Organisation
    principal: InstallPrincipal
    policy: PackagePolicy

    async def serve(self, file: OfferedFile) -> Response:
        """The file, once its install is recorded, or a redirect to the reason for its refusal.

        If another file was served under its name before, that one is served as long as it is in the
        cache; so is one that was withdrawn, if policy allows it. A request that gets no byte of the
        file (HEAD, or one for a file that the client already has) installs nothing: it is refused
        like any other, but recorded only then.
        """
        known = await self.services.artifacts.find(file.artifact)
        if known is None:
            return await self._serve(file)
        if known.withdrawn_at is not None:
            return await self._serve(file.before(known))
        if known.is_same(file.release.digests):
            return await self._serve(file.known_as(known))
        decision = _changed(file, known)
        if not await self.services.files.has(known.key.at(file.registry)):
            return await self._refuse(file, decision)
        before = file.before(known)
        if not _gets_no_byte(before):
            await self._record(file, decision)
        return await self._serve(before)

    async def _serve(self, file: OfferedFile) -> Response:
        decision = await self._decide(file)
        if decision.is_refused:
            return await self._refuse(file, decision)

        async def record(sha256: str | None, *, is_verified: bool) -> RecordedInstall:
            install = self._install(file, decision)
            verified = replace(install, sha256=sha256, is_verified=is_verified)
            return await self.services.installs.record(self.org, self.principal, verified)

        return await file_answer(
            request,
            self.services.files,
            file.key.at(file.registry),
            file.size,
            file.admit,
            None if _gets_no_byte(file) else record,
        )

    async def _decide(self, file: OfferedFile) -> PolicyDecision:
        release, now = file.release, self.services.clock()
        decision, trust = self.policy.decide(release, now), self.policy.trust
        is_blocked = decision.is_blocked
        earlier = trust.earlier_attested(release, now) if trust and not is_blocked else None
        if earlier is None:
            return decision
        said = [await file.publisher(each.attestation) or [] for each in (earlier, release)]
        if not all(said) or not said[0][0] or said[0][0] == said[1][0]:
            return decision
        before, publisher = said[0][0], said[1][0] or "unknown"
        proved = zip((earlier, release), said, strict=True)
        subjects = ECOSYSTEMS[release.ecosystem].subjects
        verified = all(not set(own[1:]).isdisjoint(subjects(each)) for each, own in proved)
        return self.policy.other_publisher(release, earlier, before, publisher, verified=verified)

    async def _refuse(self, file: OfferedFile, decision: PolicyDecision) -> Response:
        # Recorded as well: the address that explains it names its row.
        recorded = await self._record(file, decision)
        release = file.release
        path = blocked_path(
            self.org.slug, recorded.audit_id, release.name, release.version, decision
        )
        return blocked_redirect(f"{self.services.public_url}{path}")

    async def _record(self, file: OfferedFile, decision: PolicyDecision) -> RecordedInstall:
        install = self._install(file, decision)
        return await self.services.installs.record(self.org, self.principal, install)

    def _install(self, file: OfferedFile, decision: PolicyDecision) -> Install:
        return Install(
            file.release,
            file.key,
            decision,
            file.artifact,
            sha256=file.sha256,
            client=client_of(request.headers.get("user-agent")),
            in_force=self.policy.in_force,
            is_offered=file.is_offered,
            is_continuation=is_continuation(request, file.key),
        )


async def decided(serve: Callable[[], Awaitable[Response]]) -> Response:
    """What `serve` answers, which is asked again if its decision is overtaken by another policy.

    Raises DECIDED_BEFORE after DECISIONS_MAX times.
    """
    for _ in range(DECISIONS_MAX - 1):
        with suppress(DECIDED_BEFORE):
            return await serve()
    return await serve()


async def serve_or_withdrawn(
    services: ProxyServices,
    org: Organisation,
    principal: InstallPrincipal,
    facts: EcosystemFacts[Any],
    names: tuple[str, str],
    listed: Callable[[], Awaitable[Response]],
) -> Response:
    """What `listed` answers; if the registry lists no such file, the answer for a withdrawn one.

    `names` are those of the package and of the file. Raises what `listed` does.
    """
    try:
        return await listed()
    except (PACKAGE_FILE_MISSING, UpstreamMissing):
        policy, registry = await services.source(facts, org, names[0])
        url, package = registry.artifacts_url, policy.name
        artifact = ArtifactName(facts.ecosystem, url, package, names[1])
        known = await services.artifacts.find(artifact)
        if known is None or known.withdrawn_at is None:
            raise
    release = Release(facts.ecosystem, package, known.version)
    publisher = partial(registry.publisher, org=org.id)
    admit, identity = _not_at_the_registry, registry.identity
    file = OfferedFile(artifact, release, known.key, identity, None, None, admit, publisher)
    return await Installer(services, org, principal, policy).serve(file)


def client_of(user_agent: str | None) -> str | None:
    """The first product that the header names, such as `pip/26.3` or `npm/11.19.1`.

    None if it begins with anything else, or if that is longer than a row keeps: a client could
    send any text, and a part of it would name another client.
    """
    product = _PRODUCT.match(user_agent or "")
    if product is None or len(product[1]) > CLIENT_MAX:
        return None
    return product[1]


def _gets_no_byte(file: OfferedFile) -> bool:
    return request.method == "HEAD" or is_known(request, file.key)


def _changed(file: OfferedFile, known: KnownFile) -> PolicyDecision:
    """The refusal of a file whose name another one had before, in every mode of the policy."""
    name = file.artifact
    _log.warning("artifact_changed", **name._asdict(), before=str(known.key), offered=str(file.key))
    return PolicyDecision(
        ArtifactChanged.event,
        ArtifactChanged(
            file_name=name.file_name,
            sha256_before=known.sha256,
            sha256_now=file.sha256,
            registry=name.registry_url,
        ),
        is_blocked=True,
        is_enforced=True,
        rule_id=None,
        reason=f"{FILE_CHANGED}the registry offers other bytes under this name than before",
    )


async def _not_at_the_registry() -> AdmittedFile:
    raise PACKAGE_FILE_MISSING
