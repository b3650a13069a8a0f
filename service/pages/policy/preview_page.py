"""What a change of the policy would have done, before it is saved; and saving it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quart import Blueprint, redirect, url_for
from quart.typing import ResponseReturnValue

from service.access.callers import Caller
from service.access.roles import Capability
from service.audit.tenant_log import TenantLog, open_log
from service.ci.providers import job_label
from service.core.errors import Invalid
from service.core.threads import in_thread
from service.packages.policy.document import decode_document
from service.packages.policy.model import (
    NO_POLICY,
    PART_LABELS,
    InstallPolicy,
    Mode,
    PolicyDifference,
    difference,
)
from service.packages.policy.policy_api import PREVIEW_MAX_S, replace
from service.packages.policy.preview import TOP, Preview, preview_policy
from service.packages.policy.repository import find_revision
from service.packages.refusals import PolicyMoved
from service.pages.display_names import Person, find_names
from service.pages.form_auth import Form, authorize_form
from service.pages.navigation import may, page_context
from service.pages.policy.edits import Edit, EditRefused, propose, read_edit
from service.pages.policy.policy_page import Refused, render_policy
from service.pages.services import DashboardServices
from service.pages.state import State
from service.pages.streaming import Later, streamed
from service.pages.summary_panel import SummaryUnavailable, or_unavailable
from service.store.tables import Organisation, PolicyRevision
from service.web.dependencies import receives

blueprint = Blueprint(
    "dashboard_policy_changes", __name__, url_prefix="/admin/ui/orgs/<slug>/policy"
)

REPLACES: Final = "replaces"
"""The field with the revision that a form was shown with."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A package, rule or job, how many of its installs would have been blocked, and its rows."""

    text: str
    installs: int
    href: str | None = None
    ecosystem: str | None = None


@dataclass(frozen=True, slots=True)
class ShownPreview:
    """What the policy would have done, and the most frequent of each kind."""

    preview: Preview
    packages: list[Counted]
    rules: list[Counted]
    jobs: list[Counted]


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The policy changed after the form was shown: who changed it, and what that was."""

    revision: PolicyRevision
    by: Person
    changed: PolicyDifference | None


@dataclass(frozen=True, slots=True)
class PreviewView:
    """The page's data. `replaces` is the revision that `changed` compares the new policy with."""

    edit: Edit
    replaces: int
    changed: PolicyDifference
    mode: Mode
    preview: Later[ShownPreview | SummaryUnavailable]
    overtaken: Overtaken | None = None
    is_refused: bool = False
    part_words: Mapping[str, str] = field(default_factory=lambda: PART_LABELS)

    @property
    def is_change(self) -> bool:
        """True if saving it changes anything."""
        return bool(self.changed.before or self.changed.after)


