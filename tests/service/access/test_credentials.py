"""Every credential at every endpoint of the API and the dashboard, in every organisation."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import pytest

from service.access.refusals import (
    FOREIGN_FORM,
    KEY_CANNOT_CHANGE,
    KEY_OF_ANOTHER_ORG,
    LACKS_CAPABILITY,
    NOT_FOR_KEYS,
    NOT_FOR_SESSIONS,
    NOT_MEMBER,
    OPERATOR_ONLY,
)
from service.access.sessions import revoke_sessions
from service.audit.alerts.firings import Firing
from service.audit.alerts.rules import AlertRule
from service.audit.alerts.watcher import alert_of
from service.core.errors import OrgNotFound, Unauthenticated
from service.core.ids import new_id
from service.orgs.api_keys import issue_api_key
from service.orgs.members import add_member, issue_cookie, remove_member
from service.packages.install_tokens.machine_tokens import MEMBER_MISSING
from service.packages.refusals import CI_TOKEN_REFUSED
from service.store.tables import AlertRuleEntry, Member
from service.trust.bindings.sync_api import PLAN_CHANGED
from tests.budgets import budget
from tests.conftest import (
    BY_OPERATOR,
    World,
    binding_body,
    bindings_path,
    grant,
    refused,
    unscoped_key,
)
from tests.service.audit.evidence.proving import take_in
from tests.service.packages.attestations.rows import admit

EVERYTHING: Final = frozenset(
    {
        "oidc:r",
        "oidc:w",
        "audit:r",
        "audit:export",
        "policy:r",
        "policy:w",
        "stream:r",
        "stream:w",
        "alert:w",
        "org:admin",
    }
)
SENDING: Final = "sending audit rows"
"""No capability: machines send rows; their owner does not matter."""
INSTALLING: Final = "getting an install token"
"""No capability of a member: keys install, and only for a CI job."""
BELONGING: Final = "belonging to the organisation"
"""No capability: every member may, and the operator."""
AUDIT: Final = frozenset({"audit:r", "audit:export"})
AUDITING: Final = AUDIT | {"alert:w"}
NOTHING: Final = frozenset()

EVERY: Final = budget(16, 1)

Headers = dict[str, str]


@dataclass(frozen=True)
class Request:
    """A good request to one endpoint: what it needs, and the status it is answered with."""

    capability: str
    good: int = 200
    query: dict[str, str] | None = None
    has_body: bool = False
    has_repository: bool = False
    """The body names a repository, which has a binding made for this request."""
    body: dict[str, Any] | None = None
    items: list[dict[str, str]] | None = None
    makes: str = ""
    """What the body is of, see NEW."""
    is_change: bool = False
    """Not for API keys, which only read."""
    has_if_match: bool = False
    names_member: bool = False
    """The body names a member, who is invited for this request."""
    is_of_members: bool = False
    """Members may do it for themselves; for others, as here, it needs the capability."""

    is_endless: bool = False
    is_form: bool = False
    """Sent empty: an allowed caller gets its page, or hears that the form was on none."""

    form: dict[str, str] | None = None
    """What is sent instead of an empty form."""

    refusal: str = ""
    """Of an endpoint that refuses whom it lets in, as nothing was prepared: the text."""

    @property
    def answer(self) -> tuple[int, str]:
        """What who may send it gets."""
        return self.good, self.refusal


NO_CHANGE: Final = {"kind": "mode", "mode": "enforce", "replaces": "0"}
"""The form of the policy page that changes nothing while there is no policy."""

REQUESTS: Final = {
    "bindings.list_": Request("oidc:r"),
    "bindings.create": Request("oidc:w", good=201, has_body=True),
    "bindings.show": Request("oidc:r"),
    "bindings.revoke": Request("oidc:w"),
    "bindings.replace": Request("oidc:w", good=201, has_body=True),
    "bindings.revoke_all": Request("oidc:w", has_repository=True),
    "bindings_sync.plan": Request("oidc:r", body={"bindings": []}),
    "bindings_sync.sync": Request(
        "oidc:w",
        good=409,
        body={"bindings": [], "plan": ""},
        is_change=True,
        refusal=PLAN_CHANGED.text,
    ),
    "explain.explain": Request("oidc:r", body={"claims": {}}),
    "rejected.rejected": Request("oidc:r"),
    "policy_exceptions.exceptions": Request("policy:r"),
    "policy_exceptions.ask": Request(BELONGING, good=201, makes="exception", is_change=True),
    "policy_exceptions.decide": Request("policy:w", body={"decision": "decline"}),
    "policy.show": Request("policy:r"),
    "policy.replace": Request("policy:w", body={}, has_if_match=True),
    "policy.check": Request("policy:r", body={"ecosystem": "npm", "package": "left-pad@1.3.0"}),
    "policy.preview": Request("policy:r", body={}),
    "audit.page": Request("audit:r"),
    "audit.plan": Request("audit:r"),
    "audit.summary": Request("audit:r"),
    "audit.entry": Request("audit:r"),
    "audit.accepted": Request("audit:r"),
    "evidence.checkpoint": Request("audit:r"),
    "evidence.proof": Request("audit:r"),
    "evidence.consistency": Request("audit:r", query={"old": "0"}),
    "evidence.tile": Request("audit:r"),
    "evidence_report.evidence_report": Request("audit:r"),
    "evidence_report.review": Request(
        "audit:r",
        good=201,
        body={"since": "2026-01-01", "until": "2026-01-02"},
        is_change=True,
    ),
    "audit.groups": Request("audit:r", query={"by": "event"}),
    "audit.unknown": Request("audit:r"),
    "audit_sql.run": Request("audit:r", body={"sql": "SELECT 1"}),
    "dashboard_sql.sql_page": Request("audit:r"),
    "dashboard_sql.ask": Request("audit:r", is_form=True, form={"sql": "SELECT 1"}),
    "dashboard_sql.save": Request("audit:r", is_form=True),
    "dashboard_sql.delete": Request("audit:r", is_form=True),
    "audit.reading": Request("audit:r", query={"q": "event-stream"}),
    "organisation.show": Request("org:admin"),
    "domains.list_": Request("org:admin"),
    "members.list_": Request("org:admin"),
    "members.invite": Request("org:admin", good=201, makes="member"),
    "members.give_role": Request("org:admin", body={"role": "member"}),
    "members.remove": Request("org:admin"),
    "members.sign_out": Request("org:admin"),
    "members.remove_passkeys": Request("org:admin"),
    "members.list_member_sessions": Request("org:admin"),
    "members.issue_link": Request("org:admin", good=201),
    "teams.list_": Request("org:admin"),
    "teams.create": Request("org:admin", good=201, makes="name"),
    "teams.appoint": Request("org:admin", names_member=True),
    "teams.dismiss": Request("org:admin"),
    "projects.list_": Request("org:admin"),
    "projects.create": Request("org:admin", good=201, makes="name"),
    "roles.list_": Request("org:admin"),
    "roles.grant": Request("org:admin", body={"capabilities": []}),
    "api_keys.list_": Request("org:admin"),
    "api_keys.issue": Request("org:admin", good=201, body={"name": "k", "scopes": ["audit:r"]}),
    "api_keys.rotate": Request("org:admin", good=201, body={"overlap": "1h"}),
    "api_keys.revoke": Request("org:admin"),
    "machine_tokens.list_": Request("org:admin"),
    "machine_tokens.issue": Request(
        "org:admin", good=201, body={"name": "lab"}, names_member=True, is_of_members=True
    ),
    "machine_tokens.revoke": Request("org:admin", is_of_members=True),
    "searches.list_": Request("audit:r"),
    "streams.list_": Request("stream:r"),
    "streams.create": Request("stream:w", good=201, makes="stream"),
    "streams.change": Request("stream:w", body={"state": "paused"}),
    "streams.delete": Request("stream:w"),
    "streams.test": Request("stream:w"),
    "searches.create": Request("audit:r", good=201, makes="search", is_change=True),
    "searches.delete": Request("audit:r", is_change=True),
    "alerts.rules": Request("audit:r"),
    "alerts.create": Request("stream:w", good=201, makes="rule"),
    "alerts.change": Request("stream:w", makes="rule"),
    "alerts.delete": Request("stream:w"),
    "alerts.backtest": Request(
        "audit:r", body={"rule": {"name": "x", "query": "decision=BLOCKED"}, "days": 1}
    ),
    "alerts.alerts": Request("audit:r"),
    "alerts.handle": Request("alert:w", body={"state": "closed"}, is_change=True),
    "dashboard_streams.streams_page": Request("stream:r"),
    "dashboard_streams.create_stream": Request("stream:w", is_form=True, makes="stream"),
    "dashboard_streams.change_stream": Request("stream:w", is_form=True, form={"state": "paused"}),
    "dashboard_streams.delete_stream": Request("stream:w", is_form=True),
    "dashboard_streams.test_stream": Request("stream:w", is_form=True),
    "dashboard_alerts.alerts_page": Request("audit:r"),
    "dashboard_alerts.create_rule": Request("stream:w", is_form=True, makes="rule"),
    "dashboard_alerts.delete_rule": Request("stream:w", is_form=True),
    "dashboard_alerts.handle_alert": Request("alert:w", is_form=True, form={"state": "closed"}),
    "dashboard_investigate.row_page": Request("audit:r"),
    "dashboard_investigate.row_details": Request("audit:r"),
    "dashboard_investigate.proof_page": Request("audit:r"),
    "dashboard_investigate.package_page": Request("audit:r", query={"name": "left-pad"}),
    "dashboard_investigate.run_page": Request("audit:r", query={"run_id": "1"}),
    "dashboard_investigate.save": Request("audit:r", is_form=True, makes="search"),
    "dashboard_investigate.delete": Request("audit:r", is_form=True),
    "ingest.events": Request(
        SENDING, items=[{"event": "install_allowed", "packageName": "left-pad"}]
    ),
    "install_tokens.issue": Request(INSTALLING),
    "audit_export.export": Request("audit:export", query={"format": "json"}),
    "audit_export.dashboard_export": Request("audit:export", query={"format": "json"}),
    **{f"exports.{one}": Request("audit:r") for one in ("exports", "show_export", "receipt")},
    **{
        f"dashboard_exports.{one}": Request("audit:r")
        for one in ("exports_page", "export_page", "export_progress")
    },
    **{
        f"dashboard_reports.{one}_page": Request("audit:r")
        for one in ("reports", "access", "evidence")
    },
    "dashboard_reports.review": Request("audit:r", is_form=True),
    "reports.access_report": Request("audit:r"),
    "trust_map.trust_map": Request("oidc:r"),
    "binding_advice.binding_advice": Request("oidc:r"),
    "dashboard_advice.advice_page": Request("oidc:r"),
    "dashboard_trust_map.map_page": Request("oidc:r"),
    "dashboard_exports.offer_page": Request("audit:export"),
    "dashboard.overview_page": Request(BELONGING),
    "dashboard_find.find_page": Request(BELONGING),
    "dashboard.audit_page": Request("audit:r"),
    "dashboard.filter_values": Request("audit:r", query={"name": "package", "prefix": "left"}),
    "dashboard_live.live_rows": Request("audit:r", is_endless=True),
    **{
        f"dashboard_{page}.{page}_page": Request("oidc:r")
        for page in ("bindings", "explain", "binding", "rejected")
    },
    "dashboard_create_binding.new_page": Request("oidc:w"),
    "dashboard_create_binding.create": Request("oidc:w", is_form=True),
    "dashboard_explain.explain": Request("oidc:r", is_form=True),
    "dashboard_binding.revoke": Request("oidc:w", is_form=True),
    "dashboard_create_binding.replace_page": Request("oidc:w"),
    "dashboard_create_binding.replace": Request("oidc:w", is_form=True),
    "dashboard_repository.repository_page": Request("oidc:w"),
    "dashboard_repository.revoke_repository_form": Request("oidc:w", is_form=True),
    **{
        f"dashboard_{page}.{page}_page": Request("org:admin")
        for page in ("members", "teams", "projects", "keys", "roles")
    },
    **{
        f"dashboard_{form}": Request("org:admin", is_form=True)
        for form in (
            "members.invite",
            "members.give_role",
            "members.remove_member",
            "members.sign_member_out",
            "members.remove_passkeys",
            "members.issue_link",
            "teams.create_team",
            "teams.appoint_team_admin",
            "teams.dismiss_team_admin",
            "projects.create_project",
            "keys.issue_key",
            "keys.rotate_key",
            "keys.revoke_key",
            "roles.grant",
        )
    },
    "dashboard_policy.policy_page": Request("policy:r"),
    "dashboard_policy_check.check_page": Request("policy:r"),
    **{
        f"dashboard_policy.{form}": Request("policy:w", is_form=True, form=NO_CHANGE)
        for form in ("preview", "save")
    },
    "dashboard_proxy.proxy_page": Request("policy:r"),
    "dashboard_exceptions.exceptions_page": Request("policy:r"),
    "dashboard_exceptions.new_exception": Request(BELONGING),
    "dashboard_exceptions.ask_exception": Request(BELONGING, is_form=True),
    "dashboard_keys.revoke_machine_token": Request(BELONGING, is_form=True),
    "dashboard_exceptions.decide_form": Request("policy:w", is_form=True),
    **{f"installs.{one}": Request("audit:r") for one in ("list_", "show")},
    "affected.show": Request("audit:r"),
    "dashboard_affected.affected_by_page": Request("audit:r"),
    "dashboard_affected.affected_page": Request("audit:r"),
}
"""A new endpoint is refused by the tests below until it has a row here, or in OPERATED."""

OPERATED: Final = {
    "artifacts.list_": 200,
    "artifacts.accept": 400,
    "blocklist.status": 200,
    "blocklist.import_": 400,
    "blocklist.remove": 404,
    "blocklist.check": 400,
    "declaration.apply": 400,
    "operator_bindings.list_": 400,
    "operator_bindings.revoke": 400,
    "organisations.list_": 200,
    "organisations.create": 400,
    "organisations.put_tier": 400,
    "organisations.put_hold": 400,
    "organisations.delete_hold": 404,
    "organisations.post_domain": 400,
    "organisations.post_session": 404,
}
"""The operator's endpoints, which are of no organisation, and what an empty request is answered."""


