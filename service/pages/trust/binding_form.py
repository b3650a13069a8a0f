"""The form of a binding: its choices, what was typed, and the binding that is in its way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from service.ci.providers import CONDITION_CLAIMS
from service.core.errors import Invalid
from service.core.threads import in_thread
from service.pages.page import ANYWHERE, FormState, PageCall
from service.pages.trust.binding_view import may_create
from service.store.organisations import list_names
from service.store.tables import Binding, Origin, Project, Team
from service.trust.advice import never_sent
from service.trust.bindings.repository import find_projects_and_teams
from service.trust.bindings.rules import parse_binding
from service.trust.bindings.slots import find_holder
from service.trust.refusals import BindingExists

FIELDS: Final = (
    "issuer",
    "sub_pattern",
    "repository_id",
    "event_names",
    "origin",
    "team_id",
    "project_id",
    "conditions",
)
_ORIGINS: Final = {
    Origin.ORG_ADMIN: "org_admin: for the organisation",
    Origin.TEAM_ADMIN: "team_admin: for a team, within an org_admin binding",
}

MEANT: Final = "meant"
"""The field with the warnings that were read: of what is not among them the form warns again."""

Typed = Mapping[str, str]
"""The texts of the fields, by name."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The caller's choices: pairs of value and label, and the claims that conditions may name."""

    issuers: Sequence[tuple[str, str]]
    origins: Sequence[tuple[str, str]]
    teams: Sequence[tuple[str, str]]
    projects: Sequence[tuple[str, str]]
    conditions: Sequence[str]


@dataclass(frozen=True, slots=True)
class BindingForm:
    """The form. `fault` is an error of no single field, `holder` the conflicting binding.

    `meant` are the warnings that it shows, or that were read before.
    """

    choices: Choices
    typed: Typed = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
    holder: Binding | None = None
    meant: str = ""


async def load_form(call: PageCall, state: FormState) -> BindingForm:
    """The form, empty or with all that was typed and its errors."""
    choices = await load_choices(call)
    if state.refusal is None:
        return BindingForm(choices)
    holder = None
    if isinstance(state.refusal, BindingExists):
        holder = await _find_typed_holder(call, state.typed)
    texts = faults_of(state)
    fault = texts.pop(ANYWHERE, None)
    is_warned = isinstance(state.refusal, NeverSent)
    meant = _meant(_warnings(call, state.typed)) if is_warned else state.typed.get(MEANT, "")
    return BindingForm(choices, state.typed, texts, fault, holder, meant)


def faults_of(state: FormState) -> dict[str, str]:
    """The errors of the form that was sent, by field."""
    return {name: text for name in state.faults if (text := state.fault_in(state.path, name))}


def typed_of(body: Mapping[str, Any]) -> Typed:
    """The texts to type in order to send `body`, which may have some of the fields alone."""
    pairs = (body.get("conditions") or {}).items()
    lists = {
        "event_names": body.get("event_names") or (),
        "conditions": [f"{claim}={value}" for claim, value in pairs],
    }
    return {
        name: "\n".join(lists[name]) if name in lists else body[name] or ""
        for name in FIELDS
        if name in body
    }


def parse_typed(typed: Typed, names: Sequence[str] = FIELDS) -> dict[str, Any]:
    """The values of those fields that are `typed`, by their name in the API's body.

    Line breaks in a subject come from pasting, and are removed. Raises Invalid.
    """
    body: dict[str, Any] = {name: typed[name] for name in names if name in typed}
    if "sub_pattern" in body:
        body["sub_pattern"] = body["sub_pattern"].replace("\r", "").replace("\n", "")
    if "event_names" in body:
        body["event_names"] = _lines(body["event_names"])
    if "conditions" in body:
        body["conditions"] = _parse_conditions(body["conditions"])
    return body


def _parse_conditions(text: str) -> dict[str, str]:
    """The values by claim. Raises Invalid for a claim with two, which no token could have."""
    conditions: dict[str, str] = {}
    for line in _lines(text):
        claim, _, value = (part.strip() for part in line.partition("="))
        if claim in conditions:
            raise Invalid(f"{claim} has two lines: keep one", field="conditions")
        conditions[claim] = value
    return conditions


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


class NeverSent(Invalid):
    """What was typed matches no token of its issuer; the form can be sent all the same."""


def body_of(typed: Typed) -> dict[str, Any]:
    """The API's body of a create for what was typed. An empty field is left out."""
    return {name: value for name, value in parse_typed(typed).items() if value}


def _warnings(call: PageCall, typed: Typed) -> dict[str, str]:
    body, issuers = body_of(typed), call.services.bindings.issuers
    return dict(
        never_sent(
            body.get("sub_pattern", ""),
            body.get("event_names", ()),
            issuers.get(body.get("issuer", "")),
        )
    )


def _meant(warnings: Mapping[str, str]) -> str:
    return " ".join(warnings.values())


def warn(call: PageCall, typed: Typed) -> None:
    """Raise NeverSent if it applies, unless the form says that just this is meant."""
    warnings = _warnings(call, typed)
    faults = [
        NeverSent(f"{text} Correct it, or send the form again if you mean it", field=name)
        for name, text in warnings.items()
    ]
    if faults and typed.get(MEANT) != _meant(warnings):
        faults[0].further = faults[1:]
        raise faults[0]


async def _find_typed_holder(call: PageCall, typed: Typed) -> Binding | None:
    """The organisation's active binding in the slot of what was typed, or None.

    None also if it is another organisation's, or if what was typed is not valid.
    """
    body, tenant_id = body_of(typed), call.org.id
    names = body.get("project_id"), body.get("team_id")
    async with call.read() as session:
        known = await find_projects_and_teams(session, tenant_id, *names)
        try:
            draft = parse_binding(body, call.services.bindings.issuers, known)
        except Invalid:
            return None
        return await find_holder(session, tenant_id, draft)


async def load_choices(call: PageCall) -> Choices:
    """What the caller may choose from."""
    caller, org = call.caller, call.org
    async with call.read() as session:
        teams = await list_names(session, org, Team)
        projects = await list_names(session, org, Project)
    # In a thread: there may be 10,000 teams.
    own = await in_thread(lambda: [team for team in teams if may_create(caller, org, team[0])])
    is_org_admin = may_create(caller, org, None)
    offered = {Origin.ORG_ADMIN: is_org_admin, Origin.TEAM_ADMIN: is_org_admin or bool(own)}
    issuers = call.services.bindings.issuers
    return Choices(
        issuers=[(url, url) for url in issuers],
        origins=[(origin, words) for origin, words in _ORIGINS.items() if offered[origin]],
        teams=[("", "none"), *own],
        projects=[("", "any"), *projects],
        conditions=[
            claim
            for provider in dict.fromkeys(each.provider for each in issuers.values())
            for claim in CONDITION_CLAIMS[provider]
        ],
    )
