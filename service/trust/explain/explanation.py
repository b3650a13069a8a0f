"""Explains why a token is or is not trusted: each rule's outcome with expected and found values.

Applies the verifier's own rules; nothing here decides whether a rule passes. Pure.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from analytics.model.instants import format_ms
from service.ci.issuers.jwks import SigningKeys
from service.ci.verifier.claims import UnverifiedClaims, UnverifiedToken
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.rules import LEEWAY_S, VerificationContext, rule_7_time
from service.trust.explain.evaluation import (
    EVENT_RULE,
    RULE_NAMES,
    SIGNATURE_RULE,
    TIME_RULE,
    Evaluation,
    KnownBinding,
    Status,
    ambiguous,
    is_reached,
    run_rules,
)
from service.trust.explain.nearest import (
    NearMatch,
    find_predecessor,
    nearest_bindings,
)
from service.trust.explain.proposals import Proposal, proposal_for
from service.trust.explain.text_diff import (
    Difference,
    Shown,
    common_prefix,
    difference_of,
    display_list,
    display_text,
    display_value,
)


class ExplainedRule(Struct, frozen=True, rename="camel"):
    """One of the seven rules, or a condition of the binding, and its outcome."""

    rule: Annotated[int, Meta(ge=1, le=7)]
    name: Annotated[
        str,
        Meta(
            description="issuer, audience, subject, repository, event, signature or time; after"
            " event also `condition:` and the claim, for each condition of the binding."
        ),
    ]
    status: Status
    expected: Shown
    found: Shown
    difference: Difference | None
    note: str | None


class TimeClaim(Struct, frozen=True, rename="camel"):
    """A time claim, and how many seconds it is ahead of now; a negative number is for the past.

    Instant and seconds are null if the value is not a valid time.
    """

    claim: str
    found: str | None
    instant: str | None
    ahead_s: float | None
    holds: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verifier's result for a token, with the details needed to understand it."""

    passes: bool
    code: FailureCode | None
    detail: Detail | None
    reason: str | None
    binding: str | None
    signature_checked: bool
    now: str
    rules: Sequence[ExplainedRule]
    times: Sequence[TimeClaim] = ()
    nearest: Sequence[NearMatch] = ()
    proposal: Proposal | None = None


def explain_token(
    token: UnverifiedToken,
    context: VerificationContext,
    bindings: Collection[KnownBinding],
    keys: SigningKeys | None,
    now: datetime,
) -> Explanation:
    """The outcome of each rule for `token`, and the `bindings` that nearly match.

    `bindings` are all of the organisation's, including revoked ones. Without `keys` the signature
    is not checked, as for claims without a token.
    """
    evaluation = Evaluation(token, context, bindings, keys, now)
    trace = evaluation.trace
    try:
        run_rules(evaluation)
    except TokenRejected as rejected:
        trace.rejection = rejected
    rejection = trace.rejection
    nearest = _nearest(evaluation)
    return Explanation(
        passes=rejection is None,
        code=rejection.code if rejection else None,
        detail=rejection.detail if rejection else None,
        reason=display_text(rejection.reason) if rejection and rejection.reason else None,
        binding=trace.binding.id if trace.binding else None,
        signature_checked=trace.is_signed,
        now=format_ms(now),
        rules=_steps(evaluation, nearest),
        times=times(evaluation) if is_reached(evaluation, TIME_RULE) else (),
        nearest=nearest,
        proposal=_proposal(evaluation, nearest),
    )


def explain_no_token(rejection: TokenRejected, now: datetime) -> Explanation:
    """The explanation of input that is no token: no rule is reached."""
    return Explanation(
        passes=False,
        code=rejection.code,
        detail=rejection.detail,
        reason=display_text(rejection.reason or "nothing was sent, or only white space"),
        binding=None,
        signature_checked=False,
        now=format_ms(now),
        rules=[
            ExplainedRule(rule, name, Status.NOT_REACHED, *RuleDetail())
            for rule, name in enumerate(RULE_NAMES, 1)
        ],
    )


