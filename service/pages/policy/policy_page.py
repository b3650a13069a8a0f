"""The policy page: the policy in force or an earlier one, its changes, and forms to change it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from analytics.export.wire import json_objects
from analytics.model.filters import only, parse_query
from analytics.model.policy_envelopes import PolicyChanged
from service.access.callers import Caller
from service.access.roles import Capability
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import Invalid
from service.packages.ecosystems import Ecosystem
from service.packages.policy.blocklist_contents import FeedState
from service.packages.policy.document import DOCUMENT_BYTES_MAX, decode_document, to_json
from service.packages.policy.exceptions import OPEN, OPEN_MAX, list_exceptions
from service.packages.policy.model import (
    NO_POLICY,
    PART_LABELS,
    InstallPolicy,
    Mode,
    PolicyDifference,
    difference,
)
from service.packages.policy.repository import (
    REVISIONS_KEPT,
    RevisionHead,
    find_revision,
    list_revisions,
    load_feed_states,
)
from service.packages.refusals import REVISION_NOT_FOUND
from service.pages.display_names import Person, find_names
from service.pages.navigation import may, page_context
from service.pages.policy.edits import Edit
from service.pages.services import DashboardServices
from service.pages.streaming import Later, streamed
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.store.tables import Organisation, PolicyRevision
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters

blueprint = Blueprint("dashboard_policy", __name__, url_prefix="/admin/ui/orgs/<slug>/policy")

DONE: Final = {"saved": "Saved. The policy holds from the next request on."}
"""The page's confirmation after its forms."""

_REVISION: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)

ECOSYSTEM_WORDS: Final = {Ecosystem.PYPI: "PyPI", Ecosystem.NPM: "npm"}
ECOSYSTEMS: Final = [(str(ecosystem), words) for ecosystem, words in ECOSYSTEM_WORDS.items()]
MODES: Final = [
    (str(Mode.ENFORCE), "enforce: refuse what is blocked"),
    (str(Mode.AUDIT), "audit: record what would be blocked, and serve it"),
]
FIELD_WORDS: Final = {
    "id": "name of the rule",
    "min_age_days": "days",
    "exempt": "exempt packages",
}
"""The labels of fields whose name is another."""

RowIds = dict[int, str]
"""The audit rows of changes, by revision."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A form that changed nothing: what was typed, and its errors by field."""

    edit: Edit
    faults: Mapping[str, list[str]]

    @property
    def texts(self) -> list[tuple[str, str]]:
        """All errors, with the label of the field of each."""
        return [
            (FIELD_WORDS.get(name, name), text)
            for name, texts in self.faults.items()
            for text in texts
        ]

    def fault_in(self, kind: str, name: str) -> str | None:
        """The errors at a field of the form of this kind."""
        texts = self.faults.get(name) if kind == self.edit.kind else None
        return "; ".join(texts) if texts else None


