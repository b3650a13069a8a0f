"""Claims about time as instants, beside now. Pure."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from analytics.model.instants import format_ms
from service.explain.evaluation import Evaluation
from service.explain.text_diff import shown
from service.verifier.claims import UnverifiedClaims
from service.verifier.codes import TokenRejected
from service.verifier.rules import LEEWAY_S, rule_7_time


@dataclass(frozen=True, slots=True)
class TimeClaim:
    """A claim that names an instant, and how many seconds that is ahead of now.

    `instant` and `ahead_s` are None for what is no instant.
    """

    claim: str
    found: str | None
    instant: str | None
    ahead_s: float | None
    holds: bool


def times(evaluation: Evaluation) -> list[TimeClaim]:
    """Each claim about time, judged by the rule itself with the others taken out."""
    members = evaluation.unverified_claims.members
    seconds = evaluation.now.timestamp()
    good = {"exp": seconds + 1}
    alone = {
        "exp": {name: members[name] for name in ("exp",) if name in members},
        **{name: good | {name: members[name]} for name in ("iat", "nbf") if name in members},
    }
    found = []
    for name, only in alone.items():
        value = members.get(name)
        instant = _instant(value)
        found.append(
            TimeClaim(
                claim=name,
                found=one_line(value) if name in members else None,
                instant=format_ms(instant) if instant else None,
                ahead_s=round((instant - evaluation.now).total_seconds(), 3) if instant else None,
                holds=_holds(UnverifiedClaims(only), evaluation.now),
            )
        )
    return found


def _holds(claims: UnverifiedClaims, now: datetime) -> bool:
    try:
        rule_7_time(claims, now)
    except TokenRejected:
        return False
    return True


def _instant(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def lateness(time: TimeClaim) -> str:
    """What is wrong with a claim that does not hold."""
    if time.found is None:
        return f"{time.claim} is missing."
    if time.ahead_s is None:
        return f"{time.claim} is no instant: it has to be a number of seconds since 1970."
    if time.claim == "exp":
        return f"The token expired {-time.ahead_s:.15g} s ago."
    ahead = f"{time.ahead_s:.15g} s ahead"
    return f"{time.claim} is {ahead}, more than the {LEEWAY_S} s that clocks may differ."


def one_line(value: object) -> str:
    """A claim of any type as text."""
    return shown(value if isinstance(value, str) else json.dumps(value))