@dataclass(frozen=True)
class Row:
    """What a credential may do in acme and in the other organisation; None: it is none."""

    headers: Callable[[World], Awaitable[Headers]]
    in_acme: frozenset[str] | None
    in_other: frozenset[str] | None = NOTHING
    is_key: bool = False
    is_api_only: bool = False
    """Pages do not accept it; `on_pages` are what the request may do there all the same."""

    on_pages: frozenset[str] | None = None
    has_scopes: bool = False
    may_install: bool = False
    """With scopes: whether packages:install is one of them."""

    may_send: bool = False
    """The same for audit:ingest."""

    @property
    def is_operator(self) -> bool:
        """True for the admin token."""
        return self.in_acme == self.in_other == EVERYTHING


async def no_credential(world: World) -> Headers:
    return {}


async def wrong_admin_token(world: World) -> Headers:
    return {"x-service-admin-token": world.admin["x-service-admin-token"] + "x"}


async def empty_admin_token(world: World) -> Headers:
    return {"x-service-admin-token": ""}


async def admin_token(world: World) -> Headers:
    return world.admin


async def garbage_cookie(world: World) -> Headers:
    return {"cookie": "admin_session=garbage"}


async def empty_cookie(world: World) -> Headers:
    return {"cookie": "admin_session="}


