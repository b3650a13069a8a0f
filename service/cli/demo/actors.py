"""The actors of the demo's history, with the ids that its rows name."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from service.access.callers import member_actor
from service.ci.verifier.codes import Detail
from service.cli.demo.profile import ProfileMember
from service.store.tables import ApiKey, Binding, Member, Origin


@dataclass(frozen=True, slots=True)
class Person:
    """A member: `profile` is their entry there."""

    name: str
    member: Member
    profile: ProfileMember

    @property
    def actor(self) -> str:
        """Their name in audit rows."""
        return member_actor(self.member.identity_provider, self.member.id)

    def is_present(self, at: datetime) -> bool:
        """True while they are a member."""
        joined_at, left_at = self.member.created_at, self.member.removed_at
        return joined_at < at and (left_at is None or at < left_at)


@dataclass(frozen=True, slots=True)
class Actors:
    """All actors by their names in the profile; bindings by `sub`."""

    people: dict[str, Person]
    keys: dict[str, ApiKey]
    bindings: dict[str, list[Binding]]


def find_binding(
    bindings: Sequence[Binding], event_name: str, project_id: str | None, at: datetime
) -> Binding | None:
    """The one that rows of such a request name, or None: a team's or project's comes first.

    A team's binding counts only while a binding of the organisation admits the request too.
    """
    admitting = [
        binding
        for binding in _in_force(bindings, project_id, at)
        if not binding.event_names or event_name in binding.event_names
    ]
    if all(binding.origin == Origin.TEAM_ADMIN for binding in admitting):
        return None
    return min(admitting, key=_breadth)


def rejection_detail(
    bindings: Sequence[Binding], project_id: str | None, at: datetime
) -> Detail | None:
    """Why a request that no binding admits is rejected: for its event if there was a binding."""
    in_force = _in_force(bindings, project_id, at)
    has_binding = any(binding.origin != Origin.TEAM_ADMIN for binding in in_force)
    return Detail.EVENT_NAME_NOT_ALLOWED if has_binding else None


def _breadth(binding: Binding) -> tuple[bool, bool]:
    return binding.origin != Origin.TEAM_ADMIN, binding.project_id is None


def _in_force(bindings: Sequence[Binding], project_id: str | None, at: datetime) -> list[Binding]:
    """Those that tokens sent with a key of this project were compared with at that time."""
    return [
        binding
        for binding in bindings
        if binding.added_at <= at
        and (binding.revoked_at is None or at < binding.revoked_at)
        and binding.project_id in {None, project_id}
    ]
