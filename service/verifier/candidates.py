"""Which of an organisation's bindings a token could mean: active ones, ready to be compared.

A team's binding counts only as long as the organisation's own binding that it lies within is
active, and never reaches past it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.store.tables import Binding, Origin


class BindingTerms(NamedTuple):
    """What of an active binding a token is compared with."""

    id: str
    project_id: str | None
    team_id: str | None
    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    origin: str


ActiveBinding = Binding | BindingTerms


@dataclass(frozen=True, slots=True)
class Candidate:
    """A binding as tokens meet it.

    `event_sets` are the sets of event names that must all have the token's; none allows any event.
    `stands_for` is the binding a team's lies within, and which it stands in for.
    """

    id: str
    project_id: str | None
    is_team: bool
    repository_id: str | None
    event_sets: tuple[frozenset[str], ...]
    stands_for: str | None = None

    @property
    def is_specific(self) -> bool:
        """True for bindings of a team or a project, which go before the organisation's."""
        return self.is_team or self.project_id is not None

    def allows(self, event_name: str | None) -> bool:
        """True if jobs started by `event_name` are trusted; None is no event's name."""
        return all(event_name in events for events in self.event_sets)


@dataclass(frozen=True, slots=True)
class Candidates:
    """An organisation's active bindings by (issuer, sub)."""

    by_subject: Mapping[tuple[str, str], Sequence[Candidate]]

    def of(self, issuer: str, sub: str, project_id: str | None) -> Sequence[Candidate]:
        """Those for a job with this `sub` that sends a key of `project_id` (None: of no project).

        A binding limited to a project is for that project's keys alone.
        """
        return [
            candidate
            for candidate in self.by_subject.get((issuer, sub), ())
            if candidate.project_id in {None, project_id}
        ]


def candidates_of(active: Iterable[ActiveBinding]) -> Candidates:
    """One organisation's `active` bindings as candidates."""
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
    )


def _within(binding: ActiveBinding, envelope: ActiveBinding | None) -> Candidate | None:
    """A team's binding cut down to its `envelope`; None where nothing of it is left."""
    if envelope is None:
        return None
    if binding.project_id and envelope.project_id not in {None, binding.project_id}:
        return None
    return Candidate(
        id=binding.id,
        project_id=binding.project_id or envelope.project_id,
        is_team=True,
        repository_id=binding.repository_id,
        event_sets=(*_event_sets(binding), *_event_sets(envelope)),
        stands_for=envelope.id,
    )


def _event_sets(binding: ActiveBinding) -> tuple[frozenset[str], ...]:
    return (frozenset(binding.event_names),) if binding.event_names else ()