async def api_key(world: World) -> Headers:
    async with world.services.store.write() as work:
        key, secret = unscoped_key(world.acme.id)
        work.session.add(key)
    return {"x-service-api-key": secret}


def key_with(*scopes: str):
    """An API key that reads."""

    async def headers(world: World) -> Headers:
        async with world.services.store.write() as work:
            _, secret = await issue_api_key(
                work, world.acme, "audit", None, BY_OPERATOR, scopes=scopes
            )
        return {"x-service-api-key": secret}

    return headers


async def reading_key_and_good_cookie(world: World) -> Headers:
    """The key decides alone."""
    return await key_with("audit:r")(world) | world.session("owner")


async def bearer(world: World) -> Headers:
    """A session's token, as a command line sends it."""
    return {"authorization": f"Bearer {world.cookies['owner']}"}


async def bad_bearer_and_good_cookie(world: World) -> Headers:
    """A wrong token must not act as the member."""
    return {"authorization": "Bearer csess_garbage"} | world.session("owner")


async def basic_and_good_cookie(world: World) -> Headers:
    """What a proxy in front asks for is not ours."""
    return {"authorization": "Basic YTpi"} | world.session("owner")


async def key_and_good_cookie(world: World) -> Headers:
    """Each opens what it opens: rows are sent with the key, all else is done by the member."""
    return await api_key(world) | world.session("owner")


