"""Advice on bindings: what will fail soon, what is looser than its use, what no provider sends.

It is made of what is stored of bindings and rejected tokens with a valid signature; the rules of
the verifier do not know of it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from service.access.roles import Capability
from service.ci.issuers.issuers import Issuer, Issuers
from service.ci.providers import CI_LABELS, EVENTS, GITHUB_COM, id_form, ids_of, named_form
from service.ci.verifier.seen_claims import EVENT_NAME, KEPT_FOR, SeenClaims, values_since
from service.core.text_rules import is_plain
from service.core.threads import in_thread
from service.store.tables import Binding, Origin, RejectedSubject
from service.trust.bindings.changes import terms_of
from service.trust.bindings.repository import NEWEST_FIRST
from service.trust.bindings.services import BindingServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, NonNegative

resource = Resource("binding_advice", "/trust/advice", Tag.BINDINGS, BindingServices)

LISTED_MAX: Final = 200
"""How much advice of one kind is listed."""

WATCHED_FOR: Final = timedelta(days=14)
"""How long a binding's tokens are watched before it is called looser than its use."""

NEAREST_MAX: Final = 4
"""How many unknown names of a binding are compared with those that are known."""

_WILDCARDS: Final = frozenset("*?")
_OWNER_ID: Final = "repository_owner_id"
_NO_EVENTS: Final = "Tokens of its issuer name no event: a binding with events matches none."


class Kind(StrEnum):
    """What an advice is about, the most urgent first."""

    NEVER_SENT = "never_sent"
    ID_FORM_SEEN = "id_form_seen"
    ID_FORM_EXPECTED = "id_form_expected"
    LOOSER_THAN_USE = "looser_than_use"


class Advice(Struct, kw_only=True, rename="camel"):
    """What to do about one active binding.

    `body` is the request that does it, for the replace endpoint of the binding if `replaces`, else
    for a create; null if what is missing for it is not known.
    """

    kind: Kind
    binding_id: str
    sub_pattern: str
    text: str
    replaces: bool
    body: dict[str, Any] | None


class AdviceList(Answer):
    """Advice on the organisation's active bindings, at most 200 of each kind.

    `counts` has all of each kind.
    """

    org: str
    counts: dict[str, NonNegative]
    advice: Annotated[list[Advice], Meta(description="The most urgent first.")]


@resource.get("list_binding_advice", needs=Capability.OIDC_READ, returns=AdviceList)
async def binding_advice(call: Call[BindingServices]) -> AdviceList:
    """List bindings that will fail soon, are looser than their use, or match no token."""
    async with call.read() as session:
        return await load_advice(session, call.org.id, call.org.slug, call.services)


async def load_advice(
    session: AsyncSession, tenant_id: str, slug: str, services: BindingServices
) -> AdviceList:
    """The advice of the organisation as of now."""
    active = select(Binding).where(Binding.tenant_id == tenant_id, Binding.revoked_at.is_(None))
    newest_first = active.order_by(*NEWEST_FIRST)
    bindings = (await session.scalars(newest_first.options(undefer(Binding.seen_claims)))).all()
    rejected = select(RejectedSubject.issuer, RejectedSubject.sub, RejectedSubject.repository_id)
    verified = rejected.where(
        RejectedSubject.tenant_id == tenant_id, RejectedSubject.is_verified.is_(True)
    )
    sent = [(row.issuer, row.sub, row.repository_id) for row in await session.execute(verified)]
    # In a thread: there may be ten thousand bindings.
    found = await in_thread(advice_on, bindings, sent, services.issuers, services.clock())
    return AdviceList(
        org=slug,
        counts={kind.value: len(of_kind) for kind, of_kind in found.items()},
        advice=[each for of_kind in found.values() for each in of_kind[:LISTED_MAX]],
    )


