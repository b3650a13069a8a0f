"""The endpoints for install policies."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from analytics.model.ecosystems import Ecosystem
from service.access.roles import Capability
from service.audit.lake import Lake
from service.audit.refusals import QUERY_REFUSALS
from service.audit.tenant_log import open_log
from service.audit.worker_process import WorkerProcess
from service.core.threads import in_thread
from service.packages.ecosystem import Release
from service.packages.policy.check import PackageSpec, check_release, parse_release
from service.packages.policy.document import (
    DOCUMENT_EXAMPLE,
    PolicyDocument,
    decode_document,
    parse_policy,
    to_document,
)
from service.packages.policy.evaluation import PackagePolicy
from service.packages.policy.model import NO_POLICY, InstallPolicy, PolicyMode
from service.packages.policy.policy_cache import PolicyCache
from service.packages.policy.preview import TOP, Preview, ReleaseListings, preview_policy
from service.packages.policy.repository import find_revision, set_policy
from service.packages.refusals import REVISION_MISSING, REVISION_NOT_FOUND, PolicyMoved
from service.store.tables import Organisation, PolicyRevision
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import (
    INSTANT_PATTERN,
    Answer,
    Parsed,
    Precondition,
    Request,
    TimestampMs,
    TimestampUs,
)

PREVIEW_MAX_S: Final = 10.0

_ETAG: Final = {"etag": "The revision, for `If-Match`."}


@dataclass(frozen=True, slots=True)
class PolicyServices(BaseServices):
    """Also what reads, changes and tries policies."""

    lake: Lake
    policies: PolicyCache
    listings: ReleaseListings
    worker: WorkerProcess

    async def judged(self, org: Organisation, ecosystem: Ecosystem, name: str) -> PackagePolicy:
        """The policy on a package (canonical) now, among what its last document lists."""
        policy = await self.policies.of(org, ecosystem, name)
        withdrawn = await self.listings.withdrawn(ecosystem, name)
        policy = dataclasses.replace(policy, withdrawn=withdrawn)
        listed = await self.listings.of(ecosystem, name) if policy.is_relative else ()
        return await in_thread(lambda: policy.among(listed, self.clock())) if listed else policy


resource = Resource("policy", "/policy", Tag.POLICY, PolicyServices)


class PolicyQuery(Request):
    """Which revision."""

    revision: (
        Annotated[
            int,
            Meta(ge=1, le=999_999_999, description="An older one; default: the one in force."),
        ]
        | None
    ) = None


class IfMatch(Precondition):
    """The policy that is replaced."""

    missing = REVISION_MISSING

    if_match: Annotated[
        str,
        Meta(
            pattern=r'^(\*|(W/)?"(0|[1-9][0-9]{0,8})")$',
            description='The ETag of the policy that the caller has seen ("0": none), or *.',
        ),
    ]


class PolicyInForce(Answer):
    """A policy; revision 0 if none was ever set."""

    org: str
    revision: int
    sha256: str | None
    changed_by: str | None
    changed_at: TimestampMs | None
    policy: PolicyDocument

    @property
    def etag(self) -> str:
        """The revision."""
        return str(self.revision)


class CheckRequest(Request):
    """A release."""

    ecosystem: Ecosystem
    package: PackageSpec
    version: str | None = None
    published_at: (
        Annotated[
            str,
            Meta(
                description="For the cooldown, which depends on it.",
                extra_json_schema={"pattern": f"^{INSTANT_PATTERN}$"},
            ),
        ]
        | None
    ) = None


def parse_check(given: dict[str, Any]) -> Release:
    """The release that a request asks about. Raises Invalid."""
    body = CheckRequest.parse(given)
    return parse_release(body.ecosystem, body.package, body.version, body.published_at)


class PolicyCheck(Answer):
    """Whether a release would be allowed, and why.

    `decision` is null if it depends on an age that was not given. In `audit` mode what is BLOCKED
    is served, and `is_refused` is false.
    """

    org: str
    ecosystem: str
    package: str
    version: str
    decision: Literal["ALLOWED", "BLOCKED"] | None
    is_refused: bool | None
    event: str
    rule_id: str | None
    source: str | None
    reason: str
    mode: PolicyMode


class PackageCount(Struct, kw_only=True):
    """Blocked installs of a package."""

    ecosystem: str
    package: str
    installs: int


class NamedCount(Struct, kw_only=True):
    """Blocked installs by a rule or a CI job."""

    name: str
    installs: int


class PolicyPreview(Answer):
    """What the policy would have done to the installs since `since`.

    `jobs` is the number of different CI jobs with a blocked install. `undated` installs would be
    subject to the cooldown, `distrusted` ones to the trust rule: rows do not have how old their
    releases were, and of which provenance. `maybe_cured` ones of the blocked might have been the
    cure. `first_party` ones would have to come from an internal registry. `unjudged` have no
    ecosystem. The lists have the most frequent ones. If not `is_complete` there were more releases
    than are looked at.
    """

    org: str
    since: TimestampUs
    summary: str
    installs: int
    blocked: int
    jobs: int
    unattributed: int
    first_party: int
    undated: int
    distrusted: int
    maybe_cured: int
    unjudged: int
    is_complete: bool
    top_packages: list[PackageCount]
    top_rules: list[NamedCount]
    top_jobs: list[NamedCount]


@resource.get(
    "get_policy",
    needs=Capability.POLICY_READ,
    query=PolicyQuery,
    returns=PolicyInForce,
    refuses=[REVISION_NOT_FOUND],
    headers=_ETAG,
)
async def show(call: Call[PolicyServices], query: PolicyQuery) -> PolicyInForce:
    """Show the organisation's install policy: the one in force, or an older revision."""
    async with call.read() as session:
        revision = await find_revision(session, call.org.id, query.revision)
    if query.revision is not None and revision is None:
        raise REVISION_NOT_FOUND
    return policy_form(call.org.slug, revision)