async def idle_session(world: World) -> Headers:
    world.clock.advance(seconds=world.services.settings.session_idle_s)
    return world.session("owner")


async def worn_out_session(world: World) -> Headers:
    """In use all the time, and yet too old."""
    assert world.services.settings.session_absolute_s == (15 * 11 + 3) * 3600
    for _ in range(15):
        world.clock.advance(hours=11)
        answer = await world.client.get(bindings_path(), headers=world.session("owner"))
        assert answer.status_code == 200
    world.clock.advance(hours=3)
    return world.session("owner")


async def signed_out_session(world: World) -> Headers:
    async with world.services.store.write() as work:
        await revoke_sessions(work.session, world.members["owner"].id, work.now)
    return world.session("owner")


async def removed_member(world: World) -> Headers:
    """An owner until a moment ago."""
    async with world.services.store.write() as work:
        member = await add_member(
            work, world.acme, "second@acme.example", "owner", "github", BY_OPERATOR
        )
        cookie = await issue_cookie(work, world.acme, member, BY_OPERATOR)
    async with world.services.store.write() as work:
        gone = await work.session.get_one(Member, member.id)
        await remove_member(work, world.acme, gone, BY_OPERATOR)
    return {"cookie": f"admin_session={cookie}"}


def session_of(name: str, role: str | None = None, *granted: str):
    """The session of a member, after `role` was granted these capabilities."""

    async def headers(world: World) -> Headers:
        if role:
            await grant(world, role, *granted)
        return world.session(name)

    return headers


async def wrong_token_and_good_cookie(world: World) -> Headers:
    return await wrong_admin_token(world) | world.session("owner")


