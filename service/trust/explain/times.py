"""Compares a token's time claims with the current time. Pure."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from analytics.model.instants import format_ms
from service.ci.verifier.claims import UnverifiedClaims
from service.ci.verifier.codes import TokenRejected
from service.ci.verifier.rules import LEEWAY_S, rule_7_time
from service.trust.explain.evaluation import Evaluation
from service.trust.explain.text_diff import shown


@dataclass(frozen=True, slots=True)
class TimeClaim:
    """A time claim, and how many seconds it is ahead of now.

    `instant` and `ahead_s` are None if the value is not a valid time.
    """

    claim: str
    found: str | None
    instant: str | None
    ahead_s: float | None
    holds: bool


def times(evaluation: Evaluation) -> list[TimeClaim]:
    """Each time claim, checked by rule 7 without the other ones."""
    members = evaluation.unverified_claims.members
    seconds = evaluation.now.timestamp()
    valid = {"exp": seconds + 1}
    alone = {
        "exp": {name: members[name] for name in ("exp",) if name in members},
        **{name: valid | {name: members[name]} for name in ("iat", "nbf") if name in members},
    }
    claims = []
    for name, only in alone.items():
        value = members.get(name)
        instant = _instant(value)
        claims.append(
            TimeClaim(
                claim=name,
                found=one_line(value) if name in members else None,
                instant=format_ms(instant) if instant else None,
                ahead_s=round((instant - evaluation.now).total_seconds(), 3) if instant else None,
                holds=_holds(UnverifiedClaims(only), evaluation.now),
            )
        )
    return claims


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
    """A sentence about a time claim that does not hold."""
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
