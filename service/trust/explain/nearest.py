"""Finds the bindings that a rejected token nearly matches, and says why they do not match.

Pure, and fast for ten thousand bindings: each one is compared, at low cost.
"""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from heapq import nsmallest
from itertools import chain, islice
from operator import attrgetter
from typing import Final
from urllib.parse import unquote

from analytics.model.instants import format_ms
from service.ci.providers import ids_of, job_parts, named_form
from service.ci.verifier.candidates import Candidate, candidates_of
from service.trust.bindings.repository import BindingState
from service.trust.explain.evaluation import KnownBinding, TokenJob
from service.trust.explain.text_diff import Difference, common_prefix, difference_of, display_text

NEAREST_MAX: Final = 5
AMBIGUOUS_MAX: Final = 100
FOLDED_CHARS_MAX: Final = 256
FOLDS_MAX: Final = 500
"""How many non-ASCII subjects are normalised for comparison, in arbitrary order.

Normalising hostile input takes time quadratic in its length and blocks the event loop meanwhile.
"""


class NearKind(IntEnum):
    """Which part of a binding nearly matches, the most useful first."""

    AMBIGUOUS = auto()
    REVOKED = auto()
    OTHER_REPOSITORY = auto()
    OTHER_PROJECT = auto()
    OUTSIDE_ENVELOPE = auto()
    OTHER_EVENT = auto()
    OTHER_CONDITION = auto()
    QUALIFIED = auto()
    RENAMED = auto()
    SPELLING = auto()
    OTHER_SUBJECT = auto()
    CLOSEST = auto()


@dataclass(frozen=True, slots=True)
class NearMatch:
    """A binding that nearly matches: why it does not, and where its sub differs."""

    id: str
    state: BindingState
    sub_pattern: str
    repository_id: str | None
    why: str
    difference: Difference | None
    kind: NearKind


@dataclass(frozen=True, slots=True)
class _Match:
    binding: KnownBinding
    kind: NearKind
    why: str
    distance: int = 0

    @property
    def order(self) -> tuple[int, bool, int, float, str]:
        binding = self.binding
        age = -binding.added_at.timestamp()
        return self.kind, binding.revoked_at is not None, self.distance, age, binding.id


_ORDER: Final = attrgetter("order")


def nearest_bindings(
    job: TokenJob, bindings: Collection[KnownBinding], ambiguous: Collection[str] = ()
) -> Sequence[NearMatch]:
    """The organisation's `bindings` nearest to `job`.

    If `ambiguous` is given, only these ids: bindings that match equally well.
    """
    if ambiguous:
        why = "It matches, and so do the others listed: none of them goes before the rest."
        equal = (_Match(b, NearKind.AMBIGUOUS, why) for b in bindings if b.id in ambiguous)
        return [_near(match, job) for match in nsmallest(AMBIGUOUS_MAX, equal, _ORDER)]
    matches = nsmallest(NEAREST_MAX, _compared(job, bindings), _ORDER)
    # Merely similar subjects would distract from matches with a specific reason.
    specific = [match for match in matches if match.kind is not NearKind.CLOSEST]
    return [_near(match, job) for match in specific or matches]


def find_predecessor(
    job: TokenJob, nearest: Sequence[NearMatch], bindings: Collection[KnownBinding]
) -> KnownBinding | None:
    """The active binding of the job under an earlier name, or None.

    The nearest of the organisation's own bindings, if it differs in spelling, in GitHub's ids or in
    the repository's name for the same repository id, or has the same subject for another repository
    id. A team's binding, which may be as near, belongs to its team.
    """
    by_id = {binding.id: binding for binding in bindings}
    own = next((near for near in nearest if by_id[near.id].team_id is None), None)
    if own is None or own.state is not BindingState.ACTIVE:
        return None
    binding = by_id[own.id]
    has_other_name = own.kind in {NearKind.SPELLING, NearKind.QUALIFIED, NearKind.RENAMED}
    is_renamed = has_other_name and binding.repository_id == job.repository_id is not None
    return binding if is_renamed or own.kind is NearKind.OTHER_REPOSITORY else None