def advice_on(
    bindings: Sequence[Binding],
    sent: Collection[tuple[str | None, str | None, str | None]],
    issuers: Issuers,
    now: datetime,
) -> Mapping[Kind, list[Advice]]:
    """The advice on active `bindings` by kind.

    `sent` are issuer, subject and repository id of rejected tokens with a valid signature.
    """
    owners = _Owners.of(bindings, sent)
    found: dict[Kind, list[Advice]] = {kind: [] for kind in Kind}
    taken = {(each.issuer, each.sub_pattern, each.repository_id, each.team_id) for each in bindings}
    for binding in bindings:
        is_listed = len(found[Kind.NEVER_SENT]) < LISTED_MAX
        advice = [
            _never_sent(binding, issuers.get(binding.issuer), is_listed=is_listed),
            _id_form(binding, owners, taken),
            _looser(binding, now),
        ]
        for each in advice:
            if each is not None:
                found[each.kind].append(each)
    return found


@dataclass(frozen=True, slots=True)
class _Owners:
    """What tokens showed: how subjects begin by id of repository, and the ids of owners."""

    begins: Mapping[str, str]
    ids: Mapping[str, str]

    @classmethod
    def of(
        cls,
        bindings: Sequence[Binding],
        sent: Collection[tuple[str | None, str | None, str | None]],
    ) -> "_Owners":
        """Those that rejected tokens and used bindings of github.com show."""
        begins, owner_ids = {}, {}
        used = [
            (each.issuer, each.sub_pattern, each.repository_id)
            for each in bindings
            if each.last_used_at is not None
        ]
        for issuer, sub, repository_id in (*sent, *used):
            ids = ids_of(sub or "")
            if issuer == GITHUB_COM and sub and ids and ids[1] == repository_id:
                begins[repository_id] = sub[: sub.find(":", len("repo:"))]
                owner_ids[_owner(sub)] = ids[0]
        for binding in bindings:
            values = [*(binding.seen_claims or {}).get(_OWNER_ID, {})]
            if binding.issuer == GITHUB_COM and len(values) == 1 and values[0]:
                owner_ids.setdefault(_owner(binding.sub_pattern), values[0])
        return cls(begins, owner_ids)

    def with_ids(self, sub: str, repository_id: str) -> str | None:
        """`sub` as GitHub sends it with ids; None if those are not known."""
        if repository_id in self.begins:  # under its present name
            return f"{self.begins[repository_id]}{sub[sub.find(':', len('repo:')) :]}"
        owner_id = self.ids.get(_owner(sub))
        return None if owner_id is None else id_form(sub, owner_id, repository_id)


def _owner(sub: str) -> str:
    return named_form(sub).partition(":")[2].partition("/")[0]


def _id_form(
    binding: Binding,
    owners: _Owners,
    taken: Collection[tuple[str, str, str | None, str | None]],
) -> Advice | None:
    """For a binding without ids whose repository sends them, or will once it is renamed."""
    repository_id, sub = binding.repository_id, binding.sub_pattern
    if binding.issuer != GITHUB_COM or repository_id is None or id_form(sub, "1", "1") is None:
        return None
    if _WILDCARDS & set(sub):
        return None
    with_ids = owners.with_ids(sub, repository_id)
    if with_ids and (binding.issuer, with_ids, repository_id, binding.team_id) in taken:
        return None
    if repository_id in owners.begins:
        kind = Kind.ID_FORM_SEEN
        text = "Its repository has begun to send subjects with ids: this one matches them no more."
    else:
        kind = Kind.ID_FORM_EXPECTED
        text = "GitHub adds ids to its subject at the next rename or transfer."
    body = terms_of(binding) | {"sub_pattern": with_ids} if with_ids else None
    if body is None:
        text += " Its owner's id is not known yet."
    return _advice(kind, binding, text, body, replaces=False)


