"""The policy page: the policy in force or an earlier one, its changes, and forms to change it.

A form leads to a preview of what its change would have done, and that saves it.
"""

from functools import partial
from typing import Any, Final

import msgspec
from quart import Blueprint, redirect, url_for
from quart.typing import ResponseReturnValue

from analytics.export.wire import json_objects
from analytics.model.filters import parse_query
from analytics.model.policy_envelopes import PolicyChanged
from service.access.roles import Capability
from service.audit.tenant_log import TenantLog, open_log
from service.ci.providers import job_label
from service.core.errors import Invalid
from service.core.threads import in_thread
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.policy.blocklist_contents import FeedState
from service.packages.policy.document import DOCUMENT_BYTES_MAX, to_json
from service.packages.policy.exceptions import OPEN, OPEN_MAX, list_exceptions
from service.packages.policy.model import (
    PART_LABELS,
    InstallPolicy,
    PolicyMode,
    difference,
)
from service.packages.policy.policy_api import PREVIEW_MAX_S, PolicyQuery, PolicyServices, replace
from service.packages.policy.preview import TOP, preview_policy
from service.packages.policy.repository import (
    REVISIONS_KEPT,
    find_revision,
    list_revisions,
    load_feed_states,
    policy_of,
)
from service.packages.refusals import REVISION_NOT_FOUND, PolicyMoved
from service.pages.display_names import find_names
from service.pages.navigation import may, page_context
from service.pages.page import Form, FormState, Page, PageCall, View, page_post
from service.pages.policy.edits import Edit, EditRefused, propose, read_edit
from service.pages.services import DashboardServices
from service.pages.state import PageState
from service.pages.streaming import Later, streamed
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.web.dependencies import group_of

blueprint = Blueprint("dashboard_policy", __name__, url_prefix="/admin/ui/orgs/<slug>/policy")

REPLACES: Final = "replaces"
"""The field with the revision that a form was shown with."""

CHOICES: Final = [(str(ecosystem), facts.label) for ecosystem, facts in ECOSYSTEMS.items()]
"""The ecosystems to choose from, with their names for people."""

MODES: Final = [
    (str(PolicyMode.ENFORCE), "enforce: refuse what is blocked"),
    (str(PolicyMode.AUDIT), "audit: record what would be blocked, and serve it"),
]
FIELD_WORDS: Final = {
    "id": "name of the rule",
    "min_age_days": "days",
    "exempt": "exempt packages",
    "ignore_after_days": "days",
}
"""The labels of fields whose name is another."""

RowIds = dict[int, str]
"""The audit rows of changes, by revision."""


@Page(
    blueprint,
    "",
    "policy/policy.html",
    needs=Capability.POLICY_READ,
    done={"saved": "Saved. The policy holds from the next request on."},
    query=PolicyQuery,
    is_streamed=True,
)
async def policy_page(call: PageCall, query: PolicyQuery) -> View:
    """The policy in force or an earlier revision, and the forms that change it.

    Raises REVISION_NOT_FOUND, StoreUnavailable.
    """
    services, org = call.services, call.org
    async with call.read() as session:
        revision = await find_revision(session, org.id, query.revision)
        if query.revision is not None and revision is None:
            raise REVISION_NOT_FOUND
        revisions = list(await list_revisions(session, org.id))
        in_force = revisions[0].revision if revisions else 0
        number = 0 if revision is None else revision.revision
        is_past = number != in_force
        before = await find_revision(session, org.id, number - 1) if is_past else None
        names = await find_names(session, org.id, actors={head.changed_by for head in revisions})
        feeds = await load_feed_states(session)
        waiting = len(await list_exceptions(session, org.id, OPEN, OPEN_MAX))
    rows = None
    if may(call.caller, Capability.AUDIT_READ, org):
        log = await open_log(services.store, services.audit.lake, org, services.clock())
        rows = Later(lambda: or_unavailable(_row_ids(log)))
    policy = policy_of(revision)
    fed = {feed.ecosystem for feed in feeds}
    page = {
        "policy": policy,
        "document": document_text(policy),
        "exempt": "\n".join(each.spec for each in policy.cooldown.exempt)
        if policy.cooldown
        else "",
        "revision": revision,  # None for an organisation that never set a policy
        "number": number,
        "in_force": in_force,
        "is_past": is_past,
        "revisions": revisions,
        "people": {head.changed_by: names.person(head.changed_by) for head in revisions},
        "feeds": _feed_views(feeds, services),
        "without_feed": [label for name, label in CHOICES if name not in fed],
        "waiting": waiting,
        "rows": rows,  # None for callers who may not read the audit log
        "since_before": None if before is None else difference(policy_of(before), policy),
        "may_change": may(call.caller, Capability.POLICY_WRITE, org),
        "ecosystems": CHOICES,
        "modes": MODES,
        "part_words": PART_LABELS,
        "document_bytes_max": DOCUMENT_BYTES_MAX,
        "revisions_kept": REVISIONS_KEPT,
    }
    return {"page": page, "field_words": FIELD_WORDS}


def _feed_views(feeds: list[FeedState], services: DashboardServices) -> list[View]:
    """The feeds of the blocklist, and whether a newer import of each is due."""
    now, stale_after_s = services.clock(), services.settings.blocklist_stale_s
    return [
        {
            "state": state,
            "ecosystem": ECOSYSTEMS[state.ecosystem].label,
            "is_stale": state.is_stale(now, stale_after_s),
        }
        for state in feeds
    ]


