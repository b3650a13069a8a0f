"""An organisation's active bindings, prepared for matching against tokens.

A team binding is effective only while its envelope, the organisation-level binding of the same
identity, is active, and never grants more than that.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from service.ci.verifier.claims import UnverifiedClaims
from service.store.tables import Binding, Origin


@dataclass(slots=True)
class BindingTerms:
    """The columns of an active binding that tokens are matched against."""

    id: str
    project_id: str | None
    team_id: str | None
    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    origin: str
    conditions: dict[str, str] | None


ActiveBinding = Binding | BindingTerms


@dataclass(frozen=True, slots=True)
class Candidate:
    """A binding as matched against tokens.

    The token's event name must be in all of `event_sets`; none allows any event. The token must
    have all claims of `conditions` with exactly these values. `stands_for` is the id of a team
    binding's envelope, over which the team binding takes precedence.
    """

    id: str
    project_id: str | None
    is_team: bool
    repository_id: str | None
    event_sets: tuple[frozenset[str], ...]
    stands_for: str | None = None
    conditions: tuple[tuple[str, str], ...] = ()

    @property
    def is_specific(self) -> bool:
        """True for bindings of a team or project, which take precedence over the organisation's."""
        return self.is_team or self.project_id is not None

    def allows(self, event_name: str | None) -> bool:
        """True if jobs started by `event_name` are trusted; None means the claim is missing."""
        return all(event_name in events for events in self.event_sets)

    def unmet(self, unverified_claims: UnverifiedClaims) -> Sequence[tuple[str, str]]:
        """The conditions that the token does not meet; one on an absent claim is not met."""
        return [
            (claim, value)
            for claim, value in self.conditions
            if unverified_claims.text(claim) != value
        ]


@dataclass(frozen=True, slots=True)
class Candidates:
    """An organisation's active bindings by (issuer, sub)."""

    by_subject: Mapping[tuple[str, str], Sequence[Candidate]]

    def of(self, issuer: str, sub: str, project_id: str | None) -> Sequence[Candidate]:
        """The candidates for a job with this `sub` and a key of `project_id` (None: of no project).

        A binding limited to a project matches only that project's keys.
        """
        return [
            candidate
            for candidate in self.by_subject.get((issuer, sub), ())
            if candidate.project_id in {None, project_id}
        ]


def candidates_of(active: Iterable[ActiveBinding]) -> Candidates:
    """The candidates of one organisation's `active` bindings."""
    bindings = list(active)
    envelopes = {_triple(b): b for b in bindings if b.origin == Origin.ORG_ADMIN}
    by_subject: defaultdict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for binding in bindings:
        envelope = envelopes.get(_triple(binding))
        candidate = _within(binding, envelope) if binding.team_id else _alone(binding)
        if candidate is not None:
            by_subject[binding.issuer, binding.sub_pattern].append(candidate)
    return Candidates(by_subject)


def _triple(binding: ActiveBinding) -> tuple[str, str, str | None]:
    return binding.issuer, binding.sub_pattern, binding.repository_id


def _alone(binding: ActiveBinding) -> Candidate:
    return Candidate(
        id=binding.id,
        project_id=binding.project_id,
        is_team=False,
        repository_id=binding.repository_id,
        event_sets=_event_sets(binding),
        conditions=_conditions(binding),
    )


def _within(binding: ActiveBinding, envelope: ActiveBinding | None) -> Candidate | None:
    """A team binding limited to its `envelope`; None if the envelope excludes it entirely."""
    if envelope is None:
        return None
    if binding.project_id and envelope.project_id not in {None, binding.project_id}:
        return None
    return Candidate(
        id=binding.id,
        # A team binding that names no project must not widen an envelope of one project.
        project_id=binding.project_id or envelope.project_id,
        is_team=True,
        repository_id=binding.repository_id,
        event_sets=(*_event_sets(binding), *_event_sets(envelope)),
        stands_for=envelope.id,
        # Both hold: a team's binding never trusts a job that its envelope does not.
        conditions=tuple(dict.fromkeys((*_conditions(binding), *_conditions(envelope)))),
    )


def _event_sets(binding: ActiveBinding) -> tuple[frozenset[str], ...]:
    return (frozenset(binding.event_names),) if binding.event_names else ()


def _conditions(binding: ActiveBinding) -> tuple[tuple[str, str], ...]:
    return tuple((binding.conditions or {}).items())
