"""The actors of the demo's history, with the ids that its rows name."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from service.access.callers import member_actor
from service.ci.verifier.codes import Detail
from service.cli.demo.profile import ProfileMember
from service.store.tables import ApiKey, Member, Origin


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
class Trust:
    """A binding: what decides which rows it is credited with."""

    binding_id: str
    origin: Origin
    project_id: str | None
    event_names: frozenset[str]
    added_us: int
    revoked_us: int | None

    def is_in_force(self, project_id: str | None, at_us: int) -> bool:
        """True if tokens sent with a key of this project were compared with it at that time."""
        return (
            self.added_us <= at_us
            and (self.revoked_us is None or at_us < self.revoked_us)
            and self.project_id in {None, project_id}
        )

    def admits(self, event_name: str, project_id: str | None, at_us: int) -> bool:
        """True if a token with this event, sent with a key of this project, matched it."""
        allows = not self.event_names or event_name in self.event_names
        return allows and self.is_in_force(project_id, at_us)


@dataclass(frozen=True, slots=True)
class Actors:
    """All actors by their names in the profile; trusts by `sub`."""

    people: dict[str, Person]
    keys: dict[str, ApiKey]
    trusts: dict[str, list[Trust]]


def find_trust(
    trusts: Sequence[Trust], event_name: str, project_id: str | None, at_us: int
) -> Trust | None:
    """The binding that rows of such a request name, or None: a team's or project's comes first.

    A team's binding counts only while a binding of the organisation admits the request too.
    """
    admitting = [trust for trust in trusts if trust.admits(event_name, project_id, at_us)]
    envelopes = [trust for trust in admitting if trust.origin is not Origin.TEAM_ADMIN]
    narrow_first = sorted(
        admitting if envelopes else [],
        key=lambda trust: (trust.origin is not Origin.TEAM_ADMIN, trust.project_id is None),
    )
    return narrow_first[0] if narrow_first else None


def rejection_detail(trusts: Sequence[Trust], project_id: str | None, at_us: int) -> Detail | None:
    """Why a request that no binding admits is rejected: for its event if there was a binding."""
    of_organisation = (trust for trust in trusts if trust.origin is not Origin.TEAM_ADMIN)
    has_binding = any(trust.is_in_force(project_id, at_us) for trust in of_organisation)
    return Detail.EVENT_NAME_NOT_ALLOWED if has_binding else None