async def empty_token_and_good_cookie(world: World) -> Headers:
    return await empty_admin_token(world) | world.session("owner")


async def good_token_and_bad_cookie(world: World) -> Headers:
    return world.admin | await garbage_cookie(world)


async def cookie_under_another_name(world: World) -> Headers:
    return {"cookie": f"session={world.cookies['owner']}"}


async def token_as_a_bearer(world: World) -> Headers:
    return {"authorization": f"Bearer {world.admin['x-service-admin-token']}"}


TABLE: Final = {
    "no credential": Row(no_credential, None),
    "wrong admin token": Row(wrong_admin_token, None),
    "empty admin token": Row(empty_admin_token, None),
    "admin token": Row(admin_token, EVERYTHING, EVERYTHING),
    "admin token as a bearer": Row(token_as_a_bearer, None),
    "garbage cookie": Row(garbage_cookie, None),
    "empty cookie": Row(empty_cookie, None),
    "good cookie under another name": Row(cookie_under_another_name, None),
    "API key": Row(api_key, None, is_key=True),
    "API key and good cookie": Row(key_and_good_cookie, EVERYTHING, is_key=True),
    "API key that reads all": Row(
        key_with("audit:r", "audit:export", "oidc:r"),
        AUDIT | {"oidc:r"},
        is_key=True,
        is_api_only=True,
        has_scopes=True,
    ),
    "API key that installs": Row(
        key_with("packages:install"),
        NOTHING,
        is_key=True,
        is_api_only=True,
        has_scopes=True,
        may_install=True,
    ),
    "API key that sends rows": Row(
        key_with("audit:ingest"),
        NOTHING,
        is_key=True,
        is_api_only=True,
        has_scopes=True,
        may_send=True,
    ),
    "API key with oidc:r": Row(
        key_with("oidc:r"), frozenset({"oidc:r"}), is_key=True, is_api_only=True, has_scopes=True
    ),
    "API key with audit:r and good cookie": Row(
        reading_key_and_good_cookie,
        frozenset({"audit:r"}),
        is_key=True,
        is_api_only=True,
        on_pages=EVERYTHING,
        has_scopes=True,
    ),
    "session as a bearer": Row(bearer, EVERYTHING, is_api_only=True),
    "bad bearer and good cookie": Row(
        bad_bearer_and_good_cookie, None, is_api_only=True, on_pages=EVERYTHING
    ),
    "basic auth and good cookie": Row(basic_and_good_cookie, EVERYTHING),
    "session idle too long": Row(idle_session, None),
    "session open too long": Row(worn_out_session, None),
    "revoked session": Row(signed_out_session, None),
    "removed member": Row(removed_member, None),
    "owner": Row(session_of("owner"), EVERYTHING),
    "admin": Row(session_of("admin"), AUDITING),
    "admin with oidc:r and oidc:w": Row(
        session_of("admin", "admin", "oidc:r", "oidc:w"), AUDITING | {"oidc:r", "oidc:w"}
    ),
    "admin with org:admin": Row(
        session_of("admin", "admin", "org:admin"), AUDITING | {"org:admin"}
    ),
    "auditor": Row(session_of("auditor"), AUDITING),
    "auditor with oidc:r": Row(session_of("auditor", "auditor", "oidc:r"), AUDITING | {"oidc:r"}),
    "member": Row(session_of("member"), NOTHING),
    "member with oidc:r": Row(session_of("member", "member", "oidc:r"), frozenset({"oidc:r"})),
    "member with audit:r": Row(session_of("member", "member", "audit:r"), frozenset({"audit:r"})),
    "team admin": Row(session_of("team_admin"), NOTHING),
    "owner of the other organisation": Row(session_of("stranger"), NOTHING, EVERYTHING),
    "wrong admin token and good cookie": Row(wrong_token_and_good_cookie, None),
    "empty admin token and good cookie": Row(empty_token_and_good_cookie, None),
    "good admin token and bad cookie": Row(good_token_and_bad_cookie, EVERYTHING, EVERYTHING),
}

SLUGS: Final = ("acme", "other", "missing")
PROVED: Final = ("/checkpoint", "/proof", "/consistency", "/tile/<level>/<number>")
"""What is answered once rows are signed."""

OWN: Final = ("/admin/ui/sign-in", "/admin/ui/profile", "/api/v1/device", "/api/v1/session")
numbers = count(1)


