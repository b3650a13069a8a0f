"""A preview is bounded by the steps that its judgements take, not by time."""

from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from service.packages.policy import preview
from service.packages.policy.document import encode_document, parse_policy
from service.packages.policy.preview import RELEASES_MAX, STEPS_MAX, judge_releases


def document(rules: int, ranges: int, package: str = "*") -> bytes:
    """A policy with so many deny rules of so many ranges each."""
    deny: list[dict[str, Any]] = [
        {
            "ecosystem": "npm",
            "package": package,
            "versions": [f"<0.{number}" for number in range(ranges)],
            "id": str(rule),
        }
        for rule in range(rules)
    ]
    return encode_document(parse_policy({"deny": deny}))


def releases(count: int) -> list[tuple[str | None, ...]]:
    """So many releases, each of a package of its own with a usual name."""
    return [(Ecosystem.NPM.value, f"@scope/package-{number}", "1.0.0") for number in range(count)]


def test_usual_rules_fit_in_the_steps_of_a_preview() -> None:
    judged, steps = judge_releases(document(rules=5, ranges=2), releases(RELEASES_MAX))

    assert len(judged) == RELEASES_MAX
    assert steps < STEPS_MAX


def test_hostile_rules_end_a_preview_after_a_number_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is judged by then is counted; a page of the dashboard does not wait for minutes."""
    monkeypatch.setattr(preview, "STEPS_MAX", 20_000)

    judged, steps = judge_releases(document(rules=100, ranges=32), releases(20))

    assert len(judged) == 2
    assert 20_000 <= steps < 50_000


def test_rules_of_other_packages_take_no_steps() -> None:
    few, steps = judge_releases(document(rules=1, ranges=1, package="other-*"), releases(10))
    many, same_steps = judge_releases(
        document(rules=100, ranges=32, package="other-*"), releases(10)
    )

    assert few == many
    assert steps == same_steps
