"""Makes an organisation's active bindings match a declared list: plans the changes, applies them.

Planning is pure: the declared and the active bindings are arguments. A plan is applied in one
transaction, and only if it is still the plan that was shown.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeVar

import msgspec
from msgspec import Meta, Struct, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller
from service.access.roles import Capability
from service.core.errors import Conflict, Invalid, NotFound, errors_at
from service.core.text_rules import parse_reason
from service.store.organisations import get_named
from service.store.tables import Binding, Organisation, Origin, Project, Team
from service.trust.bindings.changes import (
    REASON,
    add_binding,
    origins_of,
    replace_binding,
    revoke_binding,
)
from service.trust.bindings.repository import list_active_bindings
from service.trust.bindings.rules import ACTIVE_MAX, Draft, ProjectsAndTeams, parse_binding
from service.trust.bindings.services import BindingServices
from service.trust.refusals import CREATE_REFUSALS, BindingExists
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Parsed


class BindingIdentity(NamedTuple):
    """What identifies a binding: an organisation has at most one active binding for each."""

    issuer: str
    sub_pattern: str
    repository_id: str | None
    team_id: str | None

    @classmethod
    def of(cls, binding: Binding | Draft) -> Self:
        """The identity of a binding, or of one that is declared."""
        return cls(binding.issuer, binding.sub_pattern, binding.repository_id, binding.team_id)


@dataclass(frozen=True, slots=True)
class DeclaredDraft:
    """A binding as a file declares it. `has_origin` is False to leave the present origin alone."""

    draft: Draft
    has_origin: bool

    @property
    def identity(self) -> BindingIdentity:
        """The identity of the declared binding."""
        return BindingIdentity.of(self.draft)


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


PLAN_CHANGED: Final = Conflict.of("the bindings were changed since the plan was made: plan again")


def plan_sync(
    declared: Iterable[DeclaredDraft], active: Collection[Binding], *, has_prune: bool
) -> Plan:
    """The changes after which each of `declared` is active as declared.

    Active bindings that are not declared are revoked with `has_prune` and stay without.
    """
    present = {BindingIdentity.of(binding): binding for binding in active}
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
    left = sorted(present.keys() - identities, key=lambda each: [part or "" for part in each])
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


async def _apply(
    call: WriteCall[BindingServices], action: SyncAction, reason: str | None
) -> str | None:
    """Apply an action of a plan that was made in this transaction; the id of a new binding.

    Raises what creating, replacing and revoking raise; then nothing is changed.
    """
    work, org, by, issuers = call.work, call.org, call.caller, call.services.issuers
    if action.body is None:
        await revoke_binding(work, org, action.binding_id or "", reason, by)
        return None
    if action.binding_id is None:
        return (await add_binding(work, org, action.body, by, issuers)).id
    body = {**action.body, REASON: reason}
    return (await replace_binding(work, org, action.binding_id, body, by, issuers)).id


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
    if (binding.conditions or {}) != draft.conditions:
        differences["conditions"] = binding.conditions or {}, dict(draft.conditions)
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


_Declared = TypeVar("_Declared", bound="DeclaredBindings")
_Named = TypeVar("_Named", Project, Team)

SYNC_BYTES_MAX: Final = 4 * 2**20
"""How the paths of the endpoints end, or the path of a plan before `/plan`."""

_TURN_BINDINGS: Final = 100
"""After so many bindings other requests have their turn."""

_EXAMPLE: Final = {
    "issuer": "https://token.actions.githubusercontent.com",
    "bindings": [
        {
            "sub_pattern": "repo:acme/payments:ref:refs/heads/main",
            "repository_id": "123456789",
            "event_names": ["push"],
            "project": "payments",
        }
    ],
}

resource = Resource("bindings_sync", "/oidc-bindings/sync", Tag.BINDINGS, BindingServices)


class DeclaredBinding(Struct, frozen=True, forbid_unknown_fields=True):
    """A binding to have. `project` and `team` are ids or names; without events, any is allowed.

    Without `origin`, a new binding is the caller's organisation's (or its team's, or the
    platform's), and others keep theirs.
    """

    sub_pattern: str
    issuer: str | None = None
    repository_id: str | int | None = None
    event_names: list[str] = []
    conditions: dict[str, str] = {}
    project: str | None = None
    team: str | None = None
    origin: str | None = None


class DeclaredBindings(Struct, frozen=True, forbid_unknown_fields=True):
    """The bindings to have. `issuer` is that of those that name none."""

    bindings: Annotated[list[DeclaredBinding], Meta(max_length=ACTIVE_MAX)]
    issuer: str | None = None
    has_prune: Annotated[
        bool, Meta(description="Whether active bindings that are not declared are revoked.")
    ] = False


class BindingsToSync(DeclaredBindings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The bindings to have, and the plan that was made for them."""

    plan: Annotated[str, Meta(description="The `plan` of the answer to `/plan`.")]
    reason: (
        Annotated[str, Meta(description="Why; stored with what is revoked or replaced.")] | None
    ) = None


class ChangedField(Struct, kw_only=True):
    """A field that a replacement changes: what it is, and what it will be."""

    before: Any = msgspec.field(name="from")
    after: Any = msgspec.field(name="to")


class PlannedAction(Struct, kw_only=True):
    """One change. `binding` is replaced or revoked; `new` is created, once it is applied."""

    action: Literal["create", "replace", "revoke"]
    binding: str | None
    new: str | None
    issuer: str
    sub_pattern: str
    repository_id: str | None
    team_id: str | None
    differences: dict[str, ChangedField]


class SyncPlan(Answer):
    """The changes in order. `unmanaged` active bindings are not declared, and stay."""

    org: str
    applied: bool
    actions: list[PlannedAction]
    unchanged: int
    unmanaged: int
    plan: Annotated[str, Meta(description="Names these changes; for applying them.")]


def _parse_sync(given: dict[str, Any]) -> BindingsToSync:
    parsed = _converted(given, BindingsToSync)
    parse_reason(parsed.reason)
    return parsed


def _converted(given: dict[str, Any], model: type[_Declared]) -> _Declared:
    """The declaration; a fault names its place, which may be deep in a long list."""
    try:
        return msgspec.convert(given, model)
    except ValidationError as error:
        raise Invalid(str(error), field="bindings") from error
    except UnicodeEncodeError as error:  # half a surrogate pair
        raise Invalid("bindings must be text in UTF-8", field="bindings") from error


@resource.post_read(
    "plan_bindings_sync",
    "/plan",
    needs=Capability.OIDC_READ,
    body=Parsed(
        DeclaredBindings,
        partial(_converted, model=DeclaredBindings),
        is_long=True,
        bytes_max=SYNC_BYTES_MAX,
    ),
    example=_EXAMPLE,
    returns=SyncPlan,
    refuses=[*CREATE_REFUSALS, NotFound],
)
async def plan(call: Call[BindingServices], declared: DeclaredBindings) -> SyncPlan:
    """Show what would make the organisation's active bindings match a list. Nothing is changed."""
    async with call.read() as session:
        planned = await _plan(session, call, declared)
    return _answer(call.org.slug, planned, ())


@resource.post(
    "sync_bindings",
    needs=Capability.OIDC_WRITE,
    body=Parsed(BindingsToSync, _parse_sync, is_long=True, bytes_max=SYNC_BYTES_MAX),
    example=_EXAMPLE | {"plan": "5f1b0c"},
    returns=SyncPlan,
    refuses=[*CREATE_REFUSALS, NotFound, BindingExists, PLAN_CHANGED, Conflict],
)
async def sync(call: WriteCall[BindingServices], declared: BindingsToSync) -> SyncPlan:
    """Make the organisation's active bindings match a list, all changes or none of them.

    It is refused if they are no longer those of the plan.
    """
    planned = await _plan(call.session, call, declared)
    if _name_of(planned.actions) != declared.plan:
        raise PLAN_CHANGED
    reason = parse_reason(declared.reason)
    new_ids = [await _apply(call, action, reason) for action in planned.actions]
    return _answer(call.org.slug, planned, new_ids)


async def _plan(
    session: AsyncSession, call: Call[BindingServices], content: DeclaredBindings
) -> Plan:
    """The plan for the bindings that `session` sees. Raises Invalid naming the place."""
    found: dict[tuple[str | None, ...], int] = {}
    declared = []
    names = _Names(session, call.org)
    for number, entry in enumerate(content.bindings, 1):
        if number % _TURN_BINDINGS == 0:
            await asyncio.sleep(0)
        with errors_at(f"binding {number} ({entry.sub_pattern})"):
            binding = await _declared(names, call, entry, content.issuer)
            first = found.setdefault(binding.identity, number)
            if first != number:
                raise Invalid(f"the same issuer, sub_pattern and id as binding {first}")
        declared.append(binding)
    active = await list_active_bindings(session, call.org.id)
    return plan_sync(declared, active, has_prune=content.has_prune)


@dataclass(frozen=True, slots=True)
class _Names:
    """The projects and teams that a list names, each read once.

    A list may be long, and it is planned in the transaction that applies it, for which all other
    changes wait.
    """

    session: AsyncSession
    org: Organisation
    _ids: dict[tuple[type[Project | Team], str], str] = field(default_factory=dict)

    async def id_of(self, table: type[_Named], name: str | None) -> str | None:
        """The id of the project or team with this id or name; None of none. Raises NotFound."""
        if not name:
            return None
        if (table, name) not in self._ids:
            self._ids[table, name] = (await get_named(self.session, self.org, table, name)).id
        return self._ids[table, name]


async def _declared(
    names: _Names, call: Call[BindingServices], entry: DeclaredBinding, issuer: str | None
) -> DeclaredDraft:
    project_id = await names.id_of(Project, entry.project)
    team_id = await names.id_of(Team, entry.team)
    body = {
        "issuer": entry.issuer or issuer,
        "sub_pattern": entry.sub_pattern,
        "repository_id": entry.repository_id,
        "event_names": entry.event_names,
        "origin": entry.origin or _origin(call.caller, is_team=team_id is not None),
        "project_id": project_id,
        "team_id": team_id,
        "conditions": entry.conditions,
    }
    known = ProjectsAndTeams(
        projects=(project_id,) if project_id else (), teams=(team_id,) if team_id else ()
    )
    draft = parse_binding(body, call.services.issuers, known, frozenset(Origin))
    if team_id is not None and draft.origin is not Origin.TEAM_ADMIN:
        raise Invalid("a team's binding has origin team_admin")
    return DeclaredDraft(draft, has_origin=entry.origin is not None)


def _origin(caller: Caller, *, is_team: bool) -> str:
    """The origin of a new binding that declares none."""
    if is_team:
        return Origin.TEAM_ADMIN.value
    is_platform = Origin.PLATFORM_ADMIN in origins_of(caller)
    return (Origin.PLATFORM_ADMIN if is_platform else Origin.ORG_ADMIN).value


def _name_of(actions: Sequence[SyncAction]) -> str:
    """A digest of the changes; the order in which they are applied counts."""
    facts = [(each.kind, each.identity, each.binding_id, each.body) for each in actions]
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def _answer(slug: str, planned: Plan, new_ids: Sequence[str | None]) -> SyncPlan:
    """The plan; once it is applied, with the ids that its actions created."""
    ids = new_ids or [None] * len(planned.actions)
    return SyncPlan(
        org=slug,
        applied=bool(new_ids),
        actions=[_action(action, each) for action, each in zip(planned.actions, ids, strict=True)],
        unchanged=planned.unchanged,
        unmanaged=planned.unmanaged,
        plan=_name_of(planned.actions),
    )


def _action(action: SyncAction, new_id: str | None) -> PlannedAction:
    identity: Mapping[str, Any] = action.identity._asdict()
    return PlannedAction(
        action=action.kind.value,
        binding=action.binding_id,
        new=new_id,
        differences={
            name: ChangedField(before=before, after=after)
            for name, (before, after) in action.differences.items()
        },
        **identity,
    )