def endpoints(world: World) -> dict[str, tuple[str, str]]:
    """Method and path pattern of every endpoint under the API and the dashboard.

    But for those of signing in, which are for people without a credential, and what is a member's
    own, which the tests of the profile and of device sign-in ask about. The page of components
    tells nothing of any organisation, nor does a browser's colour scheme.
    """
    return {
        rule.endpoint: (method, rule.rule)
        for rule in world.app.url_map.iter_rules()
        if rule.rule.startswith(("/api/v1/", "/admin/ui/"))
        and not rule.rule.startswith(OWN)
        and rule.endpoint not in {"home.components_page", "home.choose_theme"}
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }


async def stored_ids(world: World, slug: str, path: str) -> dict[str, str]:
    """What `path` names of the organisation: a live binding, an audit row, made for one request."""
    ids = {
        "<binding:binding_id>": "obind_0",
        "<row:audit_id>": "aud_0",
        "<export_id>": "exp_0",
        "<search_id>": "search_0",
        "<stream_id>": "stream_0",
        "<exception_id>": "pexc_0",
        "<key_id>": "key_0",
        "<machine_token_id>": "mtok_0",
        "<member_id>": "mem_0",
        "<team_id>": "team_0",
        "<role>": "member",
        "<level>": "0",
        "<number>": "0",
        "<path:rule_id>": "MAL-2026-1",
    }
    if slug == "missing":
        return ids
    if "<binding:binding_id>" in path:
        body = binding_body(repository_id=str(next(numbers)))
        created = await world.client.post(bindings_path(slug), headers=world.admin, json=body)
        ids["<binding:binding_id>"] = (await created.get_json())["id"]
    if "<row:audit_id>" in path:
        ids["<row:audit_id>"] = await newest_row(world, slug, path)
    if path.endswith(PROVED):
        await take_in(world.services)
    for name, (collection, new) in CREATED.items():
        if name in path:
            answer = await world.client.post(
                f"/api/v1/admin/orgs/{slug}{collection}", headers=world.admin, json=new()
            )
            ids[name] = (await answer.get_json())["id"]
    for name, make in MADE.items():
        if name in path:
            ids[name] = await make(world, slug)
    if "<export_id>" in path:
        answer = await world.client.get(
            f"/api/v1/admin/orgs/{slug}/audit/export?format=csv", headers=world.admin
        )
        await answer.get_data()
        await world.services.exporter.drain()
        ids["<export_id>"] = answer.headers["x-export-id"]
    return ids


async def newest_row(world: World, slug: str, path: str) -> str:
    """The id of a row of the organisation; for statements, of a package that was admitted."""
    if path.endswith("/attestation"):
        await admit(world.services, slug)
    (row, *_) = await world.audit(slug)
    return str(row["id"])


async def new_machine_token(world: World, slug: str) -> str:
    """The id of a machine token of a new member."""
    answer = await world.client.post(
        f"/api/v1/admin/orgs/{slug}/machine-tokens",
        headers=world.admin,
        json={"name": "lab", "member": await invited(world, slug)},
    )
    return str((await answer.get_json())["id"])


def new_search() -> dict[str, str]:
    """A search to save, under a name of its own."""
    return {"name": f"search {next(numbers)}", "query": "last=1h"}


def new_stream() -> dict[str, str]:
    """A stream to an address that nothing is sent to, under a name of its own."""
    name = f"stream {next(numbers)}"
    return {"name": name, "kind": "webhook", "url": "https://127.0.0.1:1/rows"}


def new_rule() -> dict[str, str]:
    """An alert rule, under a name of its own."""
    return {"name": f"rule {next(numbers)}", "query": "decision=BLOCKED"}


async def new_alert(world: World, slug: str) -> str:
    """The id of an alert of the organisation, if it exists."""
    org = {"acme": world.acme, "other": world.other}.get(slug)
    if org is None:
        return "alert_0"
    at = world.clock()
    rule = AlertRule(name=f"rule {next(numbers)}", query="decision=BLOCKED")
    entry = AlertRuleEntry(id=new_id("rule"), tenant_id=org.id)
    alert = alert_of(rule, Firing("", at, at, at, 1), entry)
    async with world.services.store.write() as work:
        work.session.add(alert)
    return alert.id


def new_exception() -> dict[str, str]:
    """A request for an exception of a release that no other asks for."""
    return {"ecosystem": "npm", "package": f"left-pad@1.0.{next(numbers)}", "reason": "needed"}


def new_member() -> dict[str, str]:
    """A person to invite, under an address of their own."""
    return {"email": f"new{next(numbers)}@acme.example", "idp": "github", "role": "member"}


def new_name() -> dict[str, str]:
    """The name of a team or project that is no other's."""
    return {"name": f"name {next(numbers)}"}


