"""Who appears in the demo's history: the ids that its rows name."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from analytics.model.org_envelopes import IdentityProviderName
from service.access.callers import member_actor
from service.store.tables import Origin
from service.verifier.codes import Detail


@dataclass(frozen=True, slots=True)
class Person:
    """A member, from when they joined to when they left (None: still there)."""

    name: str
    member_id: str
    identity_provider: IdentityProviderName
    has_passkey: bool
    joined_at: datetime
    left_at: datetime | None

    @property
    def actor(self) -> str:
        """How audit rows name them."""
        return member_actor(self.identity_provider, self.member_id)

    def is_present(self, at: datetime) -> bool:
        """True while they are a member."""
        return self.joined_at < at and (self.left_at is None or at < self.left_at)


@dataclass(frozen=True, slots=True)
class Key:
    """An API key and the project it is limited to."""

    key_id: str
    project_id: str | None


@dataclass(frozen=True, slots=True)
class Trust:
    """A binding, as far as it decides which rows it stamps."""

    binding_id: str
    origin: Origin
    project_id: str | None
    event_names: frozenset[str]
    added_us: int
    revoked_us: int | None

    def is_in_force(self, project_id: str | None, at_us: int) -> bool:
        """True if a token that was sent with a key of this project was compared with it then."""
        return (
            self.added_us <= at_us
            and (self.revoked_us is None or at_us < self.revoked_us)
            and self.project_id in {None, project_id}
        )

    def admits(self, event_name: str, project_id: str | None, at_us: int) -> bool:
        """True if a token with this event, sent with a key of this project, matched then."""
        allows = not self.event_names or event_name in self.event_names
        return allows and self.is_in_force(project_id, at_us)


@dataclass(frozen=True, slots=True)
class Actors:
    """Everybody and everything, by the names the profile gives them; trusts by `sub`."""

    people: dict[str, Person]
    keys: dict[str, Key]
    trusts: dict[str, list[Trust]]


def stamping(
    trusts: Sequence[Trust], event_name: str, project_id: str | None, at_us: int
) -> Trust | None:
    """The binding that stamps such a request, or None: a team's or project's before the rest.

    A team's binding counts only while the organisation's one above it admits the request too.
    """
    admitting = [trust for trust in trusts if trust.admits(event_name, project_id, at_us)]
    envelopes = [trust for trust in admitting if trust.origin is not Origin.TEAM_ADMIN]
    narrow_first = sorted(
        admitting if envelopes else [],
        key=lambda trust: (trust.origin is not Origin.TEAM_ADMIN, trust.project_id is None),
    )
    return narrow_first[0] if narrow_first else None


def rejection_detail(trusts: Sequence[Trust], project_id: str | None, at_us: int) -> Detail | None:
    """Why a request that nothing stamps is turned away: for its event, if there was a binding."""
    of_organisation = (trust for trust in trusts if trust.origin is not Origin.TEAM_ADMIN)
    has_binding = any(trust.is_in_force(project_id, at_us) for trust in of_organisation)
    return Detail.EVENT_NAME_NOT_ALLOWED if has_binding else None
