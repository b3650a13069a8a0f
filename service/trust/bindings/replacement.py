"""Replacing a binding: its revocation and its successor in one transaction."""

from collections.abc import Container, Mapping
from typing import Any, Final

from service.access.callers import Caller
from service.ci.issuers.issuers import Issuers
from service.core.errors import ReasonInvalid
from service.core.ids import new_id
from service.core.text_rules import parse_reason
from service.store.store import UnitOfWork
from service.store.tables import Binding, Organisation
from service.trust.bindings.changes import add_binding, revoke_binding, terms_of
from service.trust.bindings.repository import get_revocable
from service.trust.bindings.rules import HTTP_ORIGINS

REASON: Final = "reason"
REPLACED_BY: Final = "replaced by "
"""How the `revokedReason` of a replaced binding begins; its successor's id follows."""


async def replace_binding(
    work: UnitOfWork,
    org: Organisation,
    binding_id: str,
    body: Mapping[str, Any],
    by: Caller,
    issuers: Issuers,
    origins: Container[str] = HTTP_ORIGINS,
) -> Binding:
    """Revoke the binding and create its successor; fields missing in `body` are copied.

    There is no gap: both changes become visible with the transaction, and `revoked_at` of one
    equals `added_at` of the other. `body` may also have the `reason` of the revocation. Raises
    BindingNotFound, ReasonInvalid, and what `add_binding` raises.
    """
    predecessor = await get_revocable(work.session, org.id, binding_id)
    reason = _reason(body.get(REASON))
    changed = {name: value for name, value in body.items() if name != REASON}
    successor = {**terms_of(predecessor), **changed}
    successor_id = new_id("obind")
    why = f"{REPLACED_BY}{successor_id}" + (f": {reason}" if reason else "")
    # Revoked first: the successor may have the same slot.
    await revoke_binding(work, org, binding_id, why, by)
    return await add_binding(work, org, successor, by, issuers, origins, successor_id)


def _reason(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ReasonInvalid
    return parse_reason(value)
