"""Labels of the pages: providers in plain words, and shortened values."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from analytics.model.envelopes import ENVELOPES
from analytics.model.events import DEFAULT_ICON, Event
from analytics.model.schema import FILTER_PARAMETERS
from service.access.sign_in.providers import LABELS
from service.ci.providers import CI_LABELS

PROVIDER_WORDS: Final[Mapping[str, str]] = LABELS
"""Names of the identity providers for sign-in."""

CI_SOURCE_PREFIX: Final = "oidc_"
ACTOR_SOURCES: Final = (
    f"{CI_SOURCE_PREFIX}*",
    *(f"{CI_SOURCE_PREFIX}{provider}" for provider in CI_LABELS),
    "api_key",
    "session",
    "admin_token",
    "system",
)
"""Completions of `actor_source`."""


FILTERS: Final = sorted(FILTER_PARAMETERS, key=lambda parameter: parameter.field.place)
"""The filters in the order of their fields in the form."""

PREFIX_NOUNS: Final = [parameter.noun for parameter in FILTER_PARAMETERS if parameter.takes_prefix]
"""What the form calls the columns whose filters take a prefix."""

_DAY_S: Final = 86_400
_YEAR_S: Final = 365 * _DAY_S
_AGO: Final = (("min", 60, 60), ("h", 3_600, 48), ("d", _DAY_S, 60), ("mo", 30 * _DAY_S, 13))


def icon_of(event: str) -> str:
    """The name of the icon (templates/icons.html) of a row's event."""
    envelope = ENVELOPES.get(Event(event))
    return DEFAULT_ICON if envelope is None else envelope.icon


def ci_words(actor_source: str) -> str | None:
    """The CI provider of a row's actor, or None if the actor is not a CI job."""
    if not actor_source.startswith(CI_SOURCE_PREFIX):
        return None
    provider = actor_source.removeprefix(CI_SOURCE_PREFIX)
    return CI_LABELS.get(provider, provider)


def ago(length: timedelta) -> str:
    """How long ago in one short unit: `now`, `5 min`, `3 h`, `12 d`, `4 mo`, `2 y`."""
    seconds = length.total_seconds()
    for unit, unit_s, most in _AGO:
        if seconds < unit_s * most:
            return f"{int(seconds // unit_s)} {unit}" if seconds >= unit_s else "now"
    return f"{int(seconds // _YEAR_S)} y"


def cut(text: str, length: int = 64) -> str:
    """`text` in at most `length` characters; longer text is shortened in the middle.

    Both ends of a CI subject are informative: the repository in front, the branch at the end.
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


def grouped(number: int) -> str:
    """`number` with separators between thousands."""
    return f"{number:,}"
