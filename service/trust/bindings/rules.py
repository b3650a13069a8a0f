"""Validation of binding requests, in the order in which faults are reported.

Texts and order follow the error table of the specification. Pure: the organisation's projects and
teams are arguments.
"""

import hashlib
import json
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal, TypeVar

from service.ci.issuers.issuers import Issuer, Issuers
from service.ci.providers import CONDITION_CLAIMS, CONDITION_VALUE_MAX
from service.core.errors import Invalid
from service.core.text_rules import is_plain
from service.store.tables import Binding, Origin
from service.trust.refusals import (
    CONDITION_UNKNOWN,
    CONDITION_VALUE_INVALID,
    CONDITIONS_NOT_TEXTS,
    EVENT_NAME_INVALID,
    EVENT_NAMES_NOT_STRINGS,
    ISSUER_MISSING,
    ISSUER_NOT_ALLOWED,
    ORIGIN_MISSING,
    ORIGIN_NOT_ALLOWED,
    PROJECT_ID_NOT_STRING,
    PROJECT_NOT_FOUND,
    REPOSITORY_ID_MISSING,
    REPOSITORY_ID_NOT_DIGITS,
    REPOSITORY_ID_NOT_INTEGER,
    SUB_PATTERN_INVALID,
    SUB_PATTERN_MISSING,
    TEAM_ID_MISSING,
    TEAM_ID_NOT_STRING,
    TEAM_NOT_FOUND,
    TOO_MANY_EVENT_NAMES,
)
from service.web.refusals import UNKNOWN_FIELD

ACTIVE_MAX: Final = 10_000
"""Active bindings of one organisation, at most."""
SUB_PATTERN_MAX: Final = 1024
REPOSITORY_ID_DIGITS_MAX: Final = 32
ECHO_MAX: Final = 256
EVENT_NAME_MAX: Final = 64
EVENT_NAMES_MAX: Final = 64

_Value = TypeVar("_Value")

BindingSlot = Literal["global", "tenant"]


HTTP_ORIGINS: Final = frozenset({Origin.ORG_ADMIN, Origin.TEAM_ADMIN})


@dataclass(frozen=True, slots=True)
class Draft:
    """A valid binding request. `team_id` is None for organisation-level bindings.

    `conditions` are the values that claims of the token must have besides.
    """

    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: tuple[str, ...]
    origin: Origin
    project_id: str | None
    team_id: str | None
    conditions: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        """The body of a create request for it; without conditions unless it has any."""
        body = asdict(self) | {"event_names": list(self.event_names), "origin": self.origin.value}
        if not self.conditions:
            del body["conditions"]
        return body


TERMS: Final = tuple(each.name for each in fields(Draft))
"""What a request says of a binding, by the names of its columns."""


@dataclass(frozen=True, slots=True)
class ProjectsAndTeams:
    """The projects and teams of the organisation that a request refers to."""

    projects: Container[str]
    teams: Container[str]


def parse_binding(
    body: Mapping[str, Any],
    issuers: Issuers,
    known: ProjectsAndTeams,
    origins: Container[str] = HTTP_ORIGINS,
) -> Draft:
    """The binding that `body` requests.

    Raises Invalid for the first fault in the table's order, with those of other fields.
    """
    faults: list[Invalid] = []

    def value(parse: Callable[..., _Value], name: str, *arguments: object) -> _Value | None:
        try:
            return parse(body.get(name), *arguments)
        except Invalid as fault:
            faults.append(fault)
            return None

    issuer = value(_issuer, "issuer", issuers)
    sub_pattern = value(_sub_pattern, "sub_pattern")
    repository_id = value(_repository_id, "repository_id", issuer and issuers[issuer])
    event_names = value(_event_names, "event_names")
    origin = value(_origin, "origin", origins)
    project_id = value(_project_id, "project_id", known.projects)
    team_id = value(_team_id, "team_id", known.teams, origin)
    conditions = value(_conditions, "conditions", issuer and issuers[issuer])
    unknown = [name for name in body if name not in TERMS]
    if unknown:
        faults.append(UNKNOWN_FIELD(value=", ".join(unknown)))
    # A field that is None here is among the faults.
    if faults or issuer is None or sub_pattern is None or event_names is None or origin is None:
        faults[0].further = faults[1:]
        raise faults[0]
    return Draft(
        issuer=issuer,
        sub_pattern=sub_pattern,
        repository_id=repository_id,
        event_names=event_names,
        origin=origin,
        project_id=project_id,
        team_id=team_id,
        conditions=conditions or {},
    )


