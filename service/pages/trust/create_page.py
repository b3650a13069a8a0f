"""The pages that create a binding, and replace one."""

import dataclasses
from collections.abc import Sequence

from quart import Blueprint
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.pages.page import FormState, Page, PageCall, View
from service.pages.trust.binding_form import (
    FIELDS,
    BindingForm,
    Typed,
    body_of,
    load_form,
    parse_typed,
    typed_of,
    warn,
)
from service.pages.trust.binding_page import binding_page
from service.pages.trust.explain_page import explain_form, explain_source, explained_page
from service.pages.trust.rejected_page import load_rejection_view
from service.store.tables import Binding, Origin
from service.trust.bindings.bindings_api import create, replace
from service.trust.bindings.changes import REASON, terms_of
from service.trust.bindings.repository import get_active

blueprint = Blueprint(
    "dashboard_create_binding", __name__, url_prefix="/admin/ui/orgs/<slug>/bindings"
)


@Page(
    blueprint,
    "/new",
    "binding_new.html",
    needs=Capability.OIDC_WRITE,
    done={"created": "The binding is active: from now on tokens of this job are trusted."},
    takes=("from",),
    reads_form=True,
)
async def new_page(call: PageCall, state: FormState) -> View | ResponseReturnValue:
    """The form that creates a binding, or what a rejected subject lacks, if that is asked for.

    If one of the organisation's bindings is in the way, its events and project are merged into the
    form, so that replacing it with the form takes nothing from the jobs that it trusts. Its
    conditions are kept unless others were typed for their claims.
    """
    digest = state.typed.get("from") if state.refusal is None else None
    if digest:
        call.caller.require(Capability.OIDC_READ, call.org)
        source = await load_rejection_view(call, digest)
        return await explained_page(call, await explain_source(call, source), source)
    form = await load_form(call, state)
    if form.holder is not None:
        form = dataclasses.replace(form, typed=_merged(form.typed, form.holder))
    return {"create": form, "explain": await explain_form(call)}


new_page.form(
    "/new",
    "create",
    create,
    "created",
    fields=body_of,
    check=warn,
    then=binding_page,
    at=lambda created, _: {"binding_id": created.id},
)


@Page(
    blueprint,
    "/<binding:binding_id>/replace",
    "binding_replace.html",
    needs=Capability.OIDC_WRITE,
    also=Capability.OIDC_READ,
    reads_form=True,
)
async def replace_page(call: PageCall, state: FormState, binding_id: str) -> View:
    """The form that replaces a binding, filled in with its terms. Raises BindingNotFound."""
    form: BindingForm = await load_form(call, state)
    if state.refusal is None:
        async with call.read() as session:
            binding = await get_active(session, call.org.id, binding_id)
        call.caller.require_revoke_rights(call.org, binding.team_id)
        form = dataclasses.replace(form, typed=typed_of(_own_terms(binding)))
    return {"page": form, "binding_id": binding_id}


replace_page.form(
    "/<binding:binding_id>/replace",
    "replace",
    replace,
    "replaced",
    # All fields are shown: an empty one is null, one that the form lacks is taken over.
    fields=lambda form: {
        name: value or None for name, value in parse_typed(form, (*FIELDS, REASON)).items()
    },
    check=warn,
    then=binding_page,
    at=lambda replaced, _: {"binding_id": replaced.id},
    gone=binding_page,
)


def _own_terms(binding: Binding) -> dict[str, object]:
    """The terms of `binding`; the operator's origin is not for members."""
    is_platforms = binding.origin == Origin.PLATFORM_ADMIN
    return terms_of(binding) | ({"origin": Origin.ORG_ADMIN.value} if is_platforms else {})


def _merged(typed: Typed, holder: Binding) -> Typed:
    asked = parse_typed(typed)
    events: Sequence[str] = asked.get("event_names", ())
    is_any = not events or not holder.event_names
    project_id = typed.get("project_id", "")
    return {
        **typed,
        "event_names": "" if is_any else "\n".join(dict.fromkeys([*holder.event_names, *events])),
        "project_id": project_id if project_id == holder.project_id else "",
        **typed_of({"conditions": {**(holder.conditions or {}), **asked.get("conditions", {})}}),
    }
