"""The page that answers "would this be allowed?": the verdict, the rule, and where it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from analytics.model.envelopes import CooldownActive, OssFirstParty
from analytics.model.filters import only
from service.access.roles import Capability
from service.core.errors import Invalid
from service.packages.policy.check import CheckResult, check_release, parse_release
from service.packages.policy.document import decode_document
from service.packages.policy.evaluation import PackagePolicy
from service.packages.policy.model import NO_POLICY, Mode, ReleaseRule
from service.packages.policy.repository import find_revision
from service.pages.navigation import render_page
from service.pages.policy.policy_page import ECOSYSTEM_WORDS, ECOSYSTEMS
from service.pages.services import DashboardServices
from service.store.tables import Organisation
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters

blueprint = Blueprint(
    "dashboard_policy_check", __name__, url_prefix="/admin/ui/orgs/<slug>/policy/check"
)

PARAMETERS: Final = ("ecosystem", "package", "version", "published_at")
_NEVER_PUBLIC: Final = (
    "The proxy never asks a public registry for it, and answers 404. Configure the client to get it"
    " from {registry} itself."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict in words, and the rule's place on the policy page (an id there), if any.

    `tone` is the notice's: done, fault-panel or past.
    """

    verdict: CheckResult
    title: str
    consequence: str
    tone: str
    rule: str | None
    place: str | None


@dataclass(frozen=True, slots=True)
class CheckView:
    """The form as it was filled in, with its errors, or the answer."""

    given: Mapping[str, str]
    faults: Mapping[str, str] = field(default_factory=dict)
    answer: Answer | None = None
    ecosystems: list[tuple[str, str]] = field(default_factory=lambda: ECOSYSTEMS)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return Invalid.status if self.faults else 200


@blueprint.get("")
@receives(DashboardServices)
async def check_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show whether a release would be allowed, and why. Nothing is recorded."""
    caller, org = await services.authorize(slug, Capability.POLICY_READ)
    view = await load_check_view(services, org, query_parameters(request, PARAMETERS))
    return await render_page(
        services.settings, caller, org, "policy/check.html", view.status, page=view
    )


async def load_check_view(
    services: DashboardServices, org: Organisation, parameters: Mapping[str, list[str]]
) -> CheckView:
    """The answer on the release in `parameters`; without a version the form alone.

    Raises Invalid for a parameter that is given twice, StoreUnavailable.
    """
    given = {name: (only(parameters, name) or "").strip() for name in PARAMETERS}
    is_asked = "version" in parameters
    if not is_asked:
        return CheckView(given)
    if not given["package"]:
        return CheckView(given, {"package": "package is required"})
    try:
        release = parse_release(
            given["ecosystem"],
            given["package"],
            given["version"] or None,
            given["published_at"] or None,
        )
    except Invalid as fault:
        return CheckView(given, {fault.field or "package": fault.text})
    policy = await services.policy.policies.of(org, release.ecosystem, release.name)
    verdict = check_release(policy, release, services.clock())
    place = await _place(services, org, verdict)
    return CheckView(given, answer=_answer(verdict, policy, place))


def _answer(verdict: CheckResult, policy: PackagePolicy, place: str | None) -> Answer:
    release, decision = verdict.release, verdict.decision
    what = f"{release.name} {release.version} ({ECOSYSTEM_WORDS[release.ecosystem]})"
    is_audit = policy.mode is Mode.AUDIT
    if decision.kind == OssFirstParty.event:
        title = f"Not from a public registry: {what}"
        consequence, tone = _NEVER_PUBLIC.format(registry=policy.registry), "past"
    elif verdict.is_blocked is None:
        title, tone = f"It depends on its age: {what}", "past"
        consequence = "Give the date of its publication below to have its age judged."
    elif not verdict.is_blocked:
        title, tone = f"Allowed: {what}", "done"
        consequence = "The proxy serves it."
    elif is_audit:
        title, tone = f"Blocked, but served: {what}", "past"
        consequence = (
            "The policy is in audit mode: the install is served, and its row says that it would be"
            " blocked."
        )
    else:
        title, tone = f"Blocked: {what}", "fault-panel"
        consequence = (
            "The proxy marks this version in the index, and refuses its file. A version range"
            " takes the newest version that is allowed."
        )
    return Answer(verdict, title, consequence, tone, decision.rule_id, place)


async def _place(
    services: DashboardServices, org: Organisation, verdict: CheckResult
) -> str | None:
    """The id on the policy page of what decided; None if no rule did."""
    decision = verdict.decision
    if decision.kind == OssFirstParty.event:
        return "first-party"
    if decision.kind == CooldownActive.event:
        return "cooldown"
    if decision.rule_id is None:
        return None
    if getattr(decision.envelope, "source", None) == "osv":
        return "blocklist"
    async with services.store.read() as session:
        revision = await find_revision(session, org.id)
    policy = NO_POLICY if revision is None else decode_document(revision.document)
    for part, rules in policy.entries.items():
        for number, rule in enumerate(rules):
            if isinstance(rule, ReleaseRule) and rule.rule_id == decision.rule_id:
                return f"{part}-{number}"
    return None
