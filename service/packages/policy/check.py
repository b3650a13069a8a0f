"""The question "would this be allowed, and why": its form, and its answer."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from analytics.model.envelopes import CooldownActive
from analytics.model.instants import parse_instant
from service.core.errors import Invalid
from service.core.text_rules import is_encodable
from service.packages.ecosystems import Ecosystem
from service.packages.names import InvalidPackageName, canonical_name
from service.packages.policy.evaluation import PackagePolicy
from service.packages.policy.model import Decision
from service.packages.release import Release
from service.packages.versions import VERSION_MAX

PACKAGE_MAX: Final = 512
_FIELDS: Final = ("ecosystem", "package", "version", "published_at")
_PYPI_SPEC: Final = re.compile(r"(?P<name>[^\[=@\s]+)\s*(?:\[[^\]]*\])?\s*={2,3}\s*(?P<version>.+)")
_NPM_SPEC: Final = re.compile(r"(?P<name>@?[^@]+)@(?P<version>.+)")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The decision on a release; None for `is_blocked` if it depends on an age not given."""

    release: Release
    decision: Decision
    is_blocked: bool | None
    reason: str


def parse_check(body: dict[str, Any]) -> Release:
    """The release that a request asks about. Raises Invalid.

    The version is in `version`, or follows the name as users of each client write it:
    `requests==2.32.3`, `left-pad@1.3.0`.
    """
    for field in body:
        if field not in _FIELDS:
            raise Invalid(f"unknown field: {field[:64]}", field=field[:64])
    for field in ("ecosystem", "package"):
        if not isinstance(body.get(field), str):
            raise Invalid(f"{field} is required (string)", field=field)
    for field in ("version", "published_at"):
        if not isinstance(body.get(field), str | None):
            raise Invalid(f"{field} must be a string", field=field)
    return parse_release(
        body["ecosystem"], body["package"], body.get("version"), body.get("published_at")
    )


def parse_release(
    ecosystem_text: str, package: str, version: str | None, published_at: str | None
) -> Release:
    """The release that these texts name. Raises Invalid."""
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
    form = _PYPI_SPEC if ecosystem is Ecosystem.PYPI else _NPM_SPEC
    match = form.fullmatch(package.strip())
    if match is None:
        example = "requests==2.32.3" if ecosystem is Ecosystem.PYPI else "left-pad@1.3.0"
        raise Invalid(
            f"version is required: give it, or a package such as {example}", field="version"
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
    decision = policy.decide(release, now)
    if decision.kind == CooldownActive.event and release.published_at is None:
        days = 0 if policy.min_age is None else policy.min_age.days
        reason = f"allowed once it is {days} days old: give published_at to have its age judged"
        return CheckResult(release, decision, None, reason)
    return CheckResult(release, decision, decision.is_blocked, decision.reason)
