"""Exceptions from the cooldown: a member requests one with a reason, an owner decides."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.ecosystems import Ecosystem
from analytics.model.policy_envelopes import PolicyExceptionDecided, PolicyExceptionRequested
from analytics.model.rows import AuditContext
from service.access.roles import Capability
from service.core.errors import Conflict, Invalid, NotFound, parse_both
from service.core.ids import new_id
from service.core.threads import in_thread
from service.packages.ecosystem import InvalidRange, InvalidVersion, Release
from service.packages.names import parse_pattern
from service.packages.policy.check import PackageSpec, parse_release
from service.packages.policy.document import (
    REASON_MAX,
    check_line,
    parse_policy,
    to_json,
)
from service.packages.policy.model import InstallPolicy, PackagePattern, ReleaseRule
from service.packages.policy.policy_api import PolicyServices
from service.packages.policy.repository import find_revision, policy_of, set_policy
from service.packages.versions import parse_range, parse_version
from service.store.store import UnitOfWork
from service.store.tables import Organisation, PolicyException
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, PageCursor, Parsed, Request, TimestampMs
from service.web.paging import ListCursors, newest_page
from service.web.refusals import INVALID_CURSOR

EXCEPTION_NOT_FOUND: Final = NotFound.of("Exception not found for this org")
EXCEPTION_EXISTS: Final = Conflict.of(
    "an exception for this release was requested already, and waits for a decision"
)
EXCEPTION_DECIDED: Final = Conflict.of(
    "this request is {state} already: request a new one", state="declined"
)

OPEN_MAX: Final = 200
"""Open requests of one organisation, at most; SPEC sets no number."""
TOO_MANY_EXCEPTIONS: Final = Conflict.of(
    "limit of {limit} open requests reached: decide some first", limit=OPEN_MAX
)
OPEN_OF_MEMBER_MAX: Final = 20
"""Of which one member may have so many, so that no member's requests keep out the others'."""
TOO_MANY_OWN_EXCEPTIONS: Final = Conflict.of(
    "limit of {limit} open requests of one member reached: wait for a decision on yours",
    limit=OPEN_OF_MEMBER_MAX,
)
LISTED_MAX: Final = 500

Decided = Literal["allowed", "declined"]
ExceptionState = Literal["open", "allowed", "declined"]

OPEN: Final = "open"
ALLOWED: Final = "allowed"
_DECISIONS: Final[dict[str, Decided]] = {"allow": "allowed", "decline": "declined"}

resource = Resource("policy_exceptions", "/policy/exceptions", Tag.POLICY, PolicyServices)

ExceptionReason = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": REASON_MAX})]


class ExceptionRequest(Request):
    """A release that should be let through before its cooldown ends, and why."""

    ecosystem: Ecosystem
    package: PackageSpec
    reason: ExceptionReason
    version: str | None = None


class ExceptionDecision(Request):
    """What becomes of a request."""

    decision: Literal["allow", "decline"]
    reason: ExceptionReason | None = None


class ExceptionQuery(Request):
    """Which requests."""

    state: Annotated[ExceptionState, Meta(description="Only those in this state.")] | None = None
    limit: Annotated[
        int, Meta(ge=1, le=LISTED_MAX, description=f"At most so many; default {LISTED_MAX}.")
    ] = LISTED_MAX
    cursor: PageCursor | None = None


class ExceptionEntry(Answer):
    """A request for an exception, and its decision."""

    id: str
    ecosystem: str
    package: str
    version: str
    reason: str
    requested_by: str
    requested_at: TimestampMs
    state: ExceptionState
    decided_by: str | None
    decided_at: TimestampMs | None
    decided_reason: str | None


class ExceptionList(Answer):
    """Requests for exceptions, newest first. `next_cursor` is null on the last page."""

    org: str
    exceptions: list[ExceptionEntry]
    next_cursor: str | None


def parse_request(given: dict[str, Any]) -> tuple[Release, str]:
    """The release and the reason in a request's body. Raises Invalid."""
    # Apart, so that a form shows what is wrong with either at once.
    return parse_both(partial(_asked_release, given), partial(_reason, given))


def parse_decision(given: dict[str, Any]) -> tuple[Decided, str | None]:
    """The new state and the reason, from the body of a decision. Raises Invalid."""
    body = ExceptionDecision.parse(given)
    reason = None if body.reason is None else check_line("reason", body.reason, REASON_MAX)
    return _DECISIONS[body.decision], reason


