"""Why a token is or is not trusted: each rule's outcome, what it wanted and what it found.

The rules themselves are run, one after the other; nothing here decides whether one holds. Pure.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from analytics.instants import format_ms
from service.bindings.issuers import Issuer
from service.bindings.repository import BindingTerms
from service.verifier.candidates import Candidate
from service.verifier.claims import UnverifiedClaims, UnverifiedToken
from service.verifier.codes import Detail, FailureCode, TokenRejected
from service.verifier.differences import (
    Difference,
    Shown,
    common_prefix,
    difference_of,
    shown,
    shown_list,
    shown_value,
)
from service.verifier.drafts import Proposal, proposal_for
from service.verifier.jwks import SigningKeys
from service.verifier.known import KnownBinding, active_terms
from service.verifier.nearest import NearBinding, Sought, nearest_bindings
from service.verifier.rules import (
    LEEWAY_S,
    Grounds,
    foremost,
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
_SIGNATURE_RULE: Final = 6
_TIME_RULE: Final = 7


class Status(StrEnum):
    """What became of a rule."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_REACHED = "not_reached"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rule wanted and what it found, with a sentence about it."""

    expected: Shown = None
    found: Shown = None
    difference: Difference | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One rule and what became of it."""

    rule: int
    name: str
    status: Status
    expected: Shown = None
    found: Shown = None
    difference: Difference | None = None
    note: str | None = None


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


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the verifier would say of a token, and all it takes to understand that."""

    passes: bool
    code: FailureCode | None
    detail: Detail | None
    reason: str | None
    binding: str | None
    signature_checked: bool
    now: str
    rules: Sequence[Step]
    times: Sequence[TimeClaim] = ()
    nearest: Sequence[NearBinding] = ()
    proposal: Proposal | None = None


@dataclass(slots=True)
class _Trail:
    """What each rule handed on to the next one, as far as they got."""

    issuer: Issuer | None = None
    same_sub: Sequence[Candidate] = ()
    same_repository: Sequence[Candidate] = ()
    binding: Candidate | None = None
    is_signed: bool = False
    rejection: TokenRejected | None = None

    def status(self, rule: int, *, has_signature: bool) -> Status:
        """What became of `rule`."""
        if rule == _SIGNATURE_RULE and not has_signature:
            return Status.NOT_REACHED
        failed = len(RULE_NAMES) + 1
        if self.rejection is not None:
            failed = self.rejection.rule or 0
        if rule == failed:
            return Status.FAILED
        return Status.PASSED if rule < failed else Status.NOT_REACHED


@dataclass(frozen=True, slots=True)
class _Case:
    """A token and everything it is judged on. Without `keys` it is claims that nobody signed."""

    token: UnverifiedToken
    grounds: Grounds
    bindings: Collection[KnownBinding]
    keys: SigningKeys | None
    now: datetime
    trail: _Trail = field(default_factory=_Trail)

    @property
    def unverified_claims(self) -> UnverifiedClaims:
        return self.token.unverified_claims

    @property
    def active(self) -> Sequence[BindingTerms]:
        return active_terms(self.bindings, self.unverified_claims.text("sub"))


def explain_token(
    token: UnverifiedToken,
    grounds: Grounds,
    bindings: Collection[KnownBinding],
    keys: SigningKeys | None,
    now: datetime,
) -> Explanation:
    """What the rules say of `token`, and which of the organisation's `bindings` come near.

    `bindings` are all of them, revoked ones too. Without `keys` the signature is left out, as for
    claims that nobody has signed.
    """
    case = _Case(token, grounds, bindings, keys, now)
    trail = case.trail
    try:
        _run_rules(case)
    except TokenRejected as broken:
        trail.rejection = broken
    rejection = trail.rejection
    nearest = _nearest(case)
    return Explanation(
        passes=rejection is None,
        code=rejection.code if rejection else None,
        detail=rejection.detail if rejection else None,
        reason=shown(rejection.reason) if rejection and rejection.reason else None,
        binding=trail.binding.id if trail.binding else None,
        signature_checked=trail.is_signed,
        now=format_ms(now),
        rules=_steps(case, nearest),
        times=_times(case) if _is_reached(case, _TIME_RULE) else (),
        nearest=nearest,
        proposal=(
            proposal_for(case.unverified_claims, grounds, case.active)
            if rejection is not None and trail.binding is None
            else None
        ),
    )


def explain_no_token(rejection: TokenRejected, now: datetime) -> Explanation:
    """The explanation of what is no token at all: no rule is reached."""
    return Explanation(
        passes=False,
        code=rejection.code,
        detail=rejection.detail,
        reason=shown(rejection.reason or "nothing was sent, or only white space"),
        binding=None,
        signature_checked=False,
        now=format_ms(now),
        rules=[Step(rule, name, Status.NOT_REACHED) for rule, name in enumerate(RULE_NAMES, 1)],
    )


