"""Makes an organisation's active bindings match a declared list: plans the changes, applies them.

Planning is pure: the declared and the active bindings are arguments. A plan is applied in one
transaction, and only if it is still the plan that was shown.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from service.access.callers import Caller
from service.ci.issuers.issuers import Issuers
from service.core.errors import Conflict
from service.store.store import UnitOfWork
from service.store.tables import Binding, Organisation
from service.trust.bindings.changes import REASON, add_binding, replace_binding, revoke_binding
from service.trust.bindings.rules import Draft


class BindingIdentity(NamedTuple):
    """What identifies a binding: an organisation has at most one active binding for each."""

    issuer: str
    sub_pattern: str
    repository_id: str | None
    team_id: str | None


@dataclass(frozen=True, slots=True)
class DeclaredDraft:
    """A binding as a file declares it. `has_origin` is False to leave the present origin alone."""

    draft: Draft
    has_origin: bool

    @property
    def identity(self) -> BindingIdentity:
        """The identity of the declared binding."""
        draft = self.draft
        return BindingIdentity(draft.issuer, draft.sub_pattern, draft.repository_id, draft.team_id)


class SyncKind(StrEnum):
    """What a plan does with one binding."""

    CREATE = "create"
    REPLACE = "replace"
    REVOKE = "revoke"


@dataclass(frozen=True, slots=True)
class SyncAction:
    """One change. `body` is what is created, `binding_id` what is replaced or revoked.

    `differences` are the fields that a replacement changes: the present value and the new one.
    """

    kind: SyncKind
    identity: BindingIdentity
    binding_id: str | None = None
    body: Mapping[str, Any] | None = None
    differences: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes, in the order in which they are applied.

    `unmanaged` counts the active bindings that are not declared and stay.
    """

    actions: Sequence[SyncAction]
    unchanged: int
    unmanaged: int


class PlanChanged(Conflict):
    """The bindings are no longer those that the plan was made for."""

    text = "the bindings were changed since the plan was made: plan again"


@dataclass(frozen=True, slots=True)
class Applied:
    """An action that was applied; `new_id` is the id of the binding it created."""

    action: SyncAction
    new_id: str | None


def plan_sync(
    declared: Iterable[DeclaredDraft], active: Collection[Binding], *, has_prune: bool
) -> Plan:
    """The changes after which each of `declared` is active as declared.

    Active bindings that are not declared are revoked with `has_prune` and stay without.
    """
    present = {_identity(binding): binding for binding in active}
    changes, unchanged, identities = [], 0, set()
    for entry in declared:
        identities.add(entry.identity)
        binding = present.get(entry.identity)
        if binding is None:
            changes.append(SyncAction(SyncKind.CREATE, entry.identity, body=entry.draft.body))
        elif differences := _differences(entry, binding):
            changes.append(_replacement(entry, binding, differences))
        else:
            unchanged += 1
    left = sorted((identity for identity in present if identity not in identities), key=_order)
    revocations = [
        SyncAction(SyncKind.REVOKE, identity, binding_id=present[identity].id) for identity in left
    ]
    # A team's binding can only be created while its envelope is active, so envelopes come first.
    changes.sort(key=lambda action: action.identity.team_id is not None)
    return Plan(
        actions=[*(revocations if has_prune else []), *changes],
        unchanged=unchanged,
        unmanaged=0 if has_prune else len(left),
    )


async def apply_plan(
    work: UnitOfWork,
    org: Organisation,
    plan: Plan,
    by: Caller,
    issuers: Issuers,
    reason: str | None,
    origins: Container[str],
) -> Sequence[Applied]:
    """Apply all of `plan`, which must have been made in this transaction.

    Raises what creating, replacing and revoking raise; then nothing is changed.
    """
    return [
        Applied(action, await _apply(work, org, action, by, issuers, reason, origins))
        for action in plan.actions
    ]


async def _apply(
    work: UnitOfWork,
    org: Organisation,
    action: SyncAction,
    by: Caller,
    issuers: Issuers,
    reason: str | None,
    origins: Container[str],
) -> str | None:
    if action.body is None:
        await revoke_binding(work, org, action.binding_id or "", reason, by)
        return None
    if action.binding_id is None:
        created = await add_binding(work, org, action.body, by, issuers, origins)
        return created.id
    body = {**action.body, REASON: reason}
    successor = await replace_binding(work, org, action.binding_id, body, by, issuers, origins)
    return successor.id


def _order(identity: BindingIdentity) -> tuple[str, ...]:
    return tuple(part or "" for part in identity)


def _identity(binding: Binding) -> BindingIdentity:
    return BindingIdentity(
        binding.issuer, binding.sub_pattern, binding.repository_id, binding.team_id
    )


def _differences(entry: DeclaredDraft, binding: Binding) -> dict[str, tuple[Any, Any]]:
    """The fields in which `binding` is not as declared: their present and declared values."""
    draft = entry.draft
    differences: dict[str, tuple[Any, Any]] = {}
    # The order of events has no meaning.
    if set(binding.event_names) != set(draft.event_names):
        differences["event_names"] = list(binding.event_names), list(draft.event_names)
    # A team's binding that declares no project gets that of its envelope.
    if draft.project_id != binding.project_id and (draft.project_id or not draft.team_id):
        differences["project_id"] = binding.project_id, draft.project_id
    if entry.has_origin and draft.origin != binding.origin:
        differences["origin"] = binding.origin, draft.origin.value
    return differences


def _replacement(
    entry: DeclaredDraft, binding: Binding, differences: Mapping[str, tuple[Any, Any]]
) -> SyncAction:
    body = entry.draft.body
    if not entry.has_origin:
        body["origin"] = binding.origin
    return SyncAction(SyncKind.REPLACE, entry.identity, binding.id, body, differences)
