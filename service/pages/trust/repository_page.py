"""The page that revokes all bindings of a repository: which they are, then the confirmation."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from quart import Blueprint

from service.access.roles import Capability
from service.core.errors import Invalid
from service.core.text_rules import is_plain, parse_reason
from service.pages.page import ANYWHERE, Form, FormState, Page, PageCall, View
from service.pages.trust.binding_form import faults_of
from service.pages.trust.binding_view import may_revoke, show_bindings
from service.pages.trust.bindings_page import bindings_page
from service.trust.bindings.bindings_api import revoke_all
from service.trust.bindings.listing import PAGE_ROWS
from service.trust.bindings.repository_revocation import (
    Repository,
    RevocationRequest,
    digest_of,
    find_ids_of,
    list_active_of,
)
from service.trust.refusals import REPOSITORY_NOT_BOUND
from service.web.models import Parsed

blueprint = Blueprint("dashboard_repository", __name__, url_prefix="/admin/ui/orgs/<slug>/bindings")

PARAMETERS: Final = ("issuer", "repository_id")


@Page(
    blueprint,
    "/revoke",
    "binding_revoke_repository.html",
    needs=Capability.OIDC_WRITE,
    also=Capability.OIDC_READ,
    takes=PARAMETERS,
    reads_form=True,
)
async def repository_page(call: PageCall, state: FormState) -> View:
    """The active bindings of a repository as they are now, with the form that revokes them."""
    typed = {name: text for name in (*PARAMETERS, "reason") if (text := state.typed.get(name))}
    view, refusal = await load_repository_view(call, typed), state.refusal
    if refusal is not None:
        texts = faults_of(state)
        view |= {"faults": texts, "fault": texts.get(ANYWHERE)}
    return {"page": view, "status": view["status"] if refusal is None else state.status}


def _listed_of(typed: Mapping[str, Any]) -> RevocationRequest:
    """What the form confirms: exactly the bindings that it listed. Raises Invalid."""
    repository = Repository.parse(typed.get("issuer"), typed.get("repository_id"))
    return RevocationRequest(repository, parse_reason(typed.get("reason")), typed.get("listed", ""))


repository_page.form(
    "/revoke",
    "revoke_repository_form",
    dataclasses.replace(revoke_all, body=Parsed(dict, _listed_of)),
    "revoked_repository",
    fields=Form.to_dict,
    then=bindings_page,
    at=lambda _, form: {"text": form.get("repository_id", ""), "state": "revoked"},
)


async def load_repository_view(call: PageCall, typed: Mapping[str, str]) -> dict[str, Any]:
    """The active bindings of the repository in `typed`, or the form that asks for one.

    `rows` are the first of `total`; `listed` is the digest of all their ids.
    """
    issuers = [(url, url) for url in call.services.bindings.issuers]
    view: dict[str, Any] = {
        "issuers": issuers,
        "typed": typed,
        "rows": (),
        "faults": {},
        "fault": None,
        "status": 200,
    }
    if not typed:
        return view
    named = typed.get("repository_id", "")
    if named and not named.isdecimal() and is_plain(typed.get("issuer", "")):
        async with call.read() as session:
            ids = await find_ids_of(session, call.org.id, typed.get("issuer", ""), named)
        if len(ids) > 1:
            several = f"{len(ids)} repositories have this name: type one of {', '.join(ids)}"
            return view | {"faults": {"repository_id": several}, "status": Invalid.status}
        if ids:
            typed = {**typed, "repository_id": ids[0]}
    try:
        repository = Repository.parse(typed.get("issuer"), typed.get("repository_id"))
    except Invalid as fault:
        name = fault.field or "repository_id"
        return view | {"faults": {name: fault.text}, "status": fault.status}
    async with call.read() as session:
        bindings = await list_active_of(session, call.org.id, repository)
        rows = await show_bindings(
            session, call.org.id, bindings[:PAGE_ROWS], call.services.clock()
        )
    if not rows:
        missing = REPOSITORY_NOT_BOUND(
            issuer=repository.issuer, repository_id=repository.repository_id
        )
        return view | {"fault": missing.text, "status": missing.status}
    return view | {
        "typed": {**typed, "repository_id": repository.repository_id, "name": named},
        "rows": rows,
        "total": len(bindings),
        "listed": digest_of(binding.id for binding in bindings),
        "may_revoke": all(may_revoke(call.caller, call.org, each.team_id) for each in bindings),
    }
