"""Exceptions from the cooldown: a member requests one with a reason, an owner decides."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, get_args

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.policy_envelopes import PolicyExceptionDecided, PolicyExceptionRequested
from analytics.model.rows import AuditContext
from service.core.errors import (
    ExceptionDecided,
    ExceptionExists,
    ExceptionNotFound,
    Invalid,
    TooManyExceptions,
    TooManyOwnExceptions,
)
from service.core.ids import new_id
from service.core.threads import in_thread
from service.packages.ecosystems import Ecosystem
from service.packages.names import parse_pattern
from service.packages.policy.changes import set_policy
from service.packages.policy.check import parse_check
from service.packages.policy.document import REASON_MAX
from service.packages.policy.model import NO_POLICY, InstallPolicy, PackagePattern, ReleaseRule
from service.packages.policy.parsing import check_line, decode_document, parse_policy, to_json
from service.packages.policy.repository import find_revision
from service.packages.release import Release
from service.packages.versions import (
    InvalidRange,
    InvalidVersion,
    parse_range,
    parse_version,
)
from service.store.store import UnitOfWork
from service.store.tables import Organisation, PolicyException

OPEN_MAX: Final = 200
"""Open requests of one organisation, at most; SPEC sets no number."""
OPEN_OF_MEMBER_MAX: Final = 20
"""Of which one member may have so many, so that no member's requests keep out the others'."""
LISTED_MAX: Final = 500

Decided = Literal["allowed", "declined"]

OPEN: Final = "open"
ALLOWED: Final = "allowed"
STATES: Final = (OPEN, *get_args(Decided))
_DECISIONS: Final[dict[str, Decided]] = {"allow": "allowed", "decline": "declined"}


def parse_request(body: dict[str, Any]) -> tuple[Release, str]:
    """The release and the reason in a request's body. Raises Invalid."""
    release = parse_check({name: value for name, value in body.items() if name != "reason"})
    if release.published_at is not None:
        raise Invalid("unknown field: published_at", field="published_at")
    try:
        parse_version(release.ecosystem, release.version)
    except InvalidVersion as error:
        raise Invalid(f"version: {error}", field="version") from error
    # Else it could be requested and never allowed.
    _check_range(release.ecosystem, release.version)
    _package_of(release.ecosystem, release.name)
    return release, _reason(body)


def parse_decision(body: dict[str, Any]) -> tuple[Decided, str | None]:
    """The new state and the reason, from the body of a decision. Raises Invalid."""
    for field in body:
        if field not in {"decision", "reason"}:
            raise Invalid(f"unknown field: {field[:64]}", field=field[:64])
    decision = body.get("decision")
    if not isinstance(decision, str) or decision not in _DECISIONS:
        raise Invalid(f"decision must be one of {', '.join(_DECISIONS)}", field="decision")
    reason = None if body.get("reason") is None else _reason(body)
    return _DECISIONS[decision], reason


def _reason(body: dict[str, Any]) -> str:
    reason = body.get("reason")
    if not isinstance(reason, str):
        raise Invalid("reason is required (string)", field="reason")
    return check_line("reason", reason, REASON_MAX)


async def _count(session: AsyncSession, exceptions: Select[PolicyException]) -> int:
    return await session.scalar(select(func.count()).select_from(exceptions.subquery())) or 0


async def request_exception(
    work: UnitOfWork, org: Organisation, release: Release, reason: str, by: AuditContext
) -> PolicyException:
    """Ask for a release to be let through.

    Raises ExceptionExists, TooManyExceptions, TooManyOwnExceptions.
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
    """Raise ExceptionExists, TooManyExceptions or TooManyOwnExceptions."""
    mine = select(PolicyException).where(
        PolicyException.tenant_id == org.id, PolicyException.state == OPEN
    )
    same = mine.where(
        PolicyException.ecosystem == str(release.ecosystem),
        PolicyException.package == release.name,
        PolicyException.version == release.version,
    )
    if await session.scalar(same.limit(1)) is not None:
        raise ExceptionExists
    own = mine.where(PolicyException.requested_by == member)
    if await _count(session, own) >= OPEN_OF_MEMBER_MAX:
        raise TooManyOwnExceptions(limit=str(OPEN_OF_MEMBER_MAX))
    if await _count(session, mine) >= OPEN_MAX:
        raise TooManyExceptions(limit=str(OPEN_MAX))


async def list_exceptions(
    session: AsyncSession, tenant_id: str, state: str | None, limit: int
) -> Sequence[PolicyException]:
    """Up to `limit` of the organisation's requests in `state` (None: any), newest first."""
    mine = select(PolicyException).where(PolicyException.tenant_id == tenant_id)
    if state is not None:
        mine = mine.where(PolicyException.state == state)
    newest = mine.order_by(PolicyException.requested_at.desc(), PolicyException.id).limit(limit)
    return (await session.scalars(newest)).all()


async def decide_exception(
    work: UnitOfWork,
    org: Organisation,
    exception_id: str,
    state: Decided,
    reason: str | None,
    by: AuditContext,
) -> PolicyException:
    """Allow a request, which adds a rule to the policy, or decline it.

    Raises ExceptionNotFound, ExceptionDecided, and Invalid if the policy has no room for the rule.
    """
    asked = await work.session.scalar(
        select(PolicyException).where(
            PolicyException.tenant_id == org.id, PolicyException.id == exception_id
        )
    )
    if asked is None:
        raise ExceptionNotFound
    # Under the write lock: of two decisions at the same time, only the first one counts.
    if asked.state != OPEN:
        raise ExceptionDecided(value=asked.state)
    if state == ALLOWED:
        current = await find_revision(work.session, org.id)
        policy = NO_POLICY if current is None else decode_document(current.document)
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
