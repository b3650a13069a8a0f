"""A client that openapi-python-client generates does everything that the API offers.

It is a program of another author: it takes the document's word for every name, type and status.
"""

import datetime
import importlib
import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ADMIN_TOKEN, ISSUER, METRICS_TOKEN
from tests.openapi.examples import block_of_docs, run
from tests.processes.desks import approve
from tests.processes.homes import Home, Server, eventually

pytestmark = pytest.mark.slow

PACKAGE = "countersign_client"
OWNER = "ada@acme.example"
SUB = "repo:acme/payments:ref:refs/heads/main"


class Generated:
    """The generated package, and a function for each of its operations."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.models = importlib.import_module(f"{PACKAGE}.models")
        self._client = importlib.import_module(f"{PACKAGE}.client")
        self._made: list[Any] = []

    def operation(self, tag: str, name: str) -> ModuleType:
        return importlib.import_module(f"{PACKAGE}.api.{tag}.{name}")

    def as_operator(self) -> Any:
        return self._by_header("x-service-admin-token", ADMIN_TOKEN)

    def by_key(self, secret: str) -> Any:
        return self._by_header("x-service-api-key", secret)

    def by_session(self, token: str) -> Any:
        return self._made_by(self._client.AuthenticatedClient, token=token)

    def without_credential(self) -> Any:
        return self._made_by(self._client.Client)

    def _by_header(self, name: str, secret: str) -> Any:
        return self._made_by(
            self._client.AuthenticatedClient, token=secret, auth_header_name=name, prefix=""
        )

    def _made_by(self, kind: Any, **credential: str) -> Any:
        strict = {"raise_on_unexpected_status": True, "httpx_args": {"trust_env": False}}
        client = kind(base_url=self.url, **credential, **strict)
        self._made.append(client)
        return client

    def close(self) -> None:
        for client in self._made:
            client.get_httpx_client().close()


@pytest.fixture
def server(empty_home: Home) -> Server:
    """A server whose operator has made acme with an owner; the API offers neither."""
    empty_home.ask("init")
    empty_home.ask("org", "add", "acme", "--tier", "org")
    empty_home.ask("member", "add", "--org", "acme", OWNER, "--role", "owner", "--idp", "github")
    return empty_home.serve()


@pytest.fixture
def generated(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Generated]:
    """The client that the lines of the docs make of the server's document."""
    lines = block_of_docs("sh", "pip install openapi-python-client")
    made = run("sh", "-euc", lines, url=server.url, folder=tmp_path)
    told = made.stdout + made.stderr
    assert made.returncode == 0, told
    # It knows no NDJSON, which is the other form of that body, and no archives.
    unknown = (" application/x-ndjson", " application/zip")
    assert (told.count("WARNING"), *map(told.count, unknown)) == (2, 1, 1), told
    monkeypatch.syspath_prepend(tmp_path / "countersign-client")
    clients = Generated(server.url)
    yield clients
    clients.close()


def test_a_generated_client_goes_from_sign_in_to_export(
    empty_home: Home, server: Server, generated: Generated, tmp_path: Path
) -> None:
    has_every_operation(server, generated)
    member = Member(generated, signed_in(empty_home, server, generated))
    whose = member.get("sessions", "get_own_session")
    assert (whose.org, whose.member.email) == ("acme", OWNER)

    made = trusts_a_job(member)
    sets_a_policy(member)
    asks_for_an_exception(member)
    send_rows(empty_home, generated)
    reads_the_log(member, made)
    saves_a_search(member)
    exports_rows(member)
    a_key_reads(empty_home, generated)
    the_example_of_the_docs_prints_rows(server, tmp_path)

    report = member.do("reports", "get_access_report")
    assert [person.email for person in report.members] == [OWNER]
    assert isinstance(report.as_of, datetime.datetime)
    ended = member.get("sessions", "end_own_session")
    assert ended.revoked == whose.session_id
    assert member.ask("sessions", "get_own_session").status_code == HTTPStatus.UNAUTHORIZED


