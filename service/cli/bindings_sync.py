"""`countersign bindings sync`: bindings as declared in a file, by a plan that is shown first."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from service.ci.issuers.issuers import Issuers
from service.cli.answers import Answer
from service.cli.asking import confirm, yes_option
from service.cli.bindings import bindings
from service.cli.context import CommandContext, command, org_option
from service.cli.files import errors_at
from service.cli.proposals import printable
from service.core.errors import Invalid
from service.core.exit_codes import ExitCode, WrongUsage
from service.core.text_rules import parse_reason
from service.store.organisations import get_org, get_project, get_team
from service.store.tables import Organisation, Origin
from service.trust.bindings.repository import BindingState, find_projects_and_teams, list_bindings
from service.trust.bindings.rules import parse_binding
from service.trust.bindings.sync import (
    SYNC_ORIGINS,
    Applied,
    DeclaredDraft,
    Plan,
    PlanChanged,
    SyncAction,
    SyncKind,
    apply_plan,
    plan_sync,
)

_SIGNS: Final = {SyncKind.CREATE: "+", SyncKind.REPLACE: "~", SyncKind.REVOKE: "-"}


class DeclaredBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A binding in a file. `project` and `team` are ids or names; without events, any is allowed.

    Without `origin`, a new binding is the platform's (or its team's), and others keep theirs.
    """

    sub_pattern: str
    issuer: str | None = None
    repository_id: str | int | None = None
    event_names: list[str] = []
    project: str | None = None
    team: str | None = None
    origin: str | None = None


