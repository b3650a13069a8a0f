"""Describes each rule's expected and found values for users. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from analytics.model.instants import format_ms
from service.ci.verifier.claims import UnverifiedClaims
from service.ci.verifier.codes import Detail, TokenRejected
from service.ci.verifier.rules import LEEWAY_S, rule_7_time
from service.trust.explain.evaluation import SIGNATURE_RULE, Evaluation, ambiguous
from service.trust.explain.nearest import NearMatch
from service.trust.explain.text_diff import (
    Difference,
    Shown,
    common_prefix,
    difference_of,
    display_list,
    display_text,
    display_value,
)


@dataclass(frozen=True, slots=True)
class RuleDetail:
    """A rule's expected and found values, with a sentence about them."""

    expected: Shown = None
    found: Shown = None
    difference: Difference | None = None
    note: str | None = None


def issuer_detail(evaluation: Evaluation) -> RuleDetail:
    """Rule 1: the accepted issuers, and the token's."""
    accepted = sorted(evaluation.context.issuers)
    found = evaluation.unverified_claims.members.get("iss")
    if evaluation.trace.issuer is not None:
        return RuleDetail(display_text(evaluation.trace.issuer.url), display_value(found))
    return RuleDetail(
        display_list(accepted),
        display_value(found),
        _nearest_difference(accepted, found),
        _kind_note("iss", found) or "No issuer of this name is accepted here.",
    )


def audience_detail(evaluation: Evaluation) -> RuleDetail:
    """Rule 2: the audience of the token."""
    ours, found = evaluation.context.audience, evaluation.unverified_claims.members.get("aud")
    alone = found[0] if isinstance(found, list) and len(found) == 1 else found
    difference = _nearest_difference([ours], alone)
    note = None
    if isinstance(found, list) and len(found) != 1:
        note = "Of several audiences none may be ours: the token has to be made for us alone."
    elif difference is not None:
        note = "The token was made for another service: ask the issuer for one with this audience."
    elif alone != ours:
        note = _kind_note("aud", alone)
    return RuleDetail(display_text(ours), display_value(found), difference, note)


def subject_detail(evaluation: Evaluation, nearest: Sequence[NearMatch]) -> RuleDetail:
    """Rule 3: the subject, compared with the nearest binding if none matches."""
    claims = evaluation.unverified_claims
    sub = claims.text("sub")
    if sub is None:
        return RuleDetail(
            found=display_value(claims.members.get("sub")),
            note=_kind_note("sub", claims.members.get("sub")),
        )
    if evaluation.trace.same_sub:
        return RuleDetail(display_text(sub), display_text(sub))
    patterns = [near.sub_pattern for near in nearest]
    if sub in patterns:
        note = "No active binding that applies has this subject; the nearest ones say why."
        return RuleDetail(found=display_text(sub), note=note)
    note = "No binding of this organisation has this subject."
    if not patterns:
        return RuleDetail(found=display_text(sub), note=note)
    return RuleDetail(
        display_text(patterns[0]), display_text(sub), difference_of(patterns[0], sub), note
    )


def repository_detail(evaluation: Evaluation) -> RuleDetail:
    """Rule 4: the repository of the job."""
    issuer, claims, trace = evaluation.trace.issuer, evaluation.unverified_claims, evaluation.trace
    name = issuer.repository_id_claim if issuer else None
    found = claims.identifier(name)
    ids = sorted({item.repository_id for item in trace.same_sub if item.repository_id is not None})
    if trace.same_repository:
        note = None if ids else "The binding has no repository id: it takes any repository."
        return RuleDetail(display_list(ids) or None, display_value(found), note=note)
    if found is None:
        raw = claims.members.get(name or "")
        note = f"The claim {name} is missing; bindings of this issuer need it."
        return RuleDetail(display_list(ids) or None, display_value(raw), note=note)
    note = "The subject is bound for another repository: names can change hands, ids cannot."
    return RuleDetail(display_list(ids), display_text(found), _nearest_difference(ids, found), note)


def event_detail(evaluation: Evaluation) -> RuleDetail:
    """Rule 5: the event that started the job, or the bindings that match equally well."""
    trace, rejection = evaluation.trace, evaluation.trace.rejection
    name = trace.issuer.event_name_claim if trace.issuer else None
    found = display_value(evaluation.unverified_claims.members.get(name or ""))
    if rejection is not None and rejection.detail is Detail.BINDING_AMBIGUOUS:
        ids = sorted(ambiguous(evaluation))
        return RuleDetail(
            "one binding", display_list(ids), note="Several bindings fit equally well."
        )
    considered = [trace.binding] if trace.binding else trace.same_repository
    events = sorted({event for item in considered for names in item.event_sets for event in names})
    if trace.binding is not None:
        return RuleDetail(
            display_list(events) or None, found, note=None if events else "Any event is."
        )
    note = f"The claim {name} names an event that is not listed."
    if evaluation.unverified_claims.text(name) is None:
        note = f"The claim {name} is missing or empty, and no binding here takes a job without it."
    return RuleDetail(display_list(events), found, _nearest_difference(events, found), note)


def signature_detail(evaluation: Evaluation) -> RuleDetail:
    """Rule 6: the algorithm and key in the header, and why the signature is not accepted."""
    header, rejection = evaluation.token.unverified_header, evaluation.trace.rejection
    algorithms = list(evaluation.trace.issuer.algorithms) if evaluation.trace.issuer else []
    found = [f"{name}: {one_line(header.get(name))}" for name in ("alg", "kid")]
    note = None
    if rejection is not None and rejection.rule == SIGNATURE_RULE:
        note = display_text(rejection.reason or "")
    return RuleDetail(
        [f"alg: {' or '.join(algorithms)}", "kid: a key of the issuer"],
        display_list(found),
        None,
        note,
    )


def time_detail(evaluation: Evaluation) -> RuleDetail:
    """Rule 7: the time claims, and by how much they are off."""
    claims = times(evaluation)
    off = [lateness(claim) for claim in claims if not claim.holds]
    return RuleDetail(
        f"exp after {format_ms(evaluation.now)}; iat and nbf at most {LEEWAY_S} s ahead of it",
        [f"{claim.claim}: {claim.instant or claim.found or 'missing'}" for claim in claims],
        note=" ".join(off) or None,
    )


def _nearest_difference(texts: Sequence[str], found: object) -> Difference | None:
    """How `found` differs from the text in `texts` with the longest common prefix."""
    if not isinstance(found, str) or not texts:
        return None
    return difference_of(max(texts, key=lambda text: common_prefix(text, found)), found)


def _kind_note(name: str, value: object) -> str | None:
    if isinstance(value, str):
        return f"The claim {name} is empty." if not value else None
    if value is None:
        return f"The claim {name} is missing."
    return f"The claim {name} is not a string."


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
    return display_text(value if isinstance(value, str) else json.dumps(value))
