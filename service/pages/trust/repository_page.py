"""The page that revokes all bindings of a repository: which they are, then the confirmation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from service.access.callers import Caller
from service.access.roles import Capability
from service.core.errors import Invalid, Refusal
from service.core.text_rules import parse_reason
from service.pages.form_auth import Form
from service.pages.trust.binding_view import ShownBinding, show_bindings
from service.pages.trust.permissions import may_revoke
from service.store.tables import Organisation
from service.trust.bindings.listing import PAGE_ROWS
from service.trust.bindings.repository_revocation import (
    Repository,
    RevocationRequest,
    digest_of,
    list_active_of,
    revoke_repository,
)
from service.trust.bindings.services import BindingServices
from service.trust.refusals import RepositoryNotBound

PARAMETERS: Final = ("issuer", "repository_id")


@dataclass(frozen=True, slots=True)
class RepositoryView:
    """The active bindings of the repository in `given`, or the form that asks for one.

    `rows` are the first of `total`; `listed` is the digest of all their ids.
    """

    issuers: Sequence[tuple[str, str]]
    given: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[ShownBinding] = ()
    total: int = 0
    listed: str = ""
    may_revoke: bool = False
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
    status: int = 200


async def load_repository_view(
    services: BindingServices, caller: Caller, org: Organisation, given: Mapping[str, str]
) -> RepositoryView:
    """The page's data; without parameters the form alone."""
    view = RepositoryView([(url, url) for url in services.issuers], given)
    if not given:
        return view
    try:
        repository = Repository.parse(given.get("issuer"), given.get("repository_id"))
    except Invalid as fault:
        name = fault.field or "repository_id"
        return replace(view, faults={name: fault.text}, status=fault.status)
    async with services.store.read() as session:
        bindings = await list_active_of(session, org.id, repository)
        rows = await show_bindings(session, org.id, bindings[:PAGE_ROWS], services.clock())
    if not rows:
        missing = RepositoryNotBound(
            issuer=repository.issuer, repository_id=repository.repository_id
        )
        return replace(view, fault=missing.text, status=missing.status)
    return replace(
        view,
        given={**given, "repository_id": repository.repository_id},
        rows=rows,
        total=len(bindings),
        listed=digest_of(binding.id for binding in bindings),
        may_revoke=all(may_revoke(caller, org, binding.team_id) for binding in bindings),
    )


async def revoke_listed(
    services: BindingServices, caller: Caller, org: Organisation, form: Form
) -> Repository:
    """Revoke exactly the bindings that the form lists; their repository.

    Raises Invalid, and what `revoke_repository` raises.
    """
    repository = Repository.parse(form.get("issuer"), form.get("repository_id"))
    wanted = RevocationRequest(repository, parse_reason(form.get("reason")), form.get("listed", ""))
    async with services.access.change(caller, org, Capability.OIDC_WRITE) as (work, by, present):
        await revoke_repository(work, present, wanted, by)
    return repository


async def refused_revocation(
    services: BindingServices, caller: Caller, org: Organisation, form: Form, refusal: Refusal
) -> RepositoryView:
    """The list as it is now, with `refusal`, and with the reason that was typed."""
    given = {name: form[name] for name in (*PARAMETERS, "reason") if name in form}
    view = await load_repository_view(services, caller, org, given)
    if refusal.field == "reason":
        return replace(view, faults={"reason": refusal.text}, status=refusal.status)
    return replace(view, fault=refusal.text, status=refusal.status)