def parse_repository_id(value: object) -> str:
    """The id in its canonical form: ASCII digits without leading zeros. Raises Invalid."""
    if isinstance(value, str):
        digits = value.lstrip("0")
        if (
            not (value.isascii() and value.isdecimal())
            or len(value) > REPOSITORY_ID_DIGITS_MAX
            or not digits
        ):
            raise REPOSITORY_ID_NOT_DIGITS
        return digits
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not 0 < value < 10**REPOSITORY_ID_DIGITS_MAX
    ):
        raise REPOSITORY_ID_NOT_INTEGER
    return str(value)


def slot_key(terms: Draft | Binding, tenant_id: str, slot_rule: BindingSlot) -> str:
    """The key that at most one active binding may have.

    Organisation-level bindings share one slot per (issuer, sub, repository id), either in the whole
    service or (`slot_rule`) in the tenant; each team has a separate slot. The key is a digest,
    because a sub may be longer than some databases can index.
    """
    scope = tenant_id if slot_rule == "tenant" else None
    parts = [terms.issuer, terms.sub_pattern, terms.repository_id, terms.team_id, scope]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _issuer(value: object, issuers: Issuers) -> str:
    if not isinstance(value, str):
        raise ISSUER_MISSING
    if value not in issuers:
        raise ISSUER_NOT_ALLOWED(value=_cut(value))
    return value


def _cut(text: str) -> str:
    """`text` for an error: a body may be 64 KB long, and an error need not be."""
    return text if len(text) <= ECHO_MAX else f"{text[:ECHO_MAX]}…"


def _sub_pattern(value: object) -> str:
    if not isinstance(value, str):
        raise SUB_PATTERN_MISSING
    if not 1 <= len(value) <= SUB_PATTERN_MAX or not is_plain(value):
        raise SUB_PATTERN_INVALID
    return value


def _repository_id(value: object, issuer: Issuer | None) -> str | None:
    if value is not None:
        return parse_repository_id(value)
    if issuer is not None and issuer.requires_repository_id:
        raise REPOSITORY_ID_MISSING(value=issuer.url)
    return None


def _event_names(value: object) -> tuple[str, ...]:
    """The names in the given order, without duplicates."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise EVENT_NAMES_NOT_STRINGS
    if len(value) > EVENT_NAMES_MAX:
        raise TOO_MANY_EVENT_NAMES(limit=EVENT_NAMES_MAX)
    if not all(1 <= len(name) <= EVENT_NAME_MAX and is_plain(name) for name in value):
        raise EVENT_NAME_INVALID
    return tuple(dict.fromkeys(value))


def _origin(value: object, origins: Container[str]) -> Origin:
    if not isinstance(value, str):
        raise ORIGIN_MISSING
    if value not in origins:
        raise ORIGIN_NOT_ALLOWED
    return Origin(value)


def _project_id(value: object, known: Container[str]) -> str | None:
    if value is not None and not isinstance(value, str):
        raise PROJECT_ID_NOT_STRING
    if value is not None and value not in known:
        raise PROJECT_NOT_FOUND
    return value


def _team_id(value: object, known: Container[str], origin: Origin | None) -> str | None:
    """The team of a `team_admin` binding; for other origins it is validated and dropped."""
    if value is not None and not isinstance(value, str):
        raise TEAM_ID_NOT_STRING
    if value is not None and value not in known:
        raise TEAM_NOT_FOUND
    if value is None and origin is Origin.TEAM_ADMIN:
        raise TEAM_ID_MISSING
    return value if origin is Origin.TEAM_ADMIN else None


def _conditions(value: object, issuer: Issuer | None) -> dict[str, str]:
    """The conditions by claim, in the provider's order; an empty object is none.

    Claims are compared with those of the issuer's provider, if the issuer is known.
    """
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise CONDITIONS_NOT_TEXTS
    known = CONDITION_CLAIMS[issuer.provider] if issuer else tuple(value)
    unknown = [name for name in value if name not in known]
    if unknown:
        raise CONDITION_UNKNOWN(value=_cut(", ".join(unknown)), known=", ".join(known) or "none")
    for name, text in value.items():
        # Names of environments and workflows may have spaces inside.
        is_clean = text == text.strip() and is_plain(text.replace(" ", "-"))
        if not 1 <= len(text) <= CONDITION_VALUE_MAX or not is_clean:
            raise CONDITION_VALUE_INVALID(value=name, limit=f"{CONDITION_VALUE_MAX}")
    return {name: value[name] for name in known if name in value}