def _steps(evaluation: Evaluation, nearest: Sequence[NearMatch]) -> list[ExplainedRule]:
    details: tuple[Callable[[Evaluation], RuleDetail], ...] = (
        issuer_detail,
        audience_detail,
        lambda evaluation: subject_detail(evaluation, nearest),
        repository_detail,
        event_detail,
        signature_detail,
        time_detail,
    )
    steps = []
    for rule, (name, detail_of) in enumerate(zip(RULE_NAMES, details, strict=True), 1):
        status = evaluation.trace.status(rule, has_signature=evaluation.keys is not None)
        detail = detail_of(evaluation) if status is not Status.NOT_REACHED else RuleDetail()
        if rule == SIGNATURE_RULE and evaluation.keys is None:
            detail = RuleDetail(note="Claims carry no signature: no issuer has confirmed them.")
        steps.append(ExplainedRule(rule, name, status, *detail))
        if rule == EVENT_RULE and status is Status.PASSED:
            steps.extend(_conditions(evaluation))
    return steps


def _conditions(evaluation: Evaluation) -> list[ExplainedRule]:
    """Each condition of the binding that matched, or of the one that came nearest to it."""
    claims, trace = evaluation.unverified_claims, evaluation.trace
    nearest = trace.binding or min(
        trace.allowing, key=lambda item: (len(item.unmet(claims)), item.id), default=None
    )
    if nearest is None:
        return []
    unmet = nearest.unmet(claims)
    return [
        _condition(evaluation, nearest.id, pair, is_met=pair not in unmet)
        for pair in nearest.conditions
    ]


def _condition(
    evaluation: Evaluation, binding_id: str, condition: tuple[str, str], *, is_met: bool
) -> ExplainedRule:
    claim, value = condition
    found = evaluation.unverified_claims.text(claim)
    note = None
    if not is_met:
        what = "is not in the token" if found is None else "has another value"
        note = f"The claim {claim} {what}: binding {binding_id} takes such jobs alone."
    return ExplainedRule(
        EVENT_RULE,
        f"condition:{claim}",
        Status.PASSED if is_met else Status.FAILED,
        display_text(value),
        display_value(evaluation.unverified_claims.members.get(claim)),
        difference_of(value, found) if found is not None and not is_met else None,
        note,
    )


def _proposal(evaluation: Evaluation, nearest: Sequence[NearMatch]) -> Proposal | None:
    """The binding that would make the token trusted, if it failed for lack of one."""
    trace, job = evaluation.trace, evaluation.job
    if trace.rejection is None or trace.binding is not None:
        return None
    predecessor = None if job is None else find_predecessor(job, nearest, evaluation.bindings)
    return proposal_for(
        evaluation.unverified_claims,
        evaluation.context,
        evaluation.active,
        predecessor,
    )


def _nearest(evaluation: Evaluation) -> Sequence[NearMatch]:
    """The nearest bindings, if the token failed because no binding matched."""
    rejection, job = evaluation.trace.rejection, evaluation.job
    if rejection is None or rejection.rule not in {3, 4, 5} or job is None:
        return ()
    is_ambiguous = rejection.detail is Detail.BINDING_AMBIGUOUS
    return nearest_bindings(job, evaluation.bindings, ambiguous(evaluation) if is_ambiguous else ())


class RuleDetail(NamedTuple):
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
    note = None
    if isinstance(found, list) and len(found) != 1:
        note = "Of several audiences none may be ours: the token has to be made for us alone."
    elif isinstance(alone, str) and alone != ours:
        note = "The token was made for another service: ask the issuer for one with this audience."
    elif alone != ours:
        note = _kind_note("aud", alone)
    difference = _nearest_difference([ours], alone)
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
    return RuleDetail(display_text(patterns[0]), display_text(sub), nearest[0].difference, note)


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
