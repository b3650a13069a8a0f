"""The smallest difference between a rejected token and what would be trusted, in one sentence."""

from service.trust.explain.evaluation import Status
from service.trust.explain.explanation import Explanation, Step
from service.trust.explain.nearest import NearBinding, NearKind
from service.trust.explain.text_diff import Difference

_OF_NEAREST = {
    NearKind.REVOKED: "The binding that trusted it is revoked.",
    NearKind.OTHER_PROJECT: "Its binding is limited to API keys of another project.",
    NearKind.OUTSIDE_ENVELOPE: "Its team’s binding matches no token: see below.",
    NearKind.QUALIFIED: "It differs from a binding only in GitHub’s ids behind the names.",
    NearKind.OTHER_SUBJECT: "Other subjects of its repository are bound.",
}


def smallest_difference(explanation: Explanation) -> str | None:
    """What the rejected token differs in from the nearest binding or value, or None."""
    failed = failed_step(explanation)
    if failed is None:
        return None
    if explanation.nearest:
        return _of_nearest(explanation.nearest[0], failed)
    return None if failed.difference is None else f"{_character(failed.difference)}."


def failed_step(explanation: Explanation) -> Step | None:
    """The rule that failed, or None."""
    return next((step for step in explanation.rules if step.status is Status.FAILED), None)


def _of_nearest(near: NearBinding, failed: Step) -> str | None:
    if near.kind is NearKind.SPELLING and near.difference is not None:
        return f"{_character(near.difference)} from {_article(near)}."
    if near.kind is NearKind.OTHER_REPOSITORY:
        return f"A binding has its subject, for repository id {near.repository_id}."
    if near.kind is NearKind.OTHER_EVENT:
        return f"It was started by {_one(failed.found)}, which its binding does not list."
    return _OF_NEAREST.get(near.kind)


def _article(near: NearBinding) -> str:
    return f"{'an' if near.state == 'active' else 'a'} {near.state} binding"


def _one(found: object) -> str:
    return found if isinstance(found, str) else "an event the token does not name"


def _character(difference: Difference) -> str:
    detail = f" ({difference.hint})" if difference.hint else ""
    return f"Character {difference.at + 1} differs{detail}"
