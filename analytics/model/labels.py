"""Events and filters in plain words.

The search understands these words, too, so that what a page shows can be typed there.
"""

from typing import Final

from analytics.model.envelopes import ENVELOPES
from analytics.model.schema import FILTER_PARAMETERS

EVENT_LABELS: Final[dict[str, str]] = {
    event: envelope.label for event, envelope in ENVELOPES.items()
}
"""Each event in plain words, no two alike."""

FILTER_LABELS: Final = {"since": "Since", "until": "Until"} | {
    parameter.name: parameter.label for parameter in FILTER_PARAMETERS
}
"""Each filter's name, as people read it."""


def event_label(event: str) -> str:
    """`event` in plain words, or unchanged if it is unknown."""
    return EVENT_LABELS.get(event, event)