@resource.put(
    "set_policy",
    needs=Capability.POLICY_WRITE,
    body=Parsed(PolicyDocument, parse_policy, is_long=True),
    example=DOCUMENT_EXAMPLE,
    if_match=IfMatch,
    returns=PolicyInForce,
    refuses=[PolicyMoved],
    headers=_ETAG,
)
async def replace(call: WriteCall[PolicyServices], policy: InstallPolicy) -> PolicyInForce:
    """Replace the policy; after a 200 it holds for the next install in every process."""
    revision = await set_policy(call.work, call.org, policy, call.by, replaces=call.replaces)
    return policy_form(call.org.slug, revision)


@resource.post_read(
    "check_release",
    "/check",
    needs=Capability.POLICY_READ,
    body=Parsed(CheckRequest, parse_check),
    example={"ecosystem": "pypi", "package": "requests==2.32.3"},
    returns=PolicyCheck,
)
async def check(call: Call[PolicyServices], release: Release) -> PolicyCheck:
    """Whether a release would be allowed now, and why. Nothing is recorded."""
    policy = await call.services.judged(call.org, release.ecosystem, release.name)
    verdict = check_release(policy, release, call.services.clock())
    decision, release = verdict.decision, verdict.release
    is_known = verdict.is_blocked is not None
    return PolicyCheck(
        org=call.org.slug,
        ecosystem=release.ecosystem,
        package=release.name,
        version=release.version,
        decision=("BLOCKED" if verdict.is_blocked else "ALLOWED") if is_known else None,
        is_refused=decision.is_refused if is_known else None,
        event=decision.kind,
        rule_id=decision.rule_id,
        source=getattr(decision.envelope, "source", None),
        reason=verdict.reason,
        mode=policy.mode,
    )


@resource.post_read(
    "preview_policy",
    "/preview",
    needs=Capability.POLICY_READ,
    body=Parsed(PolicyDocument, parse_policy, is_long=True),
    example=DOCUMENT_EXAMPLE,
    returns=PolicyPreview,
    refuses=QUERY_REFUSALS,
)
async def preview(call: Call[PolicyServices], policy: InstallPolicy) -> PolicyPreview:
    """What a policy would have done to the installs of the last 30 days. Nothing is changed."""
    services, now = call.services, call.services.clock()
    log = await open_log(services.store, services.lake, call.org, now)
    previewed = await preview_policy(
        log, policy, services.listings, services.worker, now, PREVIEW_MAX_S
    )
    return PolicyPreview.from_row(
        previewed,
        org=call.org.slug,
        summary=summary_of(previewed),
        jobs=len(previewed.jobs),
        top_packages=[
            PackageCount(ecosystem=ecosystem, package=package, installs=installs)
            for (ecosystem, package), installs in previewed.packages.most_common(TOP)
        ],
        top_rules=_named(previewed.rules.most_common(TOP)),
        top_jobs=_named(previewed.jobs.most_common(TOP)),
    )


def policy_form(slug: str, revision: PolicyRevision | None) -> PolicyInForce:
    """A revision in the API's representation; None is no policy."""
    if revision is None:
        return PolicyInForce(
            org=slug,
            revision=0,
            sha256=None,
            changed_by=None,
            changed_at=None,
            policy=to_document(NO_POLICY),
        )
    policy = to_document(decode_document(revision.document))
    return PolicyInForce.from_row(revision, org=slug, policy=policy)


def summary_of(preview: Preview) -> str:
    """The preview in a sentence."""
    least = "" if preview.is_complete else "at least "
    jobs = f" by {_counted(len(preview.jobs), 'job')}" if preview.jobs else ""
    return (
        f"In the last 30 days this would have blocked {least}"
        f"{_counted(preview.blocked, 'install')}{jobs}."
    )


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _named(counts: list[tuple[str, int]]) -> list[NamedCount]:
    return [NamedCount(name=name, installs=installs) for name, installs in counts]
