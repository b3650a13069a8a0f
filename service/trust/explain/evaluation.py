"""Runs the verification rules on a token and records how far it got. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from service.ci.issuers.issuers import Issuer
from service.ci.issuers.jwks import SigningKeys
from service.ci.verifier.candidates import BindingTerms, Candidate
from service.ci.verifier.claims import UnverifiedClaims, UnverifiedToken
from service.ci.verifier.codes import TokenRejected
from service.ci.verifier.rules import (
    VerificationContext,
    most_specific,
    only_binding,
    rule_1_issuer,
    rule_2_audience,
    rule_3_subject,
    rule_4_repository,
    rule_5_event,
    rule_6_signature,
    rule_7_time,
)

RULE_NAMES: Final = (
    "issuer",
    "audience",
    "subject",
    "repository",
    "event",
    "signature",
    "time",
)
EVENT_RULE: Final = 5
SIGNATURE_RULE: Final = 6
TIME_RULE: Final = 7


@dataclass(slots=True)
class KnownBinding(BindingTerms):
    """The columns of a binding that explanations compare with a token or show."""

    added_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    revoked_reason: str | None = None

    @property
    def is_active(self) -> bool:
        """True until the binding is revoked."""
        return self.revoked_at is None


def active_terms(bindings: Iterable[KnownBinding], sub: str | None) -> Sequence[BindingTerms]:
    """The active ones of `bindings` with the subject `sub`; only they can match the token."""
    return [item for item in bindings if item.is_active and item.sub_pattern == sub]


@dataclass(frozen=True, slots=True)
class TokenJob:
    """A CI job by the unverified claims of its token, and the project of the API key beside it."""

    issuer: Issuer
    sub: str
    repository_id: str | None
    event_name: str | None
    owner: str | None
    project_id: str | None

    @classmethod
    def of(
        cls, unverified_claims: UnverifiedClaims, issuer: Issuer | None, project_id: str | None
    ) -> Self | None:
        """The job, if its issuer is accepted and its token has a subject."""
        sub = unverified_claims.text("sub")
        if issuer is None or sub is None:
            return None
        return cls(
            issuer=issuer,
            sub=sub,
            repository_id=unverified_claims.identifier(issuer.repository_id_claim),
            event_name=unverified_claims.text(issuer.event_name_claim),
            owner=unverified_claims.text(issuer.owner_claim),
            project_id=project_id,
        )


class Status(StrEnum):
    """The outcome of a rule."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_REACHED = "not_reached"


@dataclass(slots=True)
class RuleTrace:
    """The intermediate results of the rules, up to the first failure."""

    issuer: Issuer | None = None
    same_sub: Sequence[Candidate] = ()
    same_repository: Sequence[Candidate] = ()
    allowing: Sequence[Candidate] = ()
    binding: Candidate | None = None
    is_signed: bool = False
    rejection: TokenRejected | None = None

    def status(self, rule: int, *, has_signature: bool) -> Status:
        """The outcome of `rule`."""
        if rule == SIGNATURE_RULE and not has_signature:
            return Status.NOT_REACHED
        failed: float = len(RULE_NAMES) + 1
        if self.rejection is not None:
            # A condition is judged between the rules 5 and 6.
            failed = (self.rejection.rule or 0) + 0.5 * self.rejection.is_by_condition
        if rule == failed:
            return Status.FAILED
        return Status.PASSED if rule < failed else Status.NOT_REACHED


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A token with the inputs of the rules. Without `keys`, claims alone are evaluated."""

    token: UnverifiedToken
    context: VerificationContext
    bindings: Collection[KnownBinding]
    keys: SigningKeys | None
    now: datetime
    trace: RuleTrace = field(default_factory=RuleTrace)

    @property
    def unverified_claims(self) -> UnverifiedClaims:
        """The claims of the token, before any rule is applied."""
        return self.token.unverified_claims

    @property
    def job(self) -> TokenJob | None:
        """The job that the token is of, as far as the rules came."""
        return TokenJob.of(self.unverified_claims, self.trace.issuer, self.context.project_id)

    @property
    def active(self) -> Sequence[BindingTerms]:
        """The active bindings with the token's subject."""
        return active_terms(self.bindings, self.unverified_claims.text("sub"))


def run_rules(evaluation: Evaluation) -> None:
    """Apply the verifier's rules in the verifier's order. Raises TokenRejected."""
    claims, context, trace = evaluation.unverified_claims, evaluation.context, evaluation.trace
    issuer = rule_1_issuer(claims, context.issuers)
    trace.issuer = issuer
    rule_2_audience(claims, context.audience)
    trace.same_sub = rule_3_subject(claims, issuer, context)
    trace.same_repository = rule_4_repository(claims, issuer, trace.same_sub)
    trace.allowing = rule_5_event(claims, issuer, trace.same_repository)
    trace.binding = only_binding(claims, trace.allowing)
    if evaluation.keys is not None:
        rule_6_signature(evaluation.token, issuer, evaluation.keys)
        trace.is_signed = True
    rule_7_time(claims, evaluation.now)


def is_reached(evaluation: Evaluation, rule: int) -> bool:
    """True if `rule` was applied, whether it passed or failed."""
    status = evaluation.trace.status(rule, has_signature=evaluation.keys is not None)
    return status is not Status.NOT_REACHED


def ambiguous(evaluation: Evaluation) -> set[str]:
    """The ids of the candidates among which rule 5 cannot decide."""
    claims = evaluation.unverified_claims
    meeting = [item for item in evaluation.trace.allowing if not item.unmet(claims)]
    return {candidate.id for candidate in most_specific(meeting)}
