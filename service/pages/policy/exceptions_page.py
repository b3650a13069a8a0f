"""The pages about exceptions from the cooldown: asking for one, and deciding on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from service.access.callers import Caller
from service.access.roles import Capability
from service.core.errors import Conflict, Invalid
from service.orgs.members import list_owners
from service.packages.policy.exceptions import (
    OPEN,
    decide_exception,
    list_exceptions,
    parse_decision,
    parse_request,
    request_exception,
)
from service.packages.release import Release
from service.pages.display_names import Person, find_names
from service.pages.form_auth import Form
from service.pages.navigation import may
from service.pages.policy.policy_page import ECOSYSTEMS
from service.pages.services import DashboardServices
from service.store.tables import Organisation, PolicyException

FIELDS: Final = ("ecosystem", "package", "version", "reason")
SHOWN_MAX: Final = 250
_OWNERS_MAX: Final = 3
_GOOD: Final = {"ecosystem": "pypi", "package": "x==1", "reason": "x"}
"""Stand-ins for fields that are checked separately, so that all errors are found at once."""


@dataclass(frozen=True, slots=True)
class AskView:
    """The form that asks for an exception. `owners` are some who could allow it."""

    given: Mapping[str, str]
    owners: list[str]
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
    status: int = 200
    ecosystems: list[tuple[str, str]] = field(default_factory=lambda: ECOSYSTEMS)


@dataclass(frozen=True, slots=True)
class ExceptionsView:
    """The requests that wait, oldest first, and the latest that were decided.

    `refused` is the request whose decision was refused, `given` what was typed for it.
    """

    waiting: list[PolicyException]
    decided: list[PolicyException]
    people: Mapping[str, Person]
    may_decide: bool
    refused: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
    status: int = 200


async def load_ask_view(
    services: DashboardServices, org: Organisation, given: Mapping[str, str]
) -> AskView:
    """The form, filled in with `given`."""
    async with services.store.read() as session:
        owners = await list_owners(session, org, _OWNERS_MAX)
    return AskView(given, [owner.email for owner in owners])


async def ask(
    services: DashboardServices, caller: Caller, org: Organisation, given: Mapping[str, str]
) -> AskView | None:
    """Ask for an exception; None if that is done, or the form again with its errors."""
    release, reason, faults = _parsed(given)
    if release is None or reason is None:
        view = await load_ask_view(services, org, given)
        return AskView(given, view.owners, faults, status=Invalid.status)
    try:
        async with services.access.change_as_member(caller, org) as (work, by, present):
            await request_exception(work, present, release, reason, by.audit_context)
    except Conflict as refusal:
        view = await load_ask_view(services, org, given)
        return AskView(given, view.owners, fault=refusal.text, status=refusal.status)
    return None


def _parsed(given: Mapping[str, str]) -> tuple[Release | None, str | None, dict[str, str]]:
    faults: dict[str, str] = {}
    release = reason = None
    named = {name: given[name].strip() or None for name in ("ecosystem", "package", "version")}
    try:
        release, _ = parse_request({**named, "reason": _GOOD["reason"]})
    except Invalid as fault:
        faults[fault.field or "package"] = fault.text
    try:
        _, reason = parse_request({**_GOOD, "reason": given["reason"].strip()})
    except Invalid as fault:
        faults["reason"] = fault.text
    return release, reason, faults


async def load_exceptions_view(
    services: DashboardServices, caller: Caller, org: Organisation
) -> ExceptionsView:
    """The requests of the organisation."""
    async with services.store.read() as session:
        waiting = await list_exceptions(session, org.id, OPEN, SHOWN_MAX)
        listed = await list_exceptions(session, org.id, None, SHOWN_MAX)
        names = await find_names(session, org.id, actors=_actors([*waiting, *listed]))
    return ExceptionsView(
        waiting=list(reversed(waiting)),
        decided=[request for request in listed if request.state != OPEN],
        people={actor: names.person(actor) for actor in _actors([*waiting, *listed])},
        may_decide=may(caller, Capability.POLICY_WRITE, org),
    )


def _actors(listed: Sequence[PolicyException]) -> set[str]:
    return {
        actor
        for request in listed
        for actor in (request.requested_by, request.decided_by)
        if actor is not None
    }


async def decide(
    services: DashboardServices, caller: Caller, org: Organisation, exception_id: str, form: Form
) -> str:
    """Allow or decline a request; the new state. Raises Invalid, ExceptionNotFound, Conflict."""
    body = {"decision": form.get("decision"), "reason": form.get("reason", "").strip() or None}
    state, reason = parse_decision(body)
    change = services.access.change(caller, org, Capability.POLICY_WRITE)
    async with change as (work, by, present):
        await decide_exception(work, present, exception_id, state, reason, by.audit_context)
    return state
