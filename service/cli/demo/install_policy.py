"""The demo's install policy: the rules that its rows name. Pure."""

from typing import Any

from service.cli.demo.profile import Profile, Rule
from service.packages.policy.document import parse_policy
from service.packages.policy.model import InstallPolicy


def install_policy(profile: Profile, *, is_after_incident: bool) -> InstallPolicy:
    """The policy before the incident, or with its rule. Raises Invalid.

    The advisories of the history's rows (`source` is `osv`) are rules of the organisation here: to
    import them would put them on the blocklist of every other organisation of the data dir.
    """
    rules = [*profile.blocklist, *([profile.incident.rule] if is_after_incident else [])]
    return parse_policy(
        {
            "first_party": [
                {"ecosystem": name, "package": package, "registry": ecosystem.registry}
                for name, ecosystem in profile.ecosystems.items()
                for package in ecosystem.first_party
            ],
            "deny": [_entry(rule) for rule in rules],
            "cooldown": {"min_age_days": profile.policy.min_age_days},
        }
    )


def _entry(rule: Rule) -> dict[str, Any]:
    return {
        "ecosystem": rule.ecosystem,
        "package": rule.package,
        "versions": f"=={rule.version}" if rule.ecosystem == "pypi" else rule.version,
        "id": rule.rule_id,
        "reason": rule.reason,
    }
