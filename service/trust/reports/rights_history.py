"""Undoes recorded changes of rights: who had which role, and administered which team, at a time.

Tables hold the present; each change of it has an audit row. What was true at an instant is what
the first change after it replaced, or the present if nothing changed since.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from analytics.model.events import Event
from analytics.model.org_envelopes import MemberRoleChanged, RoleOverrideChanged, TeamAdminChanged

RIGHTS_EVENTS: Final = (
    MemberRoleChanged.event,
    RoleOverrideChanged.event,
    TeamAdminChanged.event,
)
"""The events whose rows are needed."""

TeamOffice = tuple[str, str]
"""A team id, and the member id of an admin of it."""


@dataclass(frozen=True, slots=True)
class RightsChange:
    """One audit row of RIGHTS_EVENTS: when, what, and the keys of its envelope."""

    at: datetime
    seq: int
    event: str
    keys: Mapping[str, Any]


class RightsHistory:
    """The changes of one organisation, up to the present."""

    def __init__(self, changes: Iterable[RightsChange]) -> None:
        self._changes = sorted(changes, key=lambda change: (change.at, change.seq))

    def former_roles(self, as_of: datetime) -> dict[str, str]:
        """The roles at `as_of`, by member id, of those whose role was changed since."""
        # Latest first, so that the earliest change after `as_of` remains.
        return {
            str(change.keys["member_id"]): str(change.keys["role_before"])
            for change in reversed(self._after(as_of, MemberRoleChanged.event))
        }

    def overrides(
        self, present: Mapping[str, Sequence[str]], as_of: datetime
    ) -> dict[str, list[str]]:
        """The capabilities of each role beyond its defaults at `as_of`."""
        then = {role: list(names) for role, names in present.items()}
        for change in reversed(self._after(as_of, RoleOverrideChanged.event)):
            then[change.keys["role"]] = list(change.keys["capabilities_before"])
        return {role: names for role, names in then.items() if names}

    def team_offices(
        self, present: Collection[TeamOffice], as_of: datetime, left: Collection[str]
    ) -> set[TeamOffice]:
        """Who administered which team at `as_of`.

        `left` are members who have been removed since: their offices ended with the membership,
        without a row of their own, so they are those that had begun by then.
        """
        then = {office for office in present if office[1] not in left}
        for change in self._changes:
            office = _office(change)
            if office is not None and change.at <= as_of and office[1] in left:
                (then.add if change.keys["is_admin"] else then.discard)(office)
        for change in reversed(self._after(as_of, TeamAdminChanged.event)):
            office = _office(change)
            if office is not None:
                (then.discard if change.keys["is_admin"] else then.add)(office)
        return then

    def _after(self, as_of: datetime, event: Event) -> list[RightsChange]:
        return [change for change in self._changes if change.event == event and change.at > as_of]


def _office(change: RightsChange) -> TeamOffice | None:
    if change.event != TeamAdminChanged.event:
        return None
    return change.keys["team_id"], change.keys["member_id"]