class DeclaredBindings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file. `issuer` is that of the bindings that name none."""

    bindings: list[DeclaredBinding]
    issuer: str | None = None


@command(bindings, "sync", changes=True)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@org_option
@click.option("--prune", "has_prune", is_flag=True, help="Revoke active bindings not in FILE.")
@click.option("--plan", "is_plan", is_flag=True, help="Show the plan; exit code 5 if not empty.")
@click.option("--reason", help="Why; stored with each binding that is revoked or replaced.")
@yes_option
async def bindings_sync(
    context: CommandContext,
    file: Path,
    slug: str,
    reason: str | None,
    *,
    has_prune: bool,
    is_plan: bool,
    is_sure: bool,
) -> Answer:
    """Make an organisation's bindings match FILE (TOML).

    Shows what would be created (+), replaced (~) and revoked (-), asks, and applies all of it in
    one transaction. It is refused if the bindings were changed in between. Bindings that FILE
    does not name stay, unless --prune is given.

    \b
    issuer = "https://token.actions.githubusercontent.com"
    [[bindings]]
    sub_pattern = "repo:acme/payments:ref:refs/heads/main"
    repository_id = "123456789"
    event_names = ["push"]
    project = "payments"
    """  # noqa: D301 - click reads the backspace
    if is_plan and is_sure:
        raise WrongUsage("give either --plan or --yes")
    why, sync = parse_reason(reason), _Sync(file, slug, context.services.issuers, has_prune)
    async with context.services.store.read() as session:
        shown = await sync.plan(session)
    lines = list(_plan_lines(slug, file, shown))
    if is_plan or not shown.actions:
        code = ExitCode.CHANGES if shown.actions else ExitCode.DONE
        return Answer(_form(slug, shown, ()), lines, code=code)
    confirm(f"Apply these changes to the bindings of {slug}?", is_sure=is_sure, shown=lines)
    async with context.change(slug) as (work, org):
        if (await sync.plan(work.session)).actions != shown.actions:
            raise PlanChanged
        with errors_at(file.name):
            applied = await apply_plan(
                work, org, shown, context.operator, context.services.issuers, why
            )
    return Answer(_form(slug, shown, applied), [*(lines if is_sure else ()), _summary(applied)])


@dataclass(frozen=True, slots=True)
class _Sync:
    """A file to apply to the organisation `slug`."""

    file: Path
    slug: str
    issuers: Issuers
    has_prune: bool

    async def plan(self, session: AsyncSession) -> Plan:
        """The plan for the bindings that `session` sees. Raises Invalid naming the place."""
        org = await get_org(session, self.slug)
        declared = await self._declared(session, org)
        active = await list_bindings(session, org.id, BindingState.ACTIVE)
        return plan_sync(declared, active, has_prune=self.has_prune)

    async def _declared(self, session: AsyncSession, org: Organisation) -> list[DeclaredDraft]:
        with errors_at(self.file.name):
            content = msgspec.convert(tomllib.loads(self.file.read_text()), DeclaredBindings)
        found: dict[tuple[str | None, ...], int] = {}
        declared = []
        for number, entry in enumerate(content.bindings, 1):
            with errors_at(f"{self.file.name}: binding {number} ({printable(entry.sub_pattern)})"):
                binding = await self._parsed(session, org, entry, content.issuer)
                first = found.setdefault(binding.identity, number)
                if first != number:
                    raise Invalid(f"the same issuer, sub_pattern and id as binding {first}")
            declared.append(binding)
        return declared

    async def _parsed(
        self,
        session: AsyncSession,
        org: Organisation,
        entry: DeclaredBinding,
        issuer: str | None,
    ) -> DeclaredDraft:
        project = await get_project(session, org, entry.project) if entry.project else None
        team = await get_team(session, org, entry.team) if entry.team else None
        body = {
            "issuer": entry.issuer or issuer,
            "sub_pattern": entry.sub_pattern,
            "repository_id": entry.repository_id,
            "event_names": entry.event_names,
            "origin": entry.origin or (Origin.TEAM_ADMIN if team else Origin.PLATFORM_ADMIN).value,
            "project_id": project.id if project else None,
            "team_id": team.id if team else None,
        }
        places = await find_projects_and_teams(session, org.id, body["project_id"], body["team_id"])
        draft = parse_binding(body, self.issuers, places, SYNC_ORIGINS)
        if team is not None and draft.origin is not Origin.TEAM_ADMIN:
            raise Invalid("a team's binding has origin team_admin")
        return DeclaredDraft(draft, has_origin=entry.origin is not None)


def _plan_lines(slug: str, file: Path, plan: Plan) -> Iterator[str]:
    if plan.actions:
        yield f"Plan for {slug} by {file.name}:"
    else:
        yield f"No changes: {plan.unchanged} bindings of {slug} are as in {file.name}."
    for action in plan.actions:
        yield f"  {_SIGNS[action.kind]} {_words(action)}"
    if plan.actions:
        counts = [f"{_count(plan, kind)} to {kind}" for kind in SyncKind if _count(plan, kind) > 0]
        yield f"{', '.join(counts)}; {plan.unchanged} unchanged."
    if plan.unmanaged:
        yield f"{plan.unmanaged} active, not in {file.name}: they stay (--prune revokes them)."


def _count(plan: Plan, kind: SyncKind) -> int:
    return sum(action.kind is kind for action in plan.actions)


def _words(action: SyncAction) -> str:
    job = f"{printable(action.identity.sub_pattern)} ({action.identity.repository_id or 'any id'})"
    if action.binding_id is None:
        return f"{action.kind} {job}"
    changes = "; ".join(
        f"{name}: {_value(before)} → {_value(after)}"
        for name, (before, after) in action.differences.items()
    )
    return f"{action.kind} {action.binding_id} {job}" + (f": {changes}" if changes else "")


def _value(value: Any) -> str:  # noqa: ANN401 - a field of a binding
    return printable(value) if value else "any"


def _summary(applied: Sequence[Applied]) -> str:
    return f"Applied {len(applied)} change{'s' if len(applied) != 1 else ''}."


def _form(slug: str, plan: Plan, applied: Sequence[Applied]) -> dict[str, Any]:
    new_ids = [entry.new_id for entry in applied] or [None] * len(plan.actions)
    return {
        "org": slug,
        "applied": bool(applied),
        "actions": [
            _action_form(action, new_id)
            for action, new_id in zip(plan.actions, new_ids, strict=True)
        ],
        "unchanged": plan.unchanged,
        "unmanaged": plan.unmanaged,
    }


def _action_form(action: SyncAction, new_id: str | None) -> Mapping[str, Any]:
    return {
        "action": action.kind.value,
        "binding": action.binding_id,
        "new": new_id,
        **action.identity._asdict(),
        "differences": {
            name: {"from": before, "to": after}
            for name, (before, after) in action.differences.items()
        },
    }