async def _row_ids(log: TenantLog) -> RowIds:
    query = parse_query({"event": [PolicyChanged.event]})
    rows = await log.page(query, REVISIONS_KEPT, time_max_s=GLANCE_MAX_S)
    ids: RowIds = {}
    for entry in map(msgspec.json.decode, json_objects(rows, log.org.id)):
        payload = entry["payload"]  # imported rows may contain anything
        number = payload.get("revision") if isinstance(payload, dict) else None
        if isinstance(number, int):
            ids.setdefault(number, entry["id"])
    return ids


def document_text(policy: InstallPolicy) -> str:
    """The document of `policy` with an entry on each line: to be read, edited and sent back."""
    parts = []
    for name, value in to_json(policy).items():
        if isinstance(value, list) and value:
            lines = ",\n".join(f"    {_json(entry)}" for entry in value)
            parts.append(f'  "{name}": [\n{lines}\n  ]')
        else:
            parts.append(f'  "{name}": {_json(value)}')
    return "{\n" + ",\n".join(parts) + "\n}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


@page_post(blueprint, "/preview", needs=Capability.POLICY_WRITE)
async def preview(call: PageCall, form: Form) -> ResponseReturnValue:
    """What a change would have done, with the button that saves it."""
    return await _preview(call, read_edit(form), read_replaced(form))


@page_post(blueprint, "", needs=Capability.POLICY_WRITE)
async def save(call: PageCall, form: Form) -> ResponseReturnValue:
    """Save a change, or show it again on top of what was saved concurrently."""
    edit, seen = read_edit(form), read_replaced(form)
    try:
        await save_edit(call, edit, seen)
    except PolicyMoved:
        return await _preview(call, edit, seen, status=PolicyMoved.status)
    except EditRefused as refusal:
        return await _refused(call, edit, refusal)
    return redirect(policy_page.address(call, "saved"), 303)


async def _preview(call: PageCall, edit: Edit, seen: int, status: int = 200) -> ResponseReturnValue:
    """The change on top of the policy in force. Raises Forbidden, StoreUnavailable."""
    policy_page.require(call)
    services, org = call.services, call.org
    async with call.read() as session:
        current = await find_revision(session, org.id)
        overtaken = None
        if current is not None and current.revision != seen:
            names = await find_names(session, org.id, actors={current.changed_by})
            before = await find_revision(session, org.id, seen) if seen else None
            overtaken = {  # by the change that was made after the form was shown
                "revision": current,
                "by": names.person(current.changed_by),
                # None if the revision that was seen is no longer kept.
                "changed": difference(policy_of(before), policy_of(current))
                if before or not seen
                else None,
            }
    old = policy_of(current)
    try:
        new = await in_thread(propose, edit, old)
    except EditRefused as refusal:
        return await _refused(call, edit, refusal)
    log = await open_log(services.store, services.audit.lake, org, services.clock())
    changed = difference(old, new)
    page = {
        "edit": edit,
        "replaces": 0 if current is None else current.revision,  # what `changed` compares with
        "changed": changed,
        "is_change": bool(changed.before or changed.after),
        "mode": new.mode,
        "preview": Later(partial(_effect, call, log, new)),
        "overtaken": overtaken,
        "is_refused": status != 200,
        "part_words": PART_LABELS,
    }
    context = page_context(services, call.caller, org)
    return await streamed("policy/preview.html", status, page=page, **context)


async def _refused(call: PageCall, edit: Edit, refusal: EditRefused) -> ResponseReturnValue:
    """The policy page with the form as it was filled in, and its errors."""
    policy_page.require(call)
    state = FormState(edit.kind, Form(edit.fields), refusal.faults, Invalid.status)
    return await policy_page.show(call, state, {})


def read_replaced(form: Form) -> int:
    """The revision that the form was shown with. Raises Invalid."""
    text = form.get(REPLACES, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Invalid(f"{REPLACES} must be a revision's number", field=REPLACES)
    return int(text)


async def save_edit(call: PageCall, edit: Edit, seen: int) -> None:
    """Put the change of the revision `seen` in force.

    Raises PolicyMoved if another one is by now, EditRefused, and what an action does.
    """
    async with call.read() as session:
        current = await find_revision(session, call.org.id)
    number = 0 if current is None else current.revision
    if number != seen:
        raise PolicyMoved(value=str(number))
    policy = await in_thread(propose, edit, policy_of(current))
    await replace.run_parsed(call.caller, call.org, (policy,), {}, replaces=seen)


async def _effect(
    call: PageCall, log: TenantLog, policy: InstallPolicy
) -> dict[str, Any] | SummaryUnavailable:
    """What the policy would have done, and the most frequent packages, rules and jobs."""
    policies, now = group_of(PolicyServices), call.services.clock()
    preview = await or_unavailable(
        preview_policy(log, policy, policies.listings, policies.worker, now, PREVIEW_MAX_S)
    )
    if isinstance(preview, SummaryUnavailable):
        return preview
    path = url_for("dashboard.audit_page", slug=call.org.slug)
    installs = PageState({"last": ("30d",)}, path).only("decision", "ALLOWED")
    has_links = may(call.caller, Capability.AUDIT_READ, call.org)

    def counted(text: str, count: int, **filters: str) -> dict[str, Any]:
        state = installs
        for name, value in filters.items():
            state = state.only(name, value)
        href = state.href if filters and has_links else None
        ecosystem = filters.get("ecosystem")
        return {"text": text, "installs": count, "href": href, "ecosystem": ecosystem}

    return {
        "preview": preview,
        "packages": [
            counted(package, count, package=package, ecosystem=ecosystem)
            for (ecosystem, package), count in preview.packages.most_common(TOP)
        ],
        "rules": [counted(rule, count) for rule, count in preview.rules.most_common(TOP)],
        "jobs": [
            counted(job_label(job) or job, count, subject=job)
            for job, count in preview.jobs.most_common(TOP)
        ],
    }