def _compared(job: TokenJob, bindings: Collection[KnownBinding]) -> Iterator[_Match]:
    of_issuer = [binding for binding in bindings if binding.issuer == job.issuer.url]
    same_sub = [binding for binding in of_issuer if binding.sub_pattern == job.sub]
    live = _live_candidates(same_sub)
    for binding in same_sub:
        yield _with_same_sub(job, binding, live)
    plain = named_form(job.sub)
    respelt = _respelt(job.sub, [binding.sub_pattern for binding in of_issuer])
    for binding in of_issuer:
        if binding.sub_pattern != job.sub:
            yield _with_other_sub(job, binding, plain, respelt)


def _live_candidates(same_sub: Iterable[KnownBinding]) -> dict[str, Candidate]:
    """Those bindings that are candidates for tokens, by id."""
    active = [binding for binding in same_sub if binding.is_active]
    by_subject = candidates_of(active).by_subject
    return {item.id: item for items in by_subject.values() for item in items}


def _with_same_sub(job: TokenJob, binding: KnownBinding, live: dict[str, Candidate]) -> _Match:
    if binding.repository_id not in {None, job.repository_id}:
        return _Match(binding, NearKind.OTHER_REPOSITORY, _why_other_repository(job, binding))
    if binding.project_id not in {None, job.project_id}:
        key = f"one of {job.project_id}" if job.project_id else "none of a project"
        why = f"It is for API keys of project {binding.project_id} alone; this is {key}."
        return _Match(binding, NearKind.OTHER_PROJECT, why)
    if binding.revoked_at is None and binding.id not in live:
        return _Match(binding, NearKind.OUTSIDE_ENVELOPE, _WHY_OUTSIDE)
    own_events = (frozenset(binding.event_names),)
    event_sets = live[binding.id].event_sets if binding.id in live else own_events
    missing = [names for names in event_sets if names and job.event_name not in names]
    if missing:
        return _Match(binding, NearKind.OTHER_EVENT, _why_other_event(job, binding, missing[0]))
    if binding.revoked_at is not None:
        return _Match(binding, NearKind.REVOKED, "It fits.")
    candidate = live[binding.id]
    if candidate.conditions and candidate.project_id in {None, job.project_id}:
        return _Match(binding, NearKind.OTHER_CONDITION, _why_condition(binding, candidate))
    # The key's project fits the binding, but its envelope is limited to another one.
    return _Match(binding, NearKind.OTHER_PROJECT, "Its envelope is limited to another project.")


_WHY_OUTSIDE: Final = (
    "It is a team's, and the organisation's own binding that it lies within is not active"
    " or is limited to another project."
)


def _why_condition(binding: KnownBinding, candidate: Candidate) -> str:
    whose = (
        "It" if dict(candidate.conditions) == (binding.conditions or {}) else "It or its envelope"
    )
    wanted = " and ".join(f"{claim} {value}" for claim, value in candidate.conditions)
    return display_text(f"{whose} takes only jobs with {wanted}.")


def _why_other_repository(job: TokenJob, binding: KnownBinding) -> str:
    if job.repository_id is None:
        return f"It is for repository {binding.repository_id}; the token names no repository id."
    return display_text(
        f"It is for repository {binding.repository_id}, the token comes from"
        f" {job.repository_id} under the same name:"
        " renamed, transferred, or deleted and created again."
    )


def _why_other_event(job: TokenJob, binding: KnownBinding, listed: frozenset[str]) -> str:
    whose = "It" if listed == frozenset(binding.event_names) else "The envelope above it"
    not_by = "the token does not say what started its job"
    if job.event_name is not None:
        not_by = f"not by {job.event_name}"
    return display_text(f"{whose} trusts jobs started by {' or '.join(sorted(listed))}; {not_by}.")