NEW: Final = {
    "search": new_search,
    "stream": new_stream,
    "rule": new_rule,
    "exception": new_exception,
    "member": new_member,
    "name": new_name,
}
CREATED: Final = {
    "<search_id>": ("/audit/searches", new_search),
    "<stream_id>": ("/streams", new_stream),
    "<exception_id>": ("/policy/exceptions", new_exception),
    "<key_id>": ("/api-keys", lambda: {"name": "for one request", "scopes": ["audit:r"]}),
    "<team_id>": ("/teams", new_name),
    "<alert_rule_id>": ("/alerts/rules", new_rule),
}
"""What a POST creates, and its body, by the variable of paths that names it."""


async def invited(world: World, slug: str) -> str:
    """The id of a new member of the organisation, if it exists."""
    if slug == "missing":
        return "mem_0"
    answer = await world.client.post(
        f"/api/v1/admin/orgs/{slug}/members", headers=world.admin, json=new_member()
    )
    return str((await answer.get_json())["id"])


MADE: Final = {
    "<alert_id>": new_alert,
    "<machine_token_id>": new_machine_token,
    "<member_id>": invited,
}
"""What is made in another way, by the variable of paths that names it."""


async def bound_repository(world: World, slug: str) -> dict[str, str]:
    """A repository, as a body names it, with an active binding of the organisation if it exists."""
    body = binding_body(repository_id=str(next(numbers)))
    if slug != "missing":
        await world.client.post(bindings_path(slug), headers=world.admin, json=body)
    return {name: body[name] for name in ("issuer", "repository_id")}


async def body_of(world: World, wanted: Request, slug: str) -> dict[str, Any]:
    """The body of the endpoint's good request, as arguments of the client."""
    body: dict[str, Any] = (
        {"json": binding_body(repository_id=str(next(numbers)))} if wanted.has_body else {}
    )
    if wanted.makes:
        body = {"form" if wanted.is_form else "json": NEW[wanted.makes]()}
    if wanted.names_member:
        body = {"json": {**(wanted.body or {}), "member": await invited(world, slug)}}
    if wanted.has_repository:
        body = {"json": await bound_repository(world, slug)}
    if wanted.form is not None:
        body = {"form": wanted.form}
    if wanted.items is not None or (wanted.body is not None and not wanted.names_member):
        body = {"json": wanted.items or wanted.body}
    return body


async def ask(world: World, endpoint: str, slug: str, headers: Headers) -> tuple[int, str]:
    """Send the endpoint's good request; its status, and its refusal if it is one."""
    method, path = endpoints(world)[endpoint]
    wanted = REQUESTS[endpoint]
    for name, value in {"<slug>": slug, **(await stored_ids(world, slug, path))}.items():
        path = path.replace(name, value)
    if wanted.is_form:
        path = re.sub(r"<\w+>", "nothing", path)
        headers = headers | {"origin": world.services.settings.origin}
    body = await body_of(world, wanted, slug)
    if wanted.has_if_match:
        headers = headers | {"if-match": "*"}
    if wanted.is_endless:
        return await ask_for_a_stream(world, path, headers)
    answer = await world.client.open(
        path, method=method, headers=headers, query_string=wanted.query, **body
    )
    if wanted.is_form and answer.mimetype == "text/html":
        return wanted.good, ""
    if answer.status_code >= 400:
        return await refused(answer)
    await answer.get_data()
    return answer.status_code, ""


async def ask_for_a_stream(world: World, path: str, headers: Headers) -> tuple[int, str]:
    """The status of an answer that does not end by itself, or its refusal."""
    async with world.client.request(path, headers=headers) as connection:
        await connection.send_complete()
        connection.response_data.extend(await connection.receive())
        await connection.disconnect()
    if connection.status_code == 200:
        return 200, ""
    return await refused(await connection.as_response())


def expected(wanted: Request, capabilities: frozenset[str] | None, slug: str) -> tuple[int, str]:
    """What the endpoint must answer to a caller with these capabilities."""
    if capabilities is None:
        return 401, Unauthenticated.text
    if slug == "missing":
        return 404, OrgNotFound.text
    if wanted.capability not in capabilities:
        return 403, LACKS_CAPABILITY(value=wanted.capability).text
    return wanted.answer


def expected_of_belonging(wanted: Request, row: Row, name: str, slug: str) -> tuple[int, str]:
    """What is for every member must answer."""
    if row.in_acme is None:
        return 401, Unauthenticated.text
    if slug == "missing":
        return 404, OrgNotFound.text
    home = "other" if "other organisation" in name else "acme"
    if row.has_scopes:
        return 403, NOT_FOR_KEYS.text
    if wanted.is_form and slug == home and not row.is_operator:
        return 403, FOREIGN_FORM.text
    return wanted.answer if row.is_operator or slug == home else (403, NOT_MEMBER.text)