def _never_sent(binding: Binding, issuer: Issuer | None, *, is_listed: bool) -> Advice | None:
    """For a binding whose subject or events no token can have."""
    if _WILDCARDS & set(binding.sub_pattern):
        text = "Its subject has a wildcard, but is compared exactly: no token has this one."
        return _advice(Kind.NEVER_SENT, binding, text, None, replaces=True)
    found = _events_never_sent(binding.event_names, issuer, NEAREST_MAX if is_listed else 0)
    if found is None:
        return None
    text, meant = found
    body = None if meant is None else {"event_names": meant}
    return _advice(Kind.NEVER_SENT, binding, text, body, replaces=True)


def never_sent(
    sub_pattern: str, event_names: Sequence[str], issuer: Issuer | None
) -> Iterator[tuple[str, str]]:
    """What no token of `issuer` has: the field, and a sentence for the person who typed it."""
    if _WILDCARDS & set(sub_pattern):
        yield "sub_pattern", "A subject is compared exactly: no token has one with a wildcard."
    # What is not valid at all is said by the create.
    found = _events_never_sent([name for name in event_names if is_plain(name)], issuer)
    if found is not None:
        yield "event_names", found[0]


def _events_never_sent(
    names: Sequence[str], issuer: Issuer | None, compared_max: int = NEAREST_MAX
) -> tuple[str, list[str] | None] | None:
    """What is wrong with `names` if no token of `issuer` has some, and those that may be meant.

    Comparing takes time: only the first `compared_max` unknown names are compared.
    """
    if issuer is None:
        return None
    if issuer.event_name_claim is None:
        return (_NO_EVENTS, None) if names else None
    known = EVENTS[issuer.provider]
    unknown = [name for name in names if known and name not in known]
    if not unknown:
        return None
    nearest = {
        name: event
        for name in unknown[:compared_max]
        for event in get_close_matches(name, known, n=1)
    }
    listed = ", ".join(
        f"{name} ({nearest[name]}?)" if name in nearest else name for name in unknown
    )
    meant = [*dict.fromkeys(nearest.get(name, name) for name in names)]
    is_known = len(nearest) == len(unknown)
    text = f"No {CI_LABELS[issuer.provider]} job is started by {listed}."
    return text, meant if is_known else None


def _looser(binding: Binding, now: datetime) -> Advice | None:
    """For a binding that trusts more than all its tokens since 90 days had."""
    if binding.seen_since is None or now - binding.seen_since < WATCHED_FOR:
        return None
    since = (now - KEPT_FOR).date()
    seen: SeenClaims | None = binding.seen_claims
    events = values_since(seen, EVENT_NAME, since)
    body: dict[str, Any] = {}
    if events and (not binding.event_names or set(events) < set(binding.event_names)):
        body["event_names"] = [*events]
    conditions = binding.conditions or {}
    # Of those that a subject says already, a condition adds nothing.
    for claim in ("job_workflow_ref", "runner_environment", "ci_config_ref_uri"):
        values = values_since(seen, claim, since)
        if claim not in conditions and values and len(values) == 1:
            (body.setdefault("conditions", dict(conditions))[claim],) = values
    if not body:
        return None
    only = [f"were started by {' or '.join(body['event_names'])}"] if "event_names" in body else []
    added = body.get("conditions", {}).items() - conditions.items()
    only += [f"had {claim} {value}" for claim, value in sorted(added)]
    text = f"All its tokens since {max(since, binding.seen_since.date())} {' and '.join(only)}."
    return _advice(Kind.LOOSER_THAN_USE, binding, text, body, replaces=True)


def _advice(
    kind: Kind, binding: Binding, text: str, body: dict[str, Any] | None, *, replaces: bool
) -> Advice:
    if body is not None and binding.origin == Origin.PLATFORM_ADMIN:
        body = body | {"origin": Origin.ORG_ADMIN.value}  # the operator's is not for members
    return Advice(
        kind=kind,
        binding_id=binding.id,
        sub_pattern=binding.sub_pattern,
        text=text,
        replaces=replaces,
        body=body,
    )