def _reason(given: dict[str, Any]) -> str:
    text = given.get("reason")
    # One that is no text is a fault of the request's fields.
    return check_line("reason", text, REASON_MAX) if isinstance(text, str) else ""


def _asked_release(given: dict[str, Any]) -> Release:
    body = ExceptionRequest.parse(given)
    release = parse_release(body.ecosystem, body.package, body.version, None)
    try:
        parse_version(release.ecosystem, release.version)
    except InvalidVersion as error:
        raise Invalid(f"version: {error}", field="version") from error
    # Else it could be requested and never allowed.
    _check_range(release.ecosystem, release.version)
    _package_of(release.ecosystem, release.name)
    return release


@resource.get(
    "list_exceptions",
    needs=Capability.POLICY_READ,
    query=ExceptionQuery,
    returns=ExceptionList,
    refuses=[INVALID_CURSOR],
)
async def exceptions(call: Call[PolicyServices], query: ExceptionQuery) -> ExceptionList:
    """List requests for exceptions, a page at a time, newest first."""
    cursors = ListCursors.of(call.services.settings, "exceptions", call.org.id, query.state or "")
    async with call.read() as session:
        listed, next_cursor = await newest_page(
            session,
            _of_state(call.org.id, query.state),
            (PolicyException.requested_at, PolicyException.id),
            cursors,
            query.limit,
            query.cursor,
        )
    return ExceptionList(
        org=call.org.slug,
        exceptions=list(map(ExceptionEntry.from_row, listed)),
        next_cursor=next_cursor,
    )


@resource.post(
    "request_exception",
    needs=None,
    body=Parsed(ExceptionRequest, parse_request),
    example={
        "ecosystem": "pypi",
        "package": "requests==2.32.3",
        "reason": "fixes CVE-2026-1: needed today",
    },
    returns=ExceptionEntry,
    status=201,
    refuses=[EXCEPTION_EXISTS, TOO_MANY_EXCEPTIONS, TOO_MANY_OWN_EXCEPTIONS],
)
async def ask(call: WriteCall[PolicyServices], asked: tuple[Release, str]) -> ExceptionEntry:
    """Ask for a release to be let through before its cooldown ends; every member may."""
    return ExceptionEntry.from_row(await request_exception(call.work, call.org, *asked, call.by))


@resource.post(
    "decide_exception",
    "/<exception_id>/decide",
    needs=Capability.POLICY_WRITE,
    body=Parsed(ExceptionDecision, parse_decision),
    example={"decision": "allow"},
    returns=ExceptionEntry,
    refuses=[EXCEPTION_NOT_FOUND, EXCEPTION_DECIDED],
)
async def decide(
    call: WriteCall[PolicyServices], decision: tuple[Decided, str | None], exception_id: str
) -> ExceptionEntry:
    """Allow a request, which adds an allow rule of its release to the policy, or decline it."""
    return ExceptionEntry.from_row(
        await decide_exception(call.work, call.org, exception_id, *decision, call.by)
    )


async def _count(session: AsyncSession, exceptions: Select[PolicyException]) -> int:
    return await session.scalar(select(func.count()).select_from(exceptions.subquery())) or 0


async def request_exception(
    work: UnitOfWork, org: Organisation, release: Release, reason: str, by: AuditContext
) -> PolicyException:
    """Ask for a release to be let through.

    Raises EXCEPTION_EXISTS, TOO_MANY_EXCEPTIONS, TOO_MANY_OWN_EXCEPTIONS.
    """
    await _check_room(work.session, org, release, by.actor)
    asked = PolicyException(
        id=new_id("pexc"),
        tenant_id=org.id,
        ecosystem=str(release.ecosystem),
        package=release.name,
        version=release.version,
        reason=reason,
        requested_by=by.actor,
        requested_at=work.now,
        state=OPEN,
    )
    work.session.add(asked)
    await work.session.flush()
    work.record(
        org.id,
        PolicyExceptionRequested(
            exception_id=asked.id,
            ecosystem=asked.ecosystem,
            package=asked.package,
            version=asked.version,
            reason=reason,
        ),
        by,
        subject=asked.id,
    )
    return asked