class Member:
    """Someone who uses the generated client with one credential, in acme."""

    def __init__(self, generated: Generated, client: Any) -> None:
        self.generated = generated
        self.models = generated.models
        self._client = client

    def ask(self, tag: str, name: str, *place: str, **parameters: Any) -> Any:
        """The whole answer of an operation."""
        operation = self.generated.operation(tag, name)
        return operation.sync_detailed(*place, client=self._client, **parameters)

    def get(self, tag: str, name: str, *place: str, **parameters: Any) -> Any:
        """The model in a successful answer."""
        answer = self.ask(tag, name, *place, **parameters)
        assert answer.status_code in {HTTPStatus.OK, HTTPStatus.CREATED}, answer
        return answer.parsed

    def do(self, tag: str, name: str, *place: str, **parameters: Any) -> Any:
        """The same in acme."""
        return self.get(tag, name, "acme", *place, **parameters)

    def refused(self, tag: str, name: str, *place: str, **parameters: Any) -> tuple[int, str]:
        """Status and text of a refusal in acme."""
        answer = self.ask(tag, name, "acme", *place, **parameters)
        assert isinstance(answer.parsed, self.models.Error), answer
        return int(answer.status_code), answer.parsed.error


def has_every_operation(server: Server, generated: Generated) -> None:
    """A name that is no good identifier, or an answer it cannot read, would be left out."""
    with server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    for operations in paths.values():
        for described in operations.values():
            if "application/zip" in described.get("requestBody", {}).get("content", {}):
                continue  # of which it warns
            (tag,) = described["tags"]
            assert callable(generated.operation(tag, described["operationId"]).sync_detailed)


def signed_in(home: Home, server: Server, generated: Generated) -> Any:
    """A client with the session of a device sign-in, which the owner approves on its page."""
    visitor = Member(generated, generated.without_credential())
    assert visitor.get("system", "get_health").status == "ok"
    assert visitor.get("system", "get_readiness").status == "ready"
    scraper = Member(generated, generated.by_session(METRICS_TOKEN))
    assert "countersign_" in scraper.get("system", "get_metrics")
    models = generated.models
    device = models.DeviceCodeRequest.from_dict({"client_id": "countersign-cli"})
    codes = visitor.get("sessions", "start_device_sign_in", body=device)
    poll = models.DeviceTokenRequest.from_dict(
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
            "device_code": codes.device_code,
            "client_id": "countersign-cli",
        }
    )
    waits = visitor.ask("sessions", "poll_device_sign_in", body=poll)
    assert (waits.status_code, waits.parsed.error) == (400, "authorization_pending")
    cookie = home.ask("session", "issue", "--org", "acme", "--member", OWNER, "--cookie")["cookie"]
    approve(server, cookie, codes.user_code)

    def token() -> Any:
        answer = visitor.ask("sessions", "poll_device_sign_in", body=poll)
        return answer.parsed if answer.status_code == HTTPStatus.OK else None

    return generated.by_session(eventually(token, "signed in", every_s=1).access_token)


def trusts_a_job(member: Member) -> Any:
    """Bindings are made, replaced, listed, explained and revoked; the one that stays."""
    models = member.models
    request = models.BindingRequest.from_dict(
        {"issuer": ISSUER, "sub_pattern": SUB, "repository_id": "42", "origin": "org_admin"}
    )
    made = member.do("bindings", "create_binding", body=request)
    assert member.refused("bindings", "create_binding", body=request)[0] == HTTPStatus.CONFLICT
    change = models.ReplaceRequest(event_names=["push"])
    replaced = member.do("bindings", "replace_binding", made.id, body=change)
    assert (replaced.replaces, replaced.event_names) == (made.id, ["push"])
    other = models.BindingRequest.from_dict(request.to_dict() | {"sub_pattern": f"{SUB}2"})
    second = member.do("bindings", "create_binding", body=other)

    listed = member.do("bindings", "list_bindings", active=True, limit=1)
    assert [binding.id for binding in listed.bindings] == [second.id]
    rest = member.do("bindings", "list_bindings", active=True, cursor=listed.next_cursor)
    assert ([binding.id for binding in rest.bindings], rest.next_cursor) == ([replaced.id], None)

    claims = models.ExplainBodyClaims.from_dict({"iss": ISSUER, "sub": SUB})
    explained = member.do("bindings", "explain_token", body=models.ExplainBody(claims=claims))
    assert (explained.passes, explained.signature_checked) == (False, False)
    assert member.do("bindings", "list_rejected_subjects", verified=True).rejected == []

    gone = member.do("bindings", "revoke_binding", second.id, reason="no longer used")
    assert gone.revoked == second.id
    shown = member.do("bindings", "get_binding", second.id)
    assert (shown.effective, shown.revoked_reason) == (False, "no longer used")
    assert isinstance(shown.revoked_at, datetime.datetime)
    third = models.BindingRequest.from_dict(request.to_dict() | {"repository_id": 43})
    member.do("bindings", "create_binding", body=third)
    whole = models.RevokeRepositoryRequest(issuer=ISSUER, repository_id="43")
    assert member.do("bindings", "revoke_repository_bindings", body=whole).count == 1
    return replaced