def _with_other_sub(
    job: TokenJob, binding: KnownBinding, plain: str, respelt: Collection[str]
) -> _Match:
    pattern = binding.sub_pattern
    is_same_repository = binding.repository_id == job.repository_id is not None
    if named_form(pattern) == plain:
        return _Match(
            binding,
            NearKind.QUALIFIED,
            _why_qualified(job.sub, pattern, is_same_repository=is_same_repository),
            0 if is_same_repository else 1,
        )
    if pattern in respelt:
        return _Match(binding, NearKind.SPELLING, "Its subject differs in spelling alone.")
    if is_same_repository:
        if names := _names_of_renamed(named_form(pattern), plain):
            why = "Its repository was called {} and is {} now: the id is the same.".format(*names)
            return _Match(binding, NearKind.RENAMED, display_text(why))
        why = "It is for the same repository id, but another branch, environment or name."
        return _Match(binding, NearKind.OTHER_SUBJECT, why, -_likeness(job.sub, pattern))
    why = "Its subject is among the most alike."
    return _Match(binding, NearKind.CLOSEST, why, -_likeness(job.sub, pattern))


def _names_of_renamed(earlier: str, later: str) -> tuple[str, str] | None:
    """The repositories of two named subjects, if nothing else in them differs."""
    parts, parts_later = job_parts(earlier), job_parts(later)
    if parts is None or parts_later is None:
        return None
    names = parts[0], parts_later[0]
    # A subject names its repository first.
    rest = [text.partition(name) for text, name in zip((earlier, later), names, strict=True)]
    return names if rest[0][::2] == rest[1][::2] else None


def _why_qualified(sub: str, pattern: str, *, is_same_repository: bool) -> str:
    with_ids = ids_of(sub), ids_of(pattern)
    same = "The repository id is the same." if is_same_repository else "The repository id differs."
    if all(with_ids):
        return f"Owner and repository have the same names but other ids. {same}"
    whose, others = ("the token", "the binding") if with_ids[0] else ("the binding", "the token")
    return (
        f"The subject of {whose} has GitHub's ids behind the names (OWNER@ID/REPO@ID), that of"
        f" {others} has not. {same}"
    )


def _respelt(sub: str, patterns: Collection[str]) -> Collection[str]:
    """The `patterns` that differ from `sub` in spelling only."""
    folded = _folded(sub)
    easy = (pattern for pattern in patterns if _is_easy(pattern))
    hard = (pattern for pattern in patterns if not _is_easy(pattern))
    looked_at = chain(easy, islice(hard, FOLDS_MAX))
    return {pattern for pattern in looked_at if _folded(pattern) == folded}


def _is_easy(sub: str) -> bool:
    return sub.isascii() and "%" not in sub


def _folded(sub: str) -> str:
    """`sub` normalised: case, Unicode form, percent-encoding, white space and trailing slash."""
    if len(sub) > FOLDED_CHARS_MAX:
        return sub
    text = unquote(sub) if "%" in sub else sub
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return text.strip().rstrip("/").lower()


def _likeness(first: str, second: str) -> int:
    prefix = common_prefix(first, second)
    return prefix + common_prefix(first[prefix:][::-1], second[prefix:][::-1])


def _near(match: _Match, job: TokenJob) -> NearMatch:
    binding = match.binding
    return NearMatch(
        id=binding.id,
        state=BindingState.ACTIVE if binding.revoked_at is None else BindingState.REVOKED,
        sub_pattern=binding.sub_pattern,
        repository_id=binding.repository_id,
        why=" ".join([match.why, *_revoked(binding)]),
        difference=_difference(match, job),
        kind=match.kind,
    )


def _revoked(binding: KnownBinding) -> list[str]:
    if binding.revoked_at is None:
        return []
    reason = f": {binding.revoked_reason}" if binding.revoked_reason else ", no reason given"
    return [f"Revoked at {format_ms(binding.revoked_at)} by {binding.revoked_by}{reason}."]


def _difference(match: _Match, job: TokenJob) -> Difference | None:
    binding = match.binding
    if match.kind is NearKind.OTHER_REPOSITORY and binding.repository_id and job.repository_id:
        return difference_of(binding.repository_id, job.repository_id)
    is_related = match.kind in {NearKind.QUALIFIED, NearKind.SPELLING}
    return difference_of(binding.sub_pattern, job.sub, is_related=is_related)
