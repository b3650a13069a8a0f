"""What a policy change removes and adds is found in time that grows with the policies' size."""

import pytest

from service.packages.policy import model
from service.packages.policy.document import parse_policy
from service.packages.policy.model import NO_POLICY, InstallPolicy

RULES = 300


class _Line(str):
    """A line that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Line.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def denying(name: str) -> InstallPolicy:
    """As many rules as a policy may have."""
    rules = [{"ecosystem": "npm", "package": f"{name}-{number}"} for number in range(RULES)]
    return parse_policy({"deny": rules})


def test_each_line_is_looked_up_and_not_compared_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 rules against 300 others would be 180,000 comparisons, on the event loop."""
    lines = InstallPolicy.lines.fget

    def counted(policy: InstallPolicy) -> model.Parts:
        return {part: [_Line(each) for each in found] for part, found in lines(policy).items()}

    monkeypatch.setattr(InstallPolicy, "lines", property(counted))
    difference = model.difference(denying("old"), denying("new"))

    assert (len(difference.before["deny"]), len(difference.after["deny"])) == (100, 100)
    assert difference.omitted == 2 * (RULES - 100)
    assert _Line.compared < RULES


def test_a_part_whose_order_alone_changed_is_shown_whole() -> None:
    """The first rule that denies a release is the one that is named."""
    policy = parse_policy(
        {"deny": [{"ecosystem": "npm", "package": name} for name in ("first", "second")]}
    )
    turned = parse_policy(
        {"deny": [{"ecosystem": "npm", "package": name} for name in ("second", "first")]}
    )
    difference = model.difference(policy, turned)

    assert difference.before["deny"] == difference.after["deny"][::-1] != []
    assert model.difference(NO_POLICY, NO_POLICY).before == {}
