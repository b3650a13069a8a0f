"""The question "would this be allowed, and why": its form, and its answer."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta

from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import CooldownActive
from analytics.model.instants import parse_instant
from service.core.errors import Invalid
from service.core.text_rules import is_encodable
from service.packages.ecosystem import InvalidPackageName, Release
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.names import canonical_name
from service.packages.policy.evaluation import PackagePolicy
from service.packages.policy.model import PolicyDecision
from service.packages.versions import VERSION_MAX

PACKAGE_MAX: Final = 512

PackageSpec = Annotated[
    str,
    Meta(
        description="A name, or with its version `requests==2.32.3`, `left-pad@1.3.0`.",
        extra_json_schema={"minLength": 1, "maxLength": PACKAGE_MAX},
    ),
]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The decision on a release; None for `is_blocked` if it depends on an age not given."""

    release: Release
    decision: PolicyDecision
    is_blocked: bool | None
    reason: str


def parse_release(
    ecosystem_text: str, package: str, version: str | None, published_at: str | None
) -> Release:
    """The release that these texts name. Raises Invalid.

    The version is in `version`, or follows the name as users of each client write it:
    `requests==2.32.3`, `left-pad@1.3.0`.
    """
    if ecosystem_text not in set(Ecosystem):
        raise Invalid(f"ecosystem must be one of {', '.join(Ecosystem)}", field="ecosystem")
    ecosystem = Ecosystem(ecosystem_text)
    if len(package) > PACKAGE_MAX:
        raise Invalid(f"package must be at most {PACKAGE_MAX} characters", field="package")
    if version is None:
        package, version = _split(ecosystem, package)
    if not 1 <= len(version) <= VERSION_MAX:
        raise Invalid(f"version must be 1 to {VERSION_MAX} characters", field="version")
    if not is_encodable(version):  # the answer repeats it
        raise Invalid("version must be text without lone surrogates", field="version")
    try:
        name = canonical_name(ecosystem, package)
    except InvalidPackageName as error:
        raise Invalid(f"package: {error}", field="package") from error
    return Release(ecosystem, name, version, _instant(published_at))


def _split(ecosystem: Ecosystem, package: str) -> tuple[str, str]:
    facts = ECOSYSTEMS[ecosystem]
    match = facts.specifier.fullmatch(package.strip())
    if match is None:
        raise Invalid(
            f"version is required: give it, or a package such as {facts.example}", field="version"
        )
    return match["name"], match["version"]


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise Invalid(f"published_at: {error}", field="published_at") from error


def check_release(policy: PackagePolicy, release: Release, now: datetime) -> CheckResult:
    """The verdict on `release` under the policy on its package."""
    if policy.trust is not None:
        release = policy.trust.as_listed(release)
    decision = policy.decide(release, now)
    if decision.kind == CooldownActive.event and release.published_at is None:
        days = 0 if policy.min_age is None else policy.min_age.days
        reason = f"allowed once it is {days} days old: give published_at to have its age judged"
        return CheckResult(release, decision, None, reason)
    return CheckResult(release, decision, decision.is_blocked, decision.reason)