def sets_a_policy(member: Member) -> None:
    """With the revision it replaces; a second change of the same one is refused."""
    models = member.models
    rule = {"ecosystem": "npm", "package": "left-pad", "versions": ["<1.3.0"], "id": "old"}
    policy = models.PolicyDocument.from_dict({"mode": "enforce", "deny": [rule]})
    before = member.ask("policy", "get_policy", "acme")
    etag = before.headers["etag"]
    seen = member.do("policy", "preview_policy", body=policy)
    assert (seen.blocked, seen.is_complete) == (0, True)

    changed = member.do("policy", "set_policy", body=policy, if_match=etag)

    assert (before.parsed.revision, changed.revision) == (0, 1)
    assert changed.policy.deny[0].id == "old"
    assert member.refused("policy", "set_policy", body=policy, if_match=etag)[0] == 412
    asked = models.CheckRequest(ecosystem=models.Ecosystem.NPM, package="left-pad@1.2.0")
    verdict = member.do("policy", "check_release", body=asked)
    assert (verdict.decision, verdict.rule_id) == ("BLOCKED", "old")


def asks_for_an_exception(member: Member) -> None:
    """And decides it."""
    models = member.models
    request = models.ExceptionRequest.from_dict(
        {"ecosystem": "pypi", "package": "requests==2.32.3", "reason": "a fix"}
    )
    asked = member.do("policy", "request_exception", body=request)
    assert (asked.state, asked.decided_at) == ("open", None)
    decision = models.ExceptionDecision.from_dict({"decision": "decline", "reason": "too young"})
    member.do("policy", "decide_exception", asked.id, body=decision)
    (listed,) = member.do(
        "policy", "list_exceptions", state=models.ListExceptionsState("declined")
    ).exceptions
    assert (listed.id, listed.decided_reason) == (asked.id, "too young")


def send_rows(home: Home, generated: Generated) -> None:
    """A proxy sends installs with its key; a faulty one is named."""
    secret = home.ask(
        "apikey", "issue", "--org", "acme", "--name", "proxy", "--scope", "audit:ingest"
    )["secret"]
    proxy = Member(generated, generated.by_key(secret))
    item = generated.models.IngestItem.from_dict
    items = [
        item({"event": "install_allowed", "packageName": "@babel/core"}),
        item({"event": "install_allowed", "packageName": "left-pad", "version": "1.3.0"}),
        item(
            {
                "event": "blocklist_hit",
                "packageName": "event-stream",
                "version": "3.3.6",
                "ecosystem": "npm",
                "envelope": {"rule_id": "MAL-2018-1", "source": "osv"},
            }
        ),
        item({"event": "install_allowed", "packageName": " "}),
    ]
    for _ in range(2):  # the same key makes one batch of the two
        result = proxy.do("audit", "ingest_events", body=items, idempotency_key="batch-1")
        assert result.accepted == 3
        assert [(each.index, type(each.error)) for each in result.rejected] == [(3, str)]
    assert proxy.refused("audit", "query_audit_log")[0] == HTTPStatus.FORBIDDEN


