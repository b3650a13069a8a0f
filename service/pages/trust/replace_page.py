"""The form that replaces a binding: filled in with its terms, or with what was typed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from service.access.callers import Caller
from service.access.roles import Capability
from service.core.errors import Refusal
from service.pages.form_auth import Form
from service.pages.trust.create_page import (
    FIELDS,
    Choices,
    Typed,
    find_typed_holder,
    load_choices,
    parse_typed,
    typed_of,
)
from service.store.tables import Organisation, Origin
from service.trust.bindings.changes import REASON, replace_binding, terms_of
from service.trust.bindings.repository import get_active
from service.trust.bindings.services import BindingServices
from service.trust.refusals import BindingExists

_FIELDS: Final = (*FIELDS, REASON)


@dataclass(frozen=True, slots=True)
class ReplaceView:
    """The form. `fault` is an error of no single field, `holder` the conflicting binding."""

    binding_id: str
    choices: Choices
    given: Typed
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
    holder: str | None = None


async def load_replace_view(
    services: BindingServices, caller: Caller, org: Organisation, binding_id: str
) -> ReplaceView:
    """The form with the terms of an active binding. Raises BindingNotFound, Forbidden."""
    async with services.store.read() as session:
        binding = await get_active(session, org.id, binding_id)
    caller.require_revoke_rights(org, binding.team_id)
    terms = terms_of(binding)
    if binding.origin == Origin.PLATFORM_ADMIN:
        terms["origin"] = Origin.ORG_ADMIN.value  # the operator's origin is not for members
    return ReplaceView(binding_id, await load_choices(services, caller, org), typed_of(terms))


def typed_replacement(form: Form) -> Typed:
    """The texts of those fields that the form has."""
    return {name: form[name] for name in _FIELDS if name in form}


async def replace_typed(
    services: BindingServices, caller: Caller, org: Organisation, binding_id: str, given: Typed
) -> str:
    """Replace the binding; its successor's id. Raises what `replace_binding` raises."""
    async with services.access.change(caller, org, Capability.OIDC_WRITE) as (work, by, present):
        binding = await replace_binding(
            work, present, binding_id, _body(given), by, services.issuers
        )
    return binding.id


async def refused_replacement(
    services: BindingServices,
    caller: Caller,
    org: Organisation,
    binding_id: str,
    given: Typed,
    refusal: Refusal,
) -> ReplaceView:
    """The form again, with all that was typed and with `refusal` at the field it is about."""
    choices = await load_choices(services, caller, org)
    if refusal.field in _FIELDS:
        return ReplaceView(binding_id, choices, given, refusal.by_field)
    holder = None
    if isinstance(refusal, BindingExists):
        holder = await find_typed_holder(
            services, org, {name: given.get(name, "") for name in FIELDS}
        )
    return ReplaceView(
        binding_id, choices, given, fault=refusal.text, holder=holder.id if holder else None
    )


def _body(given: Typed) -> dict[str, Any]:
    """The API's body for what was typed: an empty field is null, a missing one is taken over."""
    typed = parse_typed(given)
    return {name: typed[name] or None for name in _FIELDS if name in typed}