def _run_rules(case: _Case) -> None:
    """The verifier's rules in the verifier's order. Raises TokenRejected."""
    claims, grounds, trail = case.unverified_claims, case.grounds, case.trail
    issuer = rule_1_issuer(claims, grounds.issuers)
    trail.issuer = issuer
    rule_2_audience(claims, grounds.audience)
    trail.same_sub = rule_3_subject(claims, issuer, grounds)
    trail.same_repository = rule_4_repository(claims, issuer, trail.same_sub)
    trail.binding = rule_5_event(claims, issuer, trail.same_repository)
    if case.keys is not None:
        rule_6_signature(case.token, issuer, case.keys)
        trail.is_signed = True
    rule_7_time(claims, case.now)


def _is_reached(case: _Case, rule: int) -> bool:
    status = case.trail.status(rule, has_signature=case.keys is not None)
    return status is not Status.NOT_REACHED


def _steps(case: _Case, nearest: Sequence[NearBinding]) -> list[Step]:
    looks = (
        _see_issuer,
        _see_audience,
        lambda case: _see_subject(case, nearest),
        _see_repository,
        _see_event,
        _see_signature,
        _see_time,
    )
    steps = []
    for rule, (name, look) in enumerate(zip(RULE_NAMES, looks, strict=True), 1):
        status = case.trail.status(rule, has_signature=case.keys is not None)
        seen = look(case) if status is not Status.NOT_REACHED else Seen()
        if rule == _SIGNATURE_RULE and case.keys is None:
            seen = Seen(note="Claims carry no signature: nobody has said that they are true.")
        steps.append(
            Step(rule, name, status, seen.expected, seen.found, seen.difference, seen.note)
        )
    return steps


def _see_issuer(case: _Case) -> Seen:
    accepted = sorted(case.grounds.issuers)
    found = case.unverified_claims.members.get("iss")
    if case.trail.issuer is not None:
        return Seen(shown(case.trail.issuer.url), shown_value(found))
    return Seen(
        shown_list(accepted),
        shown_value(found),
        _nearest_difference(accepted, found),
        _kind_note("iss", found) or "No issuer of this name is accepted here.",
    )


def _see_audience(case: _Case) -> Seen:
    wanted, found = case.grounds.audience, case.unverified_claims.members.get("aud")
    alone = found[0] if isinstance(found, list) and len(found) == 1 else found
    difference = _nearest_difference([wanted], alone)
    note = None
    if isinstance(found, list) and len(found) != 1:
        note = "Of several audiences none may be ours: the token has to be made for us alone."
    elif difference is not None:
        note = "The token was made for another service: ask the issuer for one with this audience."
    elif alone != wanted:
        note = _kind_note("aud", alone)
    return Seen(shown(wanted), shown_value(found), difference, note)


def _see_subject(case: _Case, nearest: Sequence[NearBinding]) -> Seen:
    claims = case.unverified_claims
    sub = claims.text("sub")
    if sub is None:
        return Seen(
            found=shown_value(claims.members.get("sub")),
            note=_kind_note("sub", claims.members.get("sub")),
        )
    if case.trail.same_sub:
        return Seen(shown(sub), shown(sub))
    patterns = [near.sub_pattern for near in nearest]
    if sub in patterns:
        note = "No active binding that applies has this subject; the nearest ones say why."
        return Seen(found=shown(sub), note=note)
    note = "No binding of this organisation has this subject."
    if not patterns:
        return Seen(found=shown(sub), note=note)
    return Seen(shown(patterns[0]), shown(sub), difference_of(patterns[0], sub), note)


def _see_repository(case: _Case) -> Seen:
    issuer, claims, trail = case.trail.issuer, case.unverified_claims, case.trail
    name = issuer.repository_id_claim if issuer else None
    found = claims.identifier(name)
    ids = sorted({one.repository_id for one in trail.same_sub if one.repository_id is not None})
    if trail.same_repository:
        note = None if ids else "The binding has no repository id: it takes any repository."
        return Seen(shown_list(ids) or None, shown_value(found), note=note)
    if found is None:
        raw = claims.members.get(name or "")
        note = f"The claim {name} is missing; bindings of this issuer need it."
        return Seen(shown_list(ids) or None, shown_value(raw), note=note)
    note = "The subject is bound for another repository: names can change hands, ids cannot."
    return Seen(shown_list(ids), shown(found), _nearest_difference(ids, found), note)


