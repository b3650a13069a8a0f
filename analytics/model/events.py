"""Events, install decisions, and the base class of all envelopes.

An envelope is what the row says beyond its columns. It goes whole into `payload`, and shortened
to 256 code points into `decision_reason` (see `analytics.model.decision_reason`).
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Final, NewType

import msgspec

DEFAULT_ICON: Final = "settings"


class Decision(StrEnum):
    """The outcome of an install request."""

    ALLOWED = "ALLOWED"
    BLOCKED = "BLOCKED"


Event = NewType("Event", str)
"""A value of a row's `event`. The class of its envelope declares it."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one event says. A subclass declares its event; installs also name their decision.

    `label` is the event in plain words, no two alike, and `icon` one of templates/icons.html.
    Clients may ingest rows of an event that is `ingestible`. Sign-ins, exports and requests are
    events that do not change the organisation (`changes_org`).
    """

    event: ClassVar[Event]
    label: ClassVar[str]
    icon: ClassVar[str] = DEFAULT_ICON
    decision: ClassVar[Decision | None] = None
    ingestible: ClassVar[bool] = False
    changes_org: ClassVar[bool] = True
