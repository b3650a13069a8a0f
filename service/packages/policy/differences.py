"""What a policy change removes and adds, as lines for audit rows and people."""

from dataclasses import dataclass
from typing import Final

from service.packages.policy.model import InstallPolicy

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
    old, new = before.lines, after.lines
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
