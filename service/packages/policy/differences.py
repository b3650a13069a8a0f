"""What a policy change removes and adds, as lines for audit rows and people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from service.packages.policy.model import Cooldown, InstallPolicy, PackagePattern, ReleaseRule

LINES_MAX: Final = 100
"""The maximum number of lines per part and side."""

Parts = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class PolicyDifference:
    """The removed and the added lines, by part; `omitted` counts the lines that did not fit."""

    before: Parts
    after: Parts
    omitted: int


def difference(before: InstallPolicy, after: InstallPolicy) -> PolicyDifference:
    """What differs between two policies. If only a part's order changed, all of it is shown."""
    old, new = _lines(before), _lines(after)
    gone: Parts = {}
    added: Parts = {}
    omitted = 0
    for part in old:
        if old[part] == new[part]:
            continue
        for lines, others, into in ((old[part], new[part], gone), (new[part], old[part], added)):
            known = set(others)
            changed = [line for line in lines if line not in known]
            if set(lines) == known:
                changed = list(lines)
            if changed:
                into[part] = changed[:LINES_MAX]
                omitted += len(changed) - len(into[part])
    return PolicyDifference(gone, added, omitted)


def _lines(policy: InstallPolicy) -> Parts:
    return {
        "mode": [str(policy.mode)],
        "first_party": [
            f"{_packages(entry.packages)} from {entry.registry}" for entry in policy.first_party
        ],
        "deny": _rules(policy.deny),
        "allow": _rules(policy.allow),
        "cooldown": _cooldown(policy.cooldown),
    }


def _packages(packages: PackagePattern) -> str:
    return f"{packages.ecosystem}:{packages.pattern.text}"


def _rules(rules: Iterable[ReleaseRule]) -> list[str]:
    return [_rule(rule) for rule in rules]


def _rule(rule: ReleaseRule) -> str:
    versions = f" {_joined(rule.texts)}" if rule.texts else ""
    reason = "" if rule.reason is None else f" ({rule.reason})"
    return f"{rule.rule_id}: {_packages(rule.packages)}{versions}{reason}"


def _joined(texts: Sequence[str]) -> str:
    return " || ".join(texts)


def _cooldown(cooldown: Cooldown | None) -> list[str]:
    if cooldown is None:
        return []
    exempt = [f"not for {_packages(packages)}" for packages in cooldown.exempt]
    return [f"{cooldown.min_age_days} days", *exempt]