def _see_event(case: _Case) -> Seen:
    trail, rejection = case.trail, case.trail.rejection
    name = trail.issuer.event_name_claim if trail.issuer else None
    found = shown_value(case.unverified_claims.members.get(name or ""))
    if rejection is not None and rejection.detail is Detail.BINDING_AMBIGUOUS:
        ids = sorted(_ambiguous(case))
        return Seen("one binding", shown_list(ids), note="Several bindings fit equally well.")
    considered = [trail.binding] if trail.binding else trail.same_repository
    events = sorted({event for one in considered for names in one.event_sets for event in names})
    if trail.binding is not None:
        return Seen(shown_list(events) or None, found, note=None if events else "Any event is.")
    note = f"The claim {name} names an event that is not listed."
    if case.unverified_claims.text(name) is None:
        note = f"The claim {name} is missing or empty, and no binding here takes a job without it."
    return Seen(shown_list(events), found, _nearest_difference(events, found), note)


def _see_signature(case: _Case) -> Seen:
    header, rejection = case.token.unverified_header, case.trail.rejection
    algorithms = list(case.trail.issuer.algorithms) if case.trail.issuer else []
    found = [f"{name}: {_one_line(header.get(name))}" for name in ("alg", "kid")]
    note = None
    if rejection is not None and rejection.rule == _SIGNATURE_RULE:
        note = shown(rejection.reason or "")
    return Seen(
        [f"alg: {' or '.join(algorithms)}", "kid: a key of the issuer"],
        shown_list(found),
        None,
        note,
    )


def _see_time(case: _Case) -> Seen:
    times = _times(case)
    off = [_lateness(one) for one in times if not one.holds]
    return Seen(
        f"exp after {format_ms(case.now)}; iat and nbf at most {LEEWAY_S} s ahead of it",
        [f"{one.claim}: {one.instant or one.found or 'missing'}" for one in times],
        note=" ".join(off) or None,
    )


def _times(case: _Case) -> list[TimeClaim]:
    """Each claim about time, judged by the rule itself with the others taken out."""
    members = case.unverified_claims.members
    seconds = case.now.timestamp()
    good = {"exp": seconds + 1}
    alone = {
        "exp": {name: members[name] for name in ("exp",) if name in members},
        **{name: good | {name: members[name]} for name in ("iat", "nbf") if name in members},
    }
    times = []
    for name, only in alone.items():
        value = members.get(name)
        instant = _instant(value)
        times.append(
            TimeClaim(
                claim=name,
                found=_one_line(value) if name in members else None,
                instant=format_ms(instant) if instant else None,
                ahead_s=round((instant - case.now).total_seconds(), 3) if instant else None,
                holds=_holds(UnverifiedClaims(only), case.now),
            )
        )
    return times


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


def _lateness(time: TimeClaim) -> str:
    if time.found is None:
        return f"{time.claim} is missing."
    if time.ahead_s is None:
        return f"{time.claim} is no instant: it has to be a number of seconds since 1970."
    if time.claim == "exp":
        return f"The token expired {-time.ahead_s:.15g} s ago."
    ahead = f"{time.ahead_s:.15g} s ahead"
    return f"{time.claim} is {ahead}, more than the {LEEWAY_S} s that clocks may differ."


def _nearest(case: _Case) -> Sequence[NearBinding]:
    """Bindings that come near, where it is for want of a binding that the token fails."""
    claims, issuer = case.unverified_claims, case.trail.issuer
    rejection = case.trail.rejection
    sub = claims.text("sub")
    if rejection is None or rejection.rule not in {3, 4, 5} or issuer is None or sub is None:
        return ()
    sought = Sought(
        issuer=issuer.url,
        sub=sub,
        repository_id=claims.identifier(issuer.repository_id_claim),
        event_name=claims.text(issuer.event_name_claim),
        project_id=case.grounds.project_id,
    )
    is_ambiguous = rejection.detail is Detail.BINDING_AMBIGUOUS
    return nearest_bindings(sought, case.bindings, _ambiguous(case) if is_ambiguous else ())


def _ambiguous(case: _Case) -> set[str]:
    """The candidates of which rule 5 cannot choose one."""
    issuer = case.trail.issuer
    event_name = case.unverified_claims.text(issuer.event_name_claim if issuer else None)
    allowing = [one for one in case.trail.same_repository if one.allows(event_name)]
    return {one.id for one in foremost(allowing)}


def _nearest_difference(texts: Sequence[str], found: object) -> Difference | None:
    """How `found` differs from the one of `texts` it has most in common with."""
    if not isinstance(found, str) or not texts:
        return None
    return difference_of(max(texts, key=lambda text: common_prefix(text, found)), found)


def _kind_note(name: str, value: object) -> str | None:
    if isinstance(value, str):
        return f"The claim {name} is empty." if not value else None
    if value is None:
        return f"The claim {name} is missing."
    return f"The claim {name} is not a string."


def _one_line(value: object) -> str:
    return shown(value if isinstance(value, str) else json.dumps(value))