def reads_the_log(member: Member, binding: Any) -> None:
    """Pages until there is no cursor, counts, groups, new rows, one row."""
    rows, cursor = [], {}
    while True:
        page = member.do("audit", "query_audit_log", limit=3, **cursor)
        rows += page.entries
        if page.next_cursor is None:
            break
        cursor = {"cursor": page.next_cursor}
    assert len({row.id for row in rows}) == len(rows) > 6
    assert {row.tenant_id for row in rows} == {rows[0].tenant_id}
    events = [row.event for row in rows if row.subject == binding.id]
    assert events == ["oidc_binding_created"]
    assert all(isinstance(row.created_at, datetime.datetime) for row in rows)
    found = member.do("audit", "query_audit_log", q="left-pad").entries
    assert [row.package_name for row in found if row.version == "1.3.0"] == ["left-pad"]

    summary = member.do(
        "audit",
        "summarise_audit_log",
        q="left-pad",
        event=["install_allowed"],
        bucket=member.models.Bucket("hour"),
    )
    assert (summary.total, summary.buckets[-1].allowed) == (1, 1)
    groups = member.do("audit", "group_audit_rows", by=["package"], event=["install_allowed"])
    assert {group.values["package"] for group in groups.groups} == {"@babel/core", "left-pad"}
    (unknown,) = member.do("audit", "find_unknown_values", package=["left-pat"]).unknown
    assert unknown.nearest == "left-pad"
    one = member.do("audit", "get_audit_row", rows[0].id)
    assert one.to_dict() == rows[0].to_dict()
    oldest = min(row.id for row in rows)
    followed = member.do("audit", "follow_audit_log", after=oldest, limit=1000)
    assert {row.id for row in followed.entries} == {row.id for row in rows} - {oldest}


def saves_a_search(member: Member) -> None:
    request = member.models.SavedSearchRequest(name="Blocked", query="decision=BLOCKED&last=7d")
    saved = member.do("searches", "save_search", body=request)
    listed = member.do("searches", "list_saved_searches")
    assert [search.id for search in listed.searches] == [saved.id]
    assert member.do("searches", "delete_saved_search", saved.id).deleted == saved.id


def exports_rows(member: Member) -> None:
    """Each format is a file in `content`; the receipt has its digest's length."""
    formats: dict[str, Callable[[bytes], Any]] = {
        "csv": lambda content: content.decode().splitlines()[1:],
        "json": json.loads,
        "ndjson": lambda content: content.decode().splitlines(),
        "parquet": lambda content: content[:4] == b"PAR1" and ["one", "two"],
    }
    for name, read in formats.items():
        file = member.ask(
            "exports",
            "export_audit_log",
            "acme",
            format_=member.models.ExportFormat(name),
            event=["install_allowed"],
            raw=True,
        )
        assert file.status_code == HTTPStatus.OK
        assert len(read(file.content)) == 2
    receipt = member.do("exports", "get_export_receipt", file.headers["x-export-id"])
    assert (receipt.bytes_, receipt.raw) == (len(file.content), True)
    listed = member.do("exports", "list_exports", limit=2)
    assert len(listed.exports) == 2
    one = member.do("exports", "get_export", listed.exports[0].id)
    assert (one.state, one.sha256) == ("finished", receipt.sha256)


def a_key_reads(home: Home, generated: Generated) -> None:
    """A key with scopes reads what they name, and the operator's token everything."""
    issue = ("apikey", "issue", "--org", "acme", "--name", "reader", "--scope", "audit:r")
    reader = Member(generated, generated.by_key(home.ask(*issue)["secret"]))
    whose = reader.get("sessions", "get_own_session")
    assert (whose.credential, whose.capabilities) == ("api_key", ["audit:r"])
    assert reader.do("audit", "query_audit_log", limit=1).entries
    assert reader.refused("policy", "get_policy")[0] == HTTPStatus.FORBIDDEN
    operator = Member(generated, generated.as_operator())
    assert operator.do("audit", "query_audit_log", limit=1).entries


def the_example_of_the_docs_prints_rows(server: Server, folder: Path) -> None:
    """It asks for what was blocked."""
    example = block_of_docs("python", "import os")
    ran = run("python", "-c", example, url=server.url, folder=folder / "countersign-client")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith(" event-stream 3.3.6\n")