async def _check_room(
    session: AsyncSession, org: Organisation, release: Release, member: str
) -> None:
    """Raise EXCEPTION_EXISTS, TOO_MANY_EXCEPTIONS or TOO_MANY_OWN_EXCEPTIONS."""
    mine = select(PolicyException).where(
        PolicyException.tenant_id == org.id, PolicyException.state == OPEN
    )
    same = mine.where(
        PolicyException.ecosystem == str(release.ecosystem),
        PolicyException.package == release.name,
        PolicyException.version == release.version,
    )
    if await session.scalar(same.limit(1)) is not None:
        raise EXCEPTION_EXISTS
    own = mine.where(PolicyException.requested_by == member)
    if await _count(session, own) >= OPEN_OF_MEMBER_MAX:
        raise TOO_MANY_OWN_EXCEPTIONS(limit=OPEN_OF_MEMBER_MAX)
    if await _count(session, mine) >= OPEN_MAX:
        raise TOO_MANY_EXCEPTIONS(limit=OPEN_MAX)


async def list_exceptions(
    session: AsyncSession, tenant_id: str, state: str | None, limit: int, **of: str | None
) -> Sequence[PolicyException]:
    """Up to `limit` of the organisation's requests in `state` (None: any), newest first.

    Only those whose columns have the values in `of`; None is any.
    """
    newest_first = _of_state(tenant_id, state).order_by(
        PolicyException.requested_at.desc(), PolicyException.id.desc()
    )
    chosen = {name: value for name, value in of.items() if value is not None}
    newest_first = newest_first.filter_by(**chosen)
    return (await session.scalars(newest_first.limit(limit))).all()


def _of_state(tenant_id: str, state: str | None) -> Select[PolicyException]:
    mine = select(PolicyException).where(PolicyException.tenant_id == tenant_id)
    return mine if state is None else mine.where(PolicyException.state == state)


async def decide_exception(
    work: UnitOfWork,
    org: Organisation,
    exception_id: str,
    state: Decided,
    reason: str | None,
    by: AuditContext,
) -> PolicyException:
    """Allow a request, which adds a rule to the policy, or decline it.

    Raises EXCEPTION_NOT_FOUND, EXCEPTION_DECIDED, and Invalid if the policy has no room for the
    rule.
    """
    asked = await work.session.scalar(
        select(PolicyException).where(
            PolicyException.tenant_id == org.id, PolicyException.id == exception_id
        )
    )
    if asked is None:
        raise EXCEPTION_NOT_FOUND
    # Under the write lock: of two decisions at the same time, only the first one counts.
    if asked.state != OPEN:
        raise EXCEPTION_DECIDED(state=asked.state)
    if state == ALLOWED:
        policy = policy_of(await find_revision(work.session, org.id))
        await set_policy(work, org, await in_thread(_with_rule, policy, asked), by)
    asked.state = state
    asked.decided_by = by.actor
    asked.decided_at = work.now
    asked.decided_reason = reason
    work.record(
        org.id,
        PolicyExceptionDecided(
            exception_id=asked.id,
            state=state,
            ecosystem=asked.ecosystem,
            package=asked.package,
            version=asked.version,
            reason=reason,
        ),
        by,
        subject=asked.id,
    )
    return asked


def _check_range(ecosystem: Ecosystem, version: str) -> None:
    """Raise Invalid for a spelling that rules do not have."""
    try:
        parse_range(ecosystem, version)
    except InvalidRange as error:
        raise Invalid(
            "version must be spelled as in a rule, such as 1.2.3 or 1.2.3-rc.1", field="version"
        ) from error


def _package_of(ecosystem: Ecosystem, name: str) -> PackagePattern:
    """The pattern of this package alone. Raises Invalid for a name that rules take for several."""
    if "*" in name:  # old names of npm have it
        raise Invalid("package must not have `*`, which stands for any name", field="package")
    return PackagePattern(ecosystem, parse_pattern(ecosystem, name))


def _with_rule(policy: InstallPolicy, asked: PolicyException) -> InstallPolicy:
    """`policy` with an allow rule for the release, under the id of the request. Raises Invalid."""
    ecosystem = Ecosystem(asked.ecosystem)
    _check_range(ecosystem, asked.version)
    rule = ReleaseRule(
        rule_id=asked.id,
        packages=_package_of(ecosystem, asked.package),
        texts=(asked.version,),
        reason=asked.reason,
    )
    # Parsed again, because the limits of a policy apply to this way to change it, too.
    return parse_policy(to_json(replace(policy, allow=(*policy.allow, rule))))
