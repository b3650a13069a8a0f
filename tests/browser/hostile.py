"""An organisation in which every text that anyone can choose tries to do harm."""

from datetime import datetime
from typing import Any, Final

import msgspec

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.ecosystems import Ecosystem
from analytics.model.envelopes import InstallAllowed
from analytics.model.filters import parse_query
from analytics.model.instants import format_us
from analytics.model.policy_envelopes import InstallsMatched
from analytics.model.rows import AuditContext, VerdictSource, audit_row
from service.access.callers import RequestOrigin, admin_token_caller
from service.access.sessions import issue_session
from service.app.composition import Services
from service.core.clock import utc_now
from service.core.metrics import Metrics
from service.orgs.api_keys import issue_api_key
from service.orgs.members import add_member
from service.orgs.projects import create_project
from service.orgs.teams import create_team, set_team_admin
from service.packages.ecosystem import Release
from service.packages.policy.document import parse_policy
from service.packages.policy.exceptions import request_exception
from service.packages.policy.repository import set_policy
from service.store.journal import append
from service.store.organisations import get_member, get_org
from service.store.store import UnitOfWork
from service.store.tables import Member, Organisation, Passkey
from service.trust.bindings.changes import add_binding, revoke_binding
from service.trust.rejected.subjects import RejectedSubjects
from tests.conftest import BY_OPERATOR, PROXY_SCOPES, binding_body
from tests.service.trust.rejected.notes import rejection

MARKUP: Final = """"'><img/src=x/onerror=alert(1)><script>alert(1)</script></td>{{7**9}}"""
RIGHT_TO_LEFT: Final = "مرحبا/بالعالم:فرع"
EMOJI: Final = "🦊👩🏽" * 12
LONG: Final = "repo:acme/" + "x" * 1014
TEXTS: Final = (MARKUP, RIGHT_TO_LEFT, EMOJI)
"""What a name may hold: it runs, it turns around, it has no width that anyone could guess."""

_OWNER: Final = "owner@a.example"


async def fill(services: Services) -> None:
    """Make it of acme, which has an owner. Nothing here is refused, so all of it is shown."""
    async with services.store.write() as work:
        acme = await get_org(work.session, "acme")
        owner = await get_member(work.session, acme, _OWNER)
        await _add_people(work, acme, owner)
        await _add_trust(work, acme, services)
        await _add_policy(work, acme)
        await append(work.session, acme.id, _rows(), now=work.now)
        for text in TEXTS:
            work.record(acme.id, _matched(text, work.now), BY_OPERATOR)
    notes = RejectedSubjects(services.store, Metrics())
    for text in (*TEXTS, LONG):
        for is_verified in (True, False):
            told = dict.fromkeys(("sub", "event_name", "owner", "request_id"), text)
            noted = rejection(acme.id, **told, is_verified=is_verified, at=utc_now())
            notes.record(noted)
    await notes.flush()
    for text in TEXTS:
        await _export(services, acme, text)


def _matched(text: str, now: datetime) -> InstallsMatched:
    return InstallsMatched(
        rule_id=text,
        source="operator",
        packages=[f"npm:{text}", "pypi:pad"],
        installs=1,
        runs=1,
        first_at=format_us(now),
        last_at=format_us(now),
        number=1,
    )


async def _export(services: Services, acme: Organisation, text: str) -> None:
    export = await services.exporter.prepare(
        acme,
        parse_query({"package": [text]}),
        FileEncoding(ExportFormat.CSV),
        BY_OPERATOR,
        utc_now(),
    )
    async for _ in await services.exporter.stream(export):
        pass
    await services.exporter.drain()


async def _add_people(work: UnitOfWork, acme: Organisation, owner: Member) -> None:
    agent = RequestOrigin(VerdictSource.DASHBOARD, user_agent=MARKUP, source_ip="203.0.113.9")
    await issue_session(work.session, owner, work.now, agent)
    for number, text in enumerate(TEXTS):
        project = await create_project(work, acme, text, BY_OPERATOR)
        team = await create_team(work, acme, text, BY_OPERATOR)
        email = f"{text[:60]}@{text}"
        member = await add_member(work, acme, email, "member", "github", BY_OPERATOR)
        await set_team_admin(work, team, member, BY_OPERATOR, is_admin=True)
        await issue_api_key(work, acme, text, project, BY_OPERATOR, scopes=PROXY_SCOPES)
        passkey = Passkey(
            id=f"passkey-{number}",
            member_id=owner.id,
            name=text,
            public_key=b"",
            transports=[],
            sign_count=0,
            use_count=0,
            added_at=work.now,
        )
        work.session.add(passkey)


async def _add_trust(work: UnitOfWork, acme: Organisation, services: Services) -> None:
    by = admin_token_caller(RequestOrigin(VerdictSource.ADMIN_API))
    for text in (*TEXTS, LONG):
        events = [MARKUP[:64]]
        body = binding_body(sub_pattern=text, event_names=events)
        await add_binding(work, acme, body, by, services.issuers)
        other = await add_binding(work, acme, body | {"repository_id": "2"}, by, services.issuers)
        await revoke_binding(work, acme, other.id, text, by)


async def _add_policy(work: UnitOfWork, acme: Organisation) -> None:
    rules = [
        {"ecosystem": "npm", "package": f"p{number}", "id": text, "reason": text}
        for number, text in enumerate(TEXTS)
    ]
    first_party = [{"ecosystem": "pypi", "package": "x", "registry": text} for text in TEXTS]
    policy = parse_policy({"deny": rules, "first_party": first_party})
    await set_policy(work, acme, policy, BY_OPERATOR)
    for number, text in enumerate(TEXTS):
        release = Release(Ecosystem.NPM, f"p{number}", "1.0.0")
        await request_exception(work, acme, release, text, BY_OPERATOR)


def _rows() -> list[Any]:
    """Rows as an import may bring them: anything stands anywhere."""
    audit_context = AuditContext(
        actor="key_1", actor_source="api_key", verdict_source=VerdictSource.PROXY
    )
    plain = audit_row(InstallAllowed(), audit_context, utc_now())
    columns = (
        "package_name",
        "version",
        "decision",
        "decision_reason",
        "verdict_source",
        "actor",
        "subject",
        "oidc_binding_id",
        "request_id",
        "source_ip",
        "ecosystem",
        "repository_id",
        "run_id",
        "token_id",
        "file_name",
        "file_sha256",
        "client",
    )
    payload = {MARKUP: LONG, "ci": {MARKUP: MARKUP}}
    return [
        msgspec.structs.replace(
            plain,
            **dict.fromkeys(columns, text),
            actor_source=f"oidc_{text}",
            payload=msgspec.json.encode(payload).decode(),
        )
        for text in (*TEXTS, LONG)
    ]