def expected_of_sending(row: Row, slug: str) -> tuple[int, str]:
    """What the ingest endpoint must answer: to its key's own organisation, and to no session."""
    if row.in_acme is None and not row.is_key:
        return 401, Unauthenticated.text
    if slug == "missing":
        return 404, OrgNotFound.text
    if row.is_key:
        if slug != "acme":
            return 403, KEY_OF_ANOTHER_ORG.text
        if row.has_scopes and not row.may_send:
            return 403, LACKS_CAPABILITY(value="audit:ingest").text
        return 200, ""
    return (200, "") if row.is_operator else (403, NOT_FOR_SESSIONS.text)


def expected_of_installing(row: Row, slug: str) -> tuple[int, str]:
    """What the exchange must answer without a CI token: it names what is missing."""
    if not row.is_key:
        return 401, Unauthenticated.text
    if slug == "missing":
        return 404, OrgNotFound.text
    if slug != "acme":
        return 403, KEY_OF_ANOTHER_ORG.text
    if row.has_scopes and not row.may_install:
        return 403, LACKS_CAPABILITY(value="packages:install").text
    return 403, CI_TOKEN_REFUSED.text


def expected_of(endpoint: str, credential: str, slug: str) -> tuple[int, str]:
    """What the endpoint must answer to this credential."""
    wanted, row = REQUESTS[endpoint], TABLE[credential]
    is_page = endpoint.startswith("dashboard") or endpoint == "audit_export.dashboard_export"
    if is_page and row.is_api_only:
        row = replace(row, in_acme=row.on_pages, has_scopes=False)
    if wanted.capability is SENDING:
        return expected_of_sending(row, slug)
    if wanted.capability is INSTALLING:
        return expected_of_installing(row, slug)
    if wanted.capability is BELONGING:
        return expected_of_belonging(wanted, row, credential, slug)
    belonging = expected_of_belonging(wanted, row, credential, slug)
    if wanted.is_of_members and belonging[0] != wanted.good:
        return belonging
    held = {"acme": row.in_acme, "other": row.in_other, "missing": NOTHING}[slug]
    answer = expected(wanted, None if row.in_acme is None else held, slug)
    if row.has_scopes and slug == "other":
        return 403, KEY_OF_ANOTHER_ORG.text
    if endpoint == "machine_tokens.list_" and row.may_install and slug == "acme":
        return 403, MEMBER_MISSING.text
    if wanted.is_change and row.has_scopes and answer == wanted.answer:
        return 403, KEY_CANNOT_CHANGE.text
    if wanted.is_form and answer == wanted.answer and not row.is_operator:
        return 403, FOREIGN_FORM.text
    return answer


async def test_every_endpoint_stands_in_the_table(world: World):
    """An endpoint that was added without a row here may be open to everyone."""
    assert set(endpoints(world)) == {*REQUESTS, *OPERATED}


def endpoints_for(credential: str) -> list[str]:
    """Every endpoint in `make test-all`; else one of EVERY, other ones for the next credential.

    So `make test` tries each endpoint with two credentials or three.
    """
    first = list(TABLE).index(credential) % EVERY
    return list(REQUESTS)[first::EVERY]


@pytest.mark.slow
@pytest.mark.parametrize("credential", TABLE)
async def test_who_gets_in_where(world: World, credential: str):
    row = TABLE[credential]
    tried = [(endpoint, slug) for endpoint in endpoints_for(credential) for slug in SLUGS]
    headers = await row.headers(world)
    answers = {place: await ask(world, *place, headers) for place in tried}

    assert answers == {
        (endpoint, slug): expected_of(endpoint, credential, slug) for endpoint, slug in tried
    }


@pytest.mark.slow
@pytest.mark.parametrize("credential", TABLE)
async def test_the_admin_token_alone_opens_what_is_the_operators(world: World, credential: str):
    row = TABLE[credential]
    headers = await row.headers(world)
    for endpoint, good in OPERATED.items():
        method, path = endpoints(world)[endpoint]
        answer = await world.client.open(
            re.sub(r"<\w+>", "nothing", path), method=method, headers=headers
        )
        if row.is_operator:
            assert answer.status_code == good
        else:
            refusal = Unauthenticated if row.in_acme is None else OPERATOR_ONLY
            assert await refused(answer) == (refusal.status, refusal.text), endpoint


async def test_a_key_that_reads_sends_no_rows(world: World):
    """It is given to people and dashboards; rows come from machines that decide about installs."""
    answer = await world.client.post(
        "/api/v1/admin/orgs/acme/audit/events",
        headers=await key_with("oidc:r")(world),
        json=[{"event": "install_allowed", "packageName": "left-pad"}],
    )

    assert await refused(answer) == (403, LACKS_CAPABILITY(value="audit:ingest").text)
