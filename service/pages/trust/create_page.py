"""The form that creates a binding: its choices, what was typed, and errors by field."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from service.access.callers import Caller
from service.access.roles import Capability
from service.core.errors import Invalid, Refusal
from service.core.threads import in_thread
from service.pages.form_auth import Form
from service.pages.trust.permissions import may_create
from service.store.organisations import list_names
from service.store.tables import Binding, Organisation, Origin, Project, Team
from service.trust.bindings.changes import add_binding
from service.trust.bindings.repository import find_projects_and_teams
from service.trust.bindings.rules import parse_binding
from service.trust.bindings.services import BindingServices
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
)
_ORIGINS: Final = {
    Origin.ORG_ADMIN: "org_admin: for the organisation",
    Origin.TEAM_ADMIN: "team_admin: for a team, within an org_admin binding",
}

Typed = Mapping[str, str]
"""The texts of the fields, by name."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The caller's choices: pairs of value and label."""

    issuers: Sequence[tuple[str, str]]
    origins: Sequence[tuple[str, str]]
    teams: Sequence[tuple[str, str]]
    projects: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class CreateView:
    """The form. `fault` is an error of no single field, `holder` the conflicting binding."""

    choices: Choices
    given: Typed = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
    holder: str | None = None


def typed(form: Form) -> Typed:
    """The texts of the form, unchanged."""
    return {name: form.get(name, "") for name in FIELDS}


def typed_of(body: Mapping[str, Any]) -> Typed:
    """The texts to type in order to send `body`."""
    return {
        **{name: body.get(name) or "" for name in FIELDS},
        "event_names": "\n".join(body["event_names"]),
    }


def parse_typed(given: Typed) -> dict[str, Any]:
    """The values of the fields in `given`, by their name in the API's body.

    Line breaks in a subject come from pasting, and are removed.
    """
    body: dict[str, Any] = dict(given)
    if "sub_pattern" in given:
        body["sub_pattern"] = given["sub_pattern"].replace("\r", "").replace("\n", "")
    if "event_names" in given:
        lines = [line.strip() for line in given["event_names"].splitlines()]
        body["event_names"] = [line for line in lines if line]
    return body


def body_of(given: Typed) -> dict[str, Any]:
    """The API's body of a create for what was typed. An empty field is left out."""
    return {name: value for name, value in parse_typed(given).items() if value}


async def create_typed(
    services: BindingServices, caller: Caller, org: Organisation, given: Typed
) -> str:
    """Create the binding; its id. Raises what `add_binding` and `Authorizer.change` raise."""
    async with services.access.change(caller, org, Capability.OIDC_WRITE) as (work, by, present):
        binding = await add_binding(work, present, body_of(given), by, services.issuers)
    return binding.id


async def refused_form(
    services: BindingServices, caller: Caller, org: Organisation, given: Typed, refusal: Refusal
) -> CreateView:
    """The form again, with all that was typed and with `refusal` at the field it is about.

    If one of the organisation's bindings is in the way, its events and project are merged into the
    form, so that replacing it with the form takes nothing from the jobs that it trusts.
    """
    choices = await load_choices(services, caller, org)
    if refusal.field in FIELDS:
        return CreateView(choices, given, refusal.by_field)
    holder = await find_typed_holder(services, org, given)
    if not isinstance(refusal, BindingExists) or holder is None:
        return CreateView(choices, given, fault=refusal.text)
    return CreateView(choices, _merged(given, holder), fault=refusal.text, holder=holder.id)


async def find_typed_holder(
    services: BindingServices, org: Organisation, given: Typed
) -> Binding | None:
    """The organisation's active binding in the slot of what was typed, or None.

    None also if it is another organisation's, or if what was typed is not valid.
    """
    body = body_of(given)
    async with services.store.read() as session:
        known = await find_projects_and_teams(
            session, org.id, body.get("project_id"), body.get("team_id")
        )
        try:
            draft = parse_binding(body, services.issuers, known)
        except Invalid:
            return None
        return await find_holder(session, org.id, draft)


def _merged(given: Typed, holder: Binding) -> Typed:
    events: Sequence[str] = parse_typed(given)["event_names"]
    is_any = not events or not holder.event_names
    project_id = given["project_id"]
    return {
        **given,
        "event_names": "" if is_any else "\n".join(dict.fromkeys([*holder.event_names, *events])),
        "project_id": project_id if project_id == holder.project_id else "",
    }


async def load_choices(services: BindingServices, caller: Caller, org: Organisation) -> Choices:
    """What `caller` may choose from."""
    async with services.store.read() as session:
        teams = await list_names(session, org, Team)
        projects = await list_names(session, org, Project)
    own = await in_thread(_own, caller, org, teams)
    is_org_admin = may_create(caller, org, None)
    offered = {Origin.ORG_ADMIN: is_org_admin, Origin.TEAM_ADMIN: is_org_admin or bool(own)}
    return Choices(
        issuers=[(url, url) for url in services.issuers],
        origins=[(origin, words) for origin, words in _ORIGINS.items() if offered[origin]],
        teams=[("", "none"), *own],
        projects=[("", "any"), *projects],
    )


def _own(
    caller: Caller, org: Organisation, teams: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Those of `teams`, of which there may be 10,000, whose bindings `caller` could create."""
    return [(team_id, name) for team_id, name in teams if may_create(caller, org, team_id)]