@blueprint.post("/preview")
@receives(DashboardServices)
async def preview(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show what a change would have done, with the button that saves it."""
    caller, org, form = await authorize_form(services, slug, Capability.POLICY_WRITE)
    return await _preview(services, caller, org, read_edit(form), read_replaced(form))


@blueprint.post("")
@receives(DashboardServices)
async def save(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Save a change, or show it again on top of what was saved concurrently."""
    caller, org, form = await authorize_form(services, slug, Capability.POLICY_WRITE)
    edit, seen = read_edit(form), read_replaced(form)
    try:
        await save_edit(services, caller, org, edit, seen)
    except PolicyMoved:
        return await _preview(services, caller, org, edit, seen, status=PolicyMoved.status)
    except EditRefused as refusal:
        return await _refused(services, caller, org, edit, refusal)
    if not may(caller, Capability.POLICY_READ, org):
        return redirect(url_for("dashboard.overview_page", slug=org.slug), 303)
    return redirect(url_for("dashboard_policy.policy_page", slug=org.slug, done="saved"), 303)


async def _preview(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    edit: Edit,
    seen: int,
    status: int = 200,
) -> ResponseReturnValue:
    caller.require(Capability.POLICY_READ, org)
    try:
        view = await load_preview_view(services, caller, org, edit, seen, is_refused=status != 200)
    except EditRefused as refusal:
        return await _refused(services, caller, org, edit, refusal)
    context = page_context(services.settings, caller, org)
    return await streamed("policy/preview.html", status, page=view, **context)


async def _refused(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    edit: Edit,
    refusal: EditRefused,
) -> ResponseReturnValue:
    """The policy page with the form as it was filled in, and its errors."""
    caller.require(Capability.POLICY_READ, org)
    return await render_policy(services, caller, org, refused=Refused(edit, refusal.faults))


def read_replaced(form: Form) -> int:
    """The revision that the form was shown with. Raises Invalid."""
    text = form.get(REPLACES, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Invalid(f"{REPLACES} must be a revision's number", field=REPLACES)
    return int(text)


async def load_preview_view(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    edit: Edit,
    seen: int,
    *,
    is_refused: bool = False,
) -> PreviewView:
    """The change on top of the policy in force. Raises EditRefused, StoreUnavailable."""
    async with services.store.read() as session:
        current = await find_revision(session, org.id)
        overtaken = None
        if current is not None and current.revision != seen:
            names = await find_names(session, org.id, actors={current.changed_by})
            before = await find_revision(session, org.id, seen) if seen else None
            overtaken = Overtaken(
                current, names.person(current.changed_by), _since(before, seen, current)
            )
    old = _policy(current)
    new = await in_thread(propose, edit, old)
    now = services.clock()
    log = await open_log(services.store, services.audit.lake, org, now)
    has_links = may(caller, Capability.AUDIT_READ, org)

    async def load() -> ShownPreview | SummaryUnavailable:
        preview = await or_unavailable(
            preview_policy(
                log, new, services.policy.dates, services.policy.worker, now, PREVIEW_MAX_S
            )
        )
        if isinstance(preview, SummaryUnavailable):
            return preview
        return _shown(preview, log, has_links=has_links)

    return PreviewView(
        edit=edit,
        replaces=0 if current is None else current.revision,
        changed=difference(old, new),
        mode=new.mode,
        preview=Later(load),
        overtaken=overtaken,
        is_refused=is_refused,
    )


async def save_edit(
    services: DashboardServices, caller: Caller, org: Organisation, edit: Edit, seen: int
) -> None:
    """Put the change of the revision `seen` in force.

    Raises PolicyMoved if another one is by now, EditRefused, and what an action does.
    """
    async with services.store.read() as session:
        current = await find_revision(session, org.id)
    number = 0 if current is None else current.revision
    if number != seen:
        raise PolicyMoved(value=str(number))
    policy = await in_thread(propose, edit, _policy(current))
    await replace.run_parsed(caller, org, (policy,), {}, replaces=seen)


def _policy(revision: PolicyRevision | None) -> InstallPolicy:
    return NO_POLICY if revision is None else decode_document(revision.document)


def _since(
    before: PolicyRevision | None, seen: int, current: PolicyRevision
) -> PolicyDifference | None:
    """What changed since the revision `seen`; None if that is no longer kept."""
    if seen and before is None:
        return None
    return difference(_policy(before), _policy(current))


def _shown(preview: Preview, log: TenantLog, *, has_links: bool) -> ShownPreview:
    path = url_for("dashboard.audit_page", slug=log.org.slug)
    installs = State({"last": ("30d",)}, path).only("decision", "ALLOWED")

    def href(**filters: str) -> str | None:
        state = installs
        for name, text in filters.items():
            state = state.only(name, text)
        return state.href if has_links else None

    return ShownPreview(
        preview=preview,
        packages=[
            Counted(package, count, href(package=package, ecosystem=ecosystem), ecosystem)
            for (ecosystem, package), count in preview.packages.most_common(TOP)
        ],
        rules=[Counted(rule, count) for rule, count in preview.rules.most_common(TOP)],
        jobs=[
            Counted(job_label(job) or job, count, href(subject=job))
            for job, count in preview.jobs.most_common(TOP)
        ],
    )
