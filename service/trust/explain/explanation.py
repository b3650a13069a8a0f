"""Explains why a token is or is not trusted: each rule's outcome with expected and found values.

Applies the verifier's own rules; nothing here decides whether a rule passes. Pure.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from analytics.model.instants import format_ms
from service.ci.issuers.jwks import SigningKeys
from service.ci.verifier.claims import UnverifiedToken
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.rules import VerificationContext
from service.trust.explain.evaluation import (
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
from service.trust.explain.rule_details import (
    RuleDetail,
    TimeClaim,
    audience_detail,
    event_detail,
    issuer_detail,
    repository_detail,
    signature_detail,
    subject_detail,
    time_detail,
    times,
)
from service.trust.explain.text_diff import Difference, Shown, display_text


@dataclass(frozen=True, slots=True)
class ExplainedRule:
    """One rule and its outcome."""

    rule: int
    name: str
    status: Status
    expected: Shown = None
    found: Shown = None
    difference: Difference | None = None
    note: str | None = None


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
            ExplainedRule(rule, name, Status.NOT_REACHED) for rule, name in enumerate(RULE_NAMES, 1)
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
        steps.append(
            ExplainedRule(
                rule, name, status, detail.expected, detail.found, detail.difference, detail.note
            )
        )
    return steps


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
        predecessor.terms if predecessor else None,
    )


def _nearest(evaluation: Evaluation) -> Sequence[NearMatch]:
    """The nearest bindings, if the token failed because no binding matched."""
    rejection, job = evaluation.trace.rejection, evaluation.job
    if rejection is None or rejection.rule not in {3, 4, 5} or job is None:
        return ()
    is_ambiguous = rejection.detail is Detail.BINDING_AMBIGUOUS
    return nearest_bindings(job, evaluation.bindings, ambiguous(evaluation) if is_ambiguous else ())