@dataclass(frozen=True, slots=True)
class FeedView:
    """A feed of the blocklist, and whether a newer import of it is due."""

    state: FeedState
    ecosystem: str
    is_stale: bool


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The page's data. `revision` is None for an organisation that never set a policy.

    `in_force` is the number of the revision in force, `before` what differs in the one before a
    past one. `waiting` counts the requests for exceptions without a decision. `feeds` are those of
    the blocklist. `rows` is None for callers who may not read the audit log.
    """

    policy: InstallPolicy
    revision: PolicyRevision | None
    in_force: int
    revisions: list[RevisionHead]
    people: Mapping[str, Person]
    feeds: list[FeedView]
    waiting: int
    rows: Later[RowIds | SummaryUnavailable] | None
    since_before: PolicyDifference | None
    may_change: bool
    refused: Refused | None = None
    status: int = 200
    ecosystems: list[tuple[str, str]] = field(default_factory=lambda: ECOSYSTEMS)
    modes: list[tuple[str, str]] = field(default_factory=lambda: MODES)
    part_words: Mapping[str, str] = field(default_factory=lambda: PART_LABELS)
    document_bytes_max: int = DOCUMENT_BYTES_MAX
    revisions_kept: int = REVISIONS_KEPT

    @property
    def number(self) -> int:
        """The number of the revision that is shown, 0 for none."""
        return 0 if self.revision is None else self.revision.revision

    @property
    def without_feed(self) -> list[str]:
        """The ecosystems for which no blocklist was imported."""
        listed = {view.ecosystem for view in self.feeds}
        return [words for words in ECOSYSTEM_WORDS.values() if words not in listed]

    @property
    def is_past(self) -> bool:
        """True if another revision is in force."""
        return self.number != self.in_force

    @property
    def document(self) -> str:
        """The policy as JSON, with one entry per line."""
        return document_text(self.policy)

    @property
    def exempt(self) -> str:
        """The packages that are exempt from the cooldown, one per line."""
        cooldown = self.policy.cooldown
        return "" if cooldown is None else "\n".join(each.spec for each in cooldown.exempt)

    def typed_in(self, kind: str, name: str, otherwise: str = "") -> str:
        """What was typed into a field of the form of this kind."""
        if self.refused is None or self.refused.edit.kind != kind:
            return otherwise
        return self.refused.edit.given.get(name, otherwise)

    def fault_in(self, kind: str, name: str) -> str | None:
        """The errors at this field."""
        return None if self.refused is None else self.refused.fault_in(kind, name)

    def is_open(self, kind: str) -> bool:
        """True if the form of this kind was refused."""
        return self.refused is not None and self.refused.edit.kind == kind


@blueprint.get("")
@receives(DashboardServices)
async def policy_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the policy in force or an earlier revision, and the forms that change it."""
    caller, org = await services.authorize(slug, Capability.POLICY_READ)
    parameters = query_parameters(request, ("revision", "done"))
    text = only(parameters, "revision")
    if text is not None and not _REVISION.fullmatch(text):
        raise Invalid("revision must be a positive integer", field="revision")
    number = None if text is None else int(text)
    done = DONE.get(only(parameters, "done") or "")
    return await render_policy(services, caller, org, number, done=done)


async def render_policy(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    number: int | None = None,
    *,
    refused: Refused | None = None,
    done: str | None = None,
) -> ResponseReturnValue:
    """The page with the revision `number`, or the one in force; or a form that was `refused`."""
    view = await load_policy_view(services, caller, org, number, refused)
    context = page_context(services.settings, caller, org)
    return await streamed("policy/policy.html", view.status, page=view, done=done, **context)


async def load_policy_view(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    number: int | None = None,
    refused: Refused | None = None,
) -> PolicyView:
    """The revision `number`, or the one in force. Raises REVISION_NOT_FOUND, StoreUnavailable."""
    async with services.store.read() as session:
        revision = await find_revision(session, org.id, number)
        if number is not None and revision is None:
            raise REVISION_NOT_FOUND
        revisions = list(await list_revisions(session, org.id))
        in_force = revisions[0].revision if revisions else 0
        before = None
        if revision is not None and revision.revision != in_force:
            before = await find_revision(session, org.id, revision.revision - 1)
        names = await find_names(session, org.id, actors={head.changed_by for head in revisions})
        feeds = await load_feed_states(session)
        waiting = len(await list_exceptions(session, org.id, OPEN, OPEN_MAX))
    rows = None
    if may(caller, Capability.AUDIT_READ, org):
        log = await open_log(services.store, services.audit.lake, org, services.clock())
        rows = Later(lambda: or_unavailable(_row_ids(log)))
    policy = NO_POLICY if revision is None else decode_document(revision.document)
    return PolicyView(
        policy=policy,
        revision=revision,
        in_force=in_force,
        revisions=revisions,
        people={head.changed_by: names.person(head.changed_by) for head in revisions},
        feeds=_feed_views(feeds, services),
        waiting=waiting,
        rows=rows,
        since_before=None
        if before is None
        else difference(decode_document(before.document), policy),
        may_change=may(caller, Capability.POLICY_WRITE, org),
        refused=refused,
        status=200 if refused is None else 400,
    )


def _feed_views(feeds: list[FeedState], services: DashboardServices) -> list[FeedView]:
    now, stale_after_s = services.clock(), services.settings.blocklist_stale_s
    return [
        FeedView(state, ECOSYSTEM_WORDS[state.ecosystem], state.is_stale(now, stale_after_s))
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
