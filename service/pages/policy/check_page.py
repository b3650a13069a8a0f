"""The page that answers "would this be allowed?": the verdict, the rule, and where it is."""

from typing import Final

from msgspec import structs
from quart import Blueprint

from analytics.model.envelopes import CooldownActive, OssFirstParty, TrustDowngraded
from service.access.roles import Capability
from service.core.errors import Invalid
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.policy.check import CheckResult, check_release, parse_release
from service.packages.policy.evaluation import PackagePolicy
from service.packages.policy.model import PolicyMode, ReleaseRule
from service.packages.policy.policy_api import PolicyServices
from service.packages.policy.repository import find_revision, policy_of
from service.pages.page import Page, PageCall, View
from service.pages.policy.policy_page import CHOICES
from service.web.dependencies import group_of
from service.web.models import Request

blueprint = Blueprint(
    "dashboard_policy_check", __name__, url_prefix="/admin/ui/orgs/<slug>/policy/check"
)

_NEVER_PUBLIC: Final = (
    "The proxy never asks a public registry for it, and answers 404. Configure the client to get it"
    " from {registry} itself."
)


class CheckQuery(Request):
    """The release that the form asks about; without a version nothing is asked yet."""

    ecosystem: str = ""
    package: str = ""
    version: str | None = None
    published_at: str = ""


@Page(
    blueprint,
    "",
    "policy/check.html",
    needs=Capability.POLICY_READ,
    query=CheckQuery,
)
async def check_page(call: PageCall, query: CheckQuery) -> View:
    """Whether a release would be allowed, and why. Nothing is recorded. Raises StoreUnavailable."""
    texts = {name: (text or "").strip() for name, text in structs.asdict(query).items()}
    view: dict[str, object] = {"typed": texts, "faults": {}, "ecosystems": CHOICES}
    if query.version is None:
        return view
    if not texts["package"]:
        return view | {"faults": {"package": "package is required"}, "status": Invalid.status}
    try:
        release = parse_release(
            texts["ecosystem"],
            texts["package"],
            texts["version"] or None,
            texts["published_at"] or None,
        )
    except Invalid as fault:
        return view | {"faults": {fault.field or "package": fault.text}, "status": fault.status}
    policy = await group_of(PolicyServices).judged(call.org, release.ecosystem, release.name)
    verdict = check_release(policy, release, call.services.clock())
    return view | {"answer": _answer(verdict, policy, await _place(call, verdict))}


def _answer(verdict: CheckResult, policy: PackagePolicy, place: str | None) -> View:
    """The verdict in words, and the rule's place on the policy page (an id there), if any.

    Its `tone` is the notice's: done, fault-panel or past.
    """
    release, decision = verdict.release, verdict.decision
    what = f"{release.name} {release.version} ({ECOSYSTEMS[release.ecosystem].label})"
    is_audit = policy.mode is PolicyMode.AUDIT
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
    return {
        "verdict": verdict,
        "title": title,
        "consequence": consequence,
        "tone": tone,
        "rule": decision.rule_id,
        "place": place,
    }


async def _place(call: PageCall, verdict: CheckResult) -> str | None:
    """The id on the policy page of what decided; None if no rule did."""
    decision = verdict.decision
    if decision.kind == OssFirstParty.event:
        return "first-party"
    if decision.kind == CooldownActive.event:
        return "cooldown"
    if decision.kind == TrustDowngraded.event:
        return "trust"
    if decision.rule_id is None:
        return None
    if getattr(decision.envelope, "source", None) == "osv":
        return "blocklist"
    async with call.read() as session:
        policy = policy_of(await find_revision(session, call.org.id))
    for part, rules in policy.entries.items():
        for number, rule in enumerate(rules):
            if isinstance(rule, ReleaseRule) and rule.rule_id == decision.rule_id:
                return f"{part}-{number}"
    return None
