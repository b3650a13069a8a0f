"""The ingest endpoint: how bodies are read, what rows it makes, and who may send them."""

import asyncio
import gzip
import json
import os
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import select
from werkzeug.datastructures import Headers

from analytics.model.instants import format_us
from analytics.storage.journal_batches import encode_days
from service.audit import ingest, sealer
from service.core.settings import Settings
from service.orgs.api_keys import issue_api_key, revoke_api_key
from service.store import idempotency
from service.store.journal import JournalSize, count_journal
from service.store.sqlite.connection import SqliteConnection
from service.store.tables import ApiKey, IdempotencyKey, Organisation
from tests.analytics.samples import sample_row
from tests.conftest import (
    BY_OPERATOR,
    PROXY_SCOPES,
    START,
    World,
    binding_body,
    bindings_path,
    refused,
    settings_over,
)
from tests.service.audit.conftest import AuditWorld

NDJSON = "application/x-ndjson"
BYTES_MAX = 5 * 1024 * 1024
JOURNAL_MAX = 12_000
NOT_ITEMS = (
    400,
    "request body must be a JSON array, or one JSON object a line (application/x-ndjson)",
)
NOT_GZIP = (400, "request body is not valid gzip")
TOO_LARGE = (413, "request body is too large")
UNAUTHENTICATED = (401, "missing or invalid credentials")
FULL = (429, "the journal of this organisation is full")
KEY_REUSED = (409, "Idempotency-Key was used with another body")


@pytest.fixture
def settings(tmp_path) -> Settings:
    """A journal that a test can fill."""
    return msgspec.structs.replace(settings_over(tmp_path), ingest_journal_rows_max=JOURNAL_MAX)


def path(slug: str = "acme") -> str:
    return f"/api/v1/admin/orgs/{slug}/audit/events"


def install(name: str = "left-pad", **changes: Any) -> dict[str, Any]:
    return {"event": "install_allowed", "packageName": name, **changes}


def installs(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [install(f"p{number}") for number in range(first, first + count)]


@dataclass
class IngestPrincipal:
    """A sender of rows to one organisation with one credential."""

    world: World
    headers: dict[str, str]
    slug: str = "acme"

    async def send(self, body: Any, content_type: str | None = None, **headers: str) -> Any:
        """POST `body` (bytes as they are, anything else as JSON); the response."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.world.client.post(
            path(self.slug),
            data=raw,
            headers={
                **self.headers,
                "content-type": content_type or "application/json",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )

    async def accepted(self, body: Any, content_type: str | None = None, **headers: str) -> int:
        """POST a body of good items; how many there were."""
        answer = await self.send(body, content_type, **headers)
        assert answer.status_code == 200, await answer.get_data(as_text=True)
        said = await answer.get_json()
        assert list(said) == ["accepted", "rejected"]
        assert said["rejected"] == []
        return said["accepted"]

    async def refusal(self, body: Any, content_type: str | None = None, **headers: str) -> Any:
        """POST a body that is refused as a whole; status and text."""
        return await refused(await self.send(body, content_type, **headers))


async def new_key(world: World, org: Organisation) -> tuple[ApiKey, dict[str, str]]:
    """An API key of the organisation, and the header that carries it."""
    async with world.services.store.write() as work:
        key, secret = await issue_api_key(
            work, org, "proxy", None, BY_OPERATOR, scopes=PROXY_SCOPES
        )
    return key, {"x-service-api-key": secret}


@pytest.fixture
def admin(audit: AuditWorld) -> IngestPrincipal:
    return IngestPrincipal(audit.world, audit.world.admin)


@pytest.fixture
async def proxy(audit: AuditWorld) -> IngestPrincipal:
    """With an API key of acme."""
    return IngestPrincipal(audit.world, (await new_key(audit.world, audit.world.acme))[1])


async def names(audit: AuditWorld, slug: str = "acme", **query: Any) -> list[str]:
    entries = await audit.world.audit(slug, event="install_allowed", **query)
    return [entry["packageName"] for entry in sorted(entries, key=lambda entry: entry["id"])]


class TestBodies:
    """An array or lines, compressed or not, of bounded size."""

    async def test_a_json_array_is_taken_in_its_order(self, audit, admin):
        assert await admin.accepted(installs(3)) == 3
        assert await names(audit) == ["p0", "p1", "p2"]

    @pytest.mark.parametrize(
        "between", [b"\n", b"\r\n", b"\n\n", b"\n \t\n"], ids=["LF", "CRLF", "blank", "white"]
    )
    @pytest.mark.parametrize("ends", [True, False])
    async def test_lines_are_taken_however_they_end(self, audit, admin, between, ends):
        lines = [json.dumps(one).encode() for one in installs(3)]

        assert await admin.accepted(between.join(lines) + between * ends, NDJSON) == 3
        assert await names(audit) == ["p0", "p1", "p2"]

    @pytest.mark.parametrize(
        "content_type",
        [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            NDJSON,
            "APPLICATION/X-NDJSON; charset=utf-8",
        ],
    )
    async def test_types_are_read_in_every_spelling(self, admin, content_type):
        """Media types are case-insensitive and may carry parameters (RFC 9110, 8.3.1)."""
        body = json.dumps(install()).encode()
        if "ndjson" not in content_type.lower():
            body = b"[" + body + b"]"

        assert await admin.accepted(body, content_type) == 1

    @pytest.mark.parametrize(
        "content_type", ["text/plain", "application/ndjson", "application/gzip", "text/json", " "]
    )
    async def test_another_type_is_415(self, admin, content_type):
        """Forms of other sites can send some of these, without a preflight."""
        assert await admin.refusal(installs(1), content_type) == (
            415,
            "content-type must be application/json or application/x-ndjson",
        )

    @pytest.mark.parametrize(
        "body",
        [b"", b" ", b"{}", b"null", b"7", b"[", b"[{}", b"[{}] []", b"[{},]", b"[NaN]", b"\xff"],
        ids=repr,
    )
    async def test_what_is_no_array_is_refused_whole(self, admin, body):
        """Where an item would begin and end is not known."""
        assert await admin.refusal(body) == NOT_ITEMS

    @pytest.mark.parametrize("depth", [5_000, 1_000_000])
    async def test_a_deep_array_is_refused_whole(self, admin, depth):
        assert await admin.refusal(b"[" * depth + b"]" * depth) == NOT_ITEMS

    @pytest.mark.parametrize(("body", "kind"), [(b"[]", None), (b"", NDJSON), (b"\n\n", NDJSON)])
    async def test_nothing_at_all_is_taken_as_nothing(self, audit, admin, body, kind):
        """A sender with an empty queue has done nothing wrong."""
        assert await admin.accepted(body, kind) == 0
        assert await names(audit) == []

    async def test_bad_items_are_reported_and_good_ones_kept(self, audit, admin):
        lines = [b"{", json.dumps(install("a")).encode(), b'{"a": "\xff"}', b"[" * 100_000]
        answer = await admin.send(b"\n".join([*lines, json.dumps(install("b")).encode()]), NDJSON)

        assert answer.status_code == 200
        said = await answer.get_json()
        assert said["accepted"] == 2
        assert [fault["index"] for fault in said["rejected"]] == [0, 2, 3]
        assert all(list(fault) == ["index", "error"] for fault in said["rejected"])
        assert await names(audit) == ["a", "b"]

    async def test_items_that_are_all_bad_leave_no_row(self, audit, admin):
        answer = await admin.send([install(actor="me"), 7, install(event="org_created")])

        assert answer.status_code == 200
        said = await answer.get_json()
        assert said["accepted"] == 0
        assert len(said["rejected"]) == 3
        assert await names(audit) == []

    async def test_ten_thousand_items_are_taken(self, audit, admin):
        assert await admin.accepted(installs(10_000)) == 10_000

    async def test_one_more_is_refused_whole(self, audit, admin):
        too_many = (413, "at most 10000 rows in one request")
        lines = b"{}\n" * 10_001

        assert await admin.refusal(installs(10_001)) == too_many
        assert await admin.refusal(lines, NDJSON) == too_many
        assert await names(audit) == []

    @pytest.mark.parametrize("encoding", [None, "identity", "gzip"])
    async def test_five_megabytes_are_read_and_one_byte_more_is_not(self, audit, admin, encoding):
        """On the wire as unpacked."""
        headers = {"content_encoding": encoding} if encoding else {}
        body = json.dumps(installs(1)).encode()
        for size, is_good in ((BYTES_MAX, True), (BYTES_MAX + 1, False)):
            raw = body + b" " * (size - len(body))
            raw = gzip.compress(raw) if encoding == "gzip" else raw
            if is_good:
                assert await admin.accepted(raw, **headers) == 1
            else:
                assert await admin.refusal(raw, **headers) == TOO_LARGE
        assert await names(audit) == ["p0"]

    async def test_a_body_is_measured_as_it_arrives_when_no_length_is_given(self, audit, admin):
        """Chunked transfers announce no length; the limit holds all the same."""
        async with audit.world.client.request(
            path(), method="POST", headers={**admin.headers, "content-type": NDJSON}
        ) as connection:
            for _ in range(6):
                await connection.send(b" " * 1024 * 1024)
            await connection.send_complete()

        assert await refused(await connection.as_response()) == TOO_LARGE

    async def test_other_endpoints_keep_their_own_limit(self, audit):
        """The larger one is for rows alone."""
        answer = await audit.world.client.post(
            bindings_path(),
            headers={**audit.world.admin, "content-type": "application/json"},
            data=b" " * (64 * 1024 + 1),
        )

        assert await refused(answer) == TOO_LARGE


class TestGzip:
    """Proxies pack what they send; unpacking is bounded."""

    @pytest.mark.parametrize("spelling", ["gzip", "GZIP", " gzip "])
    async def test_a_packed_body_is_unpacked(self, audit, admin, spelling):
        array = gzip.compress(json.dumps([install("a")]).encode())
        lines = gzip.compress(json.dumps(install("b")).encode())

        assert await admin.accepted(array, content_encoding=spelling) == 1
        assert await admin.accepted(lines, NDJSON, content_encoding=spelling) == 1
        assert await names(audit) == ["a", "b"]

    async def test_members_are_read_one_after_the_other(self, audit, admin):
        """A log that was appended to is several members (RFC 1952, 2.2), empty ones included."""
        lines = [json.dumps(one).encode() + b"\n" for one in installs(300)]
        packed = b"".join(map(gzip.compress, [b"", *lines, b""]))

        assert await admin.accepted(packed, NDJSON, content_encoding="gzip") == 300
        assert await names(audit) == [f"p{number}" for number in range(300)]

    @pytest.mark.parametrize("cut", [1, 8, 12])
    async def test_a_truncated_body_is_refused_whole(self, audit, admin, cut):
        packed = gzip.compress(json.dumps(installs(3)).encode())

        assert await admin.refusal(packed[:-cut], content_encoding="gzip") == NOT_GZIP
        assert await names(audit) == []

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda packed: b"",
            lambda packed: b"[]",
            lambda packed: packed + b"[]",
            lambda packed: packed + packed[:4],
            lambda packed: packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:],
        ],
        ids=["nothing", "plain", "a tail", "half a member", "a wrong checksum"],
    )
    async def test_what_is_not_gzip_is_refused(self, admin, spoil):
        packed = gzip.compress(json.dumps(installs(1)).encode())

        assert await admin.refusal(spoil(packed), content_encoding="gzip") == NOT_GZIP

    @pytest.mark.parametrize("members", [1, 8])
    async def test_a_bomb_is_refused(self, admin, members):
        packed = gzip.compress(b" " * (BYTES_MAX // members + 1)) * members
        assert len(packed) < 64 * 1024

        assert await admin.refusal(packed, content_encoding="gzip") == TOO_LARGE

    async def test_more_members_than_rows_are_refused(self, admin):
        """Thousands of empty ones in a small body would each take their time."""
        packed = gzip.compress(b"[]") + gzip.compress(b"") * 10_000

        assert await admin.refusal(packed, content_encoding="gzip") == TOO_LARGE

    async def test_too_much_on_the_wire_is_refused_whatever_it_unpacks_to(self, admin):
        packed = gzip.compress(os.urandom(BYTES_MAX))
        assert len(packed) > BYTES_MAX

        assert await admin.refusal(packed, content_encoding="gzip") == TOO_LARGE

    @pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "x-gzip", "zstd", ""])
    async def test_another_encoding_is_415(self, admin, encoding):
        assert await admin.refusal(installs(1), content_encoding=encoding) == (
            415,
            "content-encoding must be gzip or identity",
        )


class TestRows:
    """What a row says besides what its sender told."""

    async def test_the_server_says_who_sent_it_and_when_it_came(self, audit):
        key, headers = await new_key(audit.world, audit.world.acme)
        happened_at = START - timedelta(hours=1)

        answer = await IngestPrincipal(audit.world, headers).send(
            [install(version="1.3.0", ecosystem="npm", created_at=happened_at.isoformat())],
            x_request_id="req_000000000000000000000000",
        )

        (row,) = await audit.world.audit(event="install_allowed")
        assert row | {"id": "", "source_ip": ""} == {
            "id": "",
            "created_at": format_us(happened_at),
            "event": "install_allowed",
            "packageName": "left-pad",
            "version": "1.3.0",
            "decision": "ALLOWED",
            "decision_reason": "{}",
            "verdict_source": "proxy",
            "tenant_id": audit.world.acme.id,
            "actor_tenant_id": None,
            "actor": key.id,
            "actor_source": "api_key",
            "subject": None,
            "oidc_binding_id": None,
            "request_id": answer.headers["x-request-id"],
            "source_ip": "",
            "received_at": format_us(START),
            "payload": {},
            "ecosystem": "npm",
            "repository_id": None,
            "run_id": None,
            "token_id": None,
            "file_name": None,
            "file_sha256": None,
            "client": None,
        }
        created = await audit.world.create()
        assert created.status_code == 201
        (binding_row,) = await audit.world.audit(event="oidc_binding_created")
        assert row["source_ip"] == binding_row["source_ip"]

    async def test_the_admin_token_is_named_as_such(self, audit, admin):
        await admin.accepted(installs(1))

        (row,) = await audit.world.audit(event="install_allowed")
        assert (row["actor"], row["actor_source"]) == ("system:admin-token", "admin_token")
        assert (row["verdict_source"], row["actor_tenant_id"]) == ("proxy", None)

    async def test_the_window_is_the_organisations_own(self, audit, admin):
        floor = START - timedelta(days=365)
        await admin.accepted([install("kept", created_at=floor.isoformat())])
        before = (floor - timedelta(microseconds=1)).isoformat()

        answer = await admin.send([install("gone", created_at=before)])

        assert await answer.get_json() == {
            "accepted": 0,
            "rejected": [{"index": 0, "error": "created_at is before the retention floor"}],
        }
        assert await names(audit) == ["kept"]


class TestSenders:
    """Machines with a key of the organisation, and the admin token; see test_credentials too."""

    async def test_a_revoked_key_is_no_credential(self, audit):
        key, headers = await new_key(audit.world, audit.world.acme)
        principal = IngestPrincipal(audit.world, headers)
        await principal.accepted(installs(1))
        async with audit.services.store.write() as work:
            stored = await work.session.get_one(ApiKey, key.id)
            await revoke_api_key(work, audit.world.acme, stored, BY_OPERATOR)

        assert await principal.refusal(installs(1)) == UNAUTHENTICATED

    async def test_a_wrong_key_is_no_credential(self, audit, proxy):
        (secret,) = proxy.headers.values()
        owner = audit.world.session("owner")
        for value in ("", "cs_", secret[:-1], secret + "x", secret.upper(), "ü"):
            for cookie in ({}, owner):
                principal = IngestPrincipal(audit.world, {"x-service-api-key": value, **cookie})
                assert await principal.refusal(installs(1)) == UNAUTHENTICATED
        bearer = IngestPrincipal(audit.world, {"authorization": f"Bearer {secret}"})
        assert await bearer.refusal(installs(1)) == UNAUTHENTICATED

    async def test_two_keys_are_no_credential(self, audit, proxy):
        """The sender of the rows would be ambiguous."""
        headers = Headers([*proxy.headers.items()] * 2)
        headers["content-type"] = "application/json"
        headers.add("x-service-api-key", next(iter(proxy.headers.values())))

        answer = await audit.world.client.post(path(), data=b"[]", headers=headers)

        assert await refused(answer) == UNAUTHENTICATED

    async def test_an_admin_token_beside_a_key_decides_alone(self, audit, proxy, admin):
        wrong = IngestPrincipal(audit.world, {**proxy.headers, "x-service-admin-token": "wrong"})
        both = IngestPrincipal(audit.world, {**proxy.headers, **admin.headers})

        assert await wrong.refusal(installs(1)) == UNAUTHENTICATED
        assert await both.accepted(installs(1)) == 1
        (row,) = await audit.world.audit(event="install_allowed")
        assert row["actor"] == "system:admin-token"

    async def test_who_may_not_send_is_told_so_whatever_they_send(self, audit):
        """A stranger's body is not read."""
        principal = IngestPrincipal(audit.world, {})
        for body in (b"[", b"x" * (BYTES_MAX + 1), b""):
            assert await principal.refusal(body, content_encoding="br") == UNAUTHENTICATED

    async def test_an_unknown_parameter_is_refused(self, audit, admin):
        answer = await audit.world.client.post(
            f"{path()}?dry_run=1", json=installs(1), headers=admin.headers
        )

        assert await refused(answer) == (400, "unknown query parameter: dry_run")
        assert await names(audit) == []


class TestIdempotency:
    """A request that is sent again under its key adds nothing."""

    async def test_a_repeat_gets_the_same_bytes(self, audit, proxy):
        body = [install("a"), install("b", actor="me")]

        first = await proxy.send(body, idempotency_key="k1")
        again = await proxy.send(body, idempotency_key="k1")

        assert first.status_code == again.status_code == 200
        assert await first.get_data() == await again.get_data()
        assert await names(audit) == ["a"]

    async def test_the_repeat_may_be_packed_otherwise(self, audit, proxy):
        raw = json.dumps(installs(1)).encode()
        await proxy.accepted(raw, idempotency_key="k1")

        assert await proxy.accepted(
            gzip.compress(raw), idempotency_key="k1", content_encoding="gzip"
        )
        assert await names(audit) == ["p0"]

    async def test_another_body_is_409(self, audit, proxy):
        """One of the two would be lost silently."""
        await proxy.accepted(installs(1), idempotency_key="k1")

        assert await proxy.refusal(installs(2), idempotency_key="k1") == KEY_REUSED
        assert await names(audit) == ["p0"]
        assert await proxy.accepted(installs(2, first=1), idempotency_key="k2") == 2

    async def test_without_a_key_every_request_counts(self, audit, proxy):
        """Two installs of the same package are two installs."""
        for _ in range(2):
            await proxy.accepted(installs(1))

        assert await names(audit) == ["p0", "p0"]

    async def test_other_senders_have_keys_of_their_own(self, audit, proxy, admin):
        second = IngestPrincipal(audit.world, (await new_key(audit.world, audit.world.acme))[1])
        elsewhere = IngestPrincipal(audit.world, admin.headers, "other")
        for number, principal in enumerate([proxy, second, admin, elsewhere]):
            await principal.accepted(installs(1, first=number), idempotency_key="k1")

        assert await names(audit) == ["p0", "p1", "p2"]
        assert await names(audit, "other") == ["p3"]

    async def test_a_key_is_remembered_for_a_day(self, audit, proxy):
        await proxy.accepted(installs(1), idempotency_key="k1")
        audit.clock.advance(hours=24, microseconds=-1)
        await proxy.accepted(installs(1), idempotency_key="k1")
        assert await names(audit) == ["p0"]

        audit.clock.advance(microseconds=1)
        await proxy.accepted(installs(1, first=1), idempotency_key="k1")

        assert await names(audit) == ["p0", "p1"]
        assert await proxy.refusal(installs(1), idempotency_key="k1") == KEY_REUSED

    async def test_expired_answers_are_deleted_some_at_a_time(self, audit, proxy, monkeypatch):
        """Answers would pile up otherwise; younger ones stay."""
        monkeypatch.setattr(idempotency, "DELETED_MAX", 2)
        for key in ("old 1", "old 2", "old 3"):
            await proxy.accepted(installs(1), idempotency_key=key)
        audit.clock.advance(hours=24)
        await proxy.accepted(installs(1), idempotency_key="young")

        sweep = audit.services.garbage_collector.delete_expired_answers
        assert [await sweep() for _ in range(3)] == [2, 1, 0]

        async with audit.services.store.read() as session:
            assert (await session.scalars(select(IdempotencyKey.key))).all() == ["young"]

    async def test_twins_at_the_same_time_add_their_rows_once(self, audit, proxy):
        answers = await asyncio.gather(
            *(proxy.send(installs(3), idempotency_key="k1") for _ in range(20))
        )

        assert {answer.status_code for answer in answers} == {200}
        assert len({await answer.get_data() for answer in answers}) == 1
        assert await names(audit) == ["p0", "p1", "p2"]

    async def test_of_different_bodies_at_the_same_time_one_wins(self, audit, proxy):
        answers = await asyncio.gather(
            *(proxy.send(installs(1, first=n), idempotency_key="k1") for n in range(8))
        )

        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
        assert len(await names(audit)) == 1

    @pytest.mark.parametrize("key", [" ", "~", "k" * 255, 'a "b" c', "é".encode().hex()])
    async def test_a_key_is_printable_ascii(self, audit, proxy, key):
        assert await proxy.accepted(installs(1), idempotency_key=key) == 1

    @pytest.mark.parametrize("key", ["", "k" * 256, "é", "a\tb", "\x7f"])
    async def test_any_other_key_is_refused(self, audit, proxy, key):
        assert await proxy.refusal(installs(1), idempotency_key=key) == (
            400,
            "Idempotency-Key must be 1..255 printable ASCII characters",
        )
        assert await names(audit) == []

    async def test_a_refused_request_does_not_use_its_key_up(self, audit, proxy):
        """It can be corrected and sent again."""
        assert await proxy.refusal(b"[", idempotency_key="k1") == NOT_ITEMS

        assert await proxy.accepted(installs(1), idempotency_key="k1") == 1

    async def test_a_request_that_adds_nothing_does_not_use_its_key_up_either(self, audit, proxy):
        """There is nothing to protect from a repeat."""
        ahead = (audit.clock() + timedelta(seconds=90)).isoformat()
        body = [install("a", created_at=ahead)]
        first = await proxy.send(body, idempotency_key="k1")
        assert (await first.get_json())["accepted"] == 0
        audit.clock.advance(seconds=60)

        assert await proxy.accepted(body, idempotency_key="k1") == 1
        assert await proxy.accepted(body, idempotency_key="k1") == 1
        assert await names(audit) == ["a"]

    async def test_what_is_kept_of_rejections_is_bounded(self, audit, proxy, admin, monkeypatch):
        """For each organisation; a flood of bad items must not fill the disk of all the others."""
        monkeypatch.setattr(idempotency, "LONG_BYTES_MAX", 30_000)
        bad = [install("a"), *([{"event": "?"}] * 200)]
        statuses = [
            (await proxy.send(bad, idempotency_key=f"k{number}")).status_code
            for number in range(10)
        ]

        assert statuses == sorted(statuses)
        assert {200, 429} == set(statuses)
        async with audit.services.store.read() as session:
            answers = await session.scalars(select(IdempotencyKey.answer))
            assert 0 < sum(map(len, answers)) <= 30_000
        assert len(await names(audit)) == statuses.count(200)
        assert await proxy.refusal(bad, idempotency_key="k9") == (
            429,
            "too many rejected items of this organisation are kept for their Idempotency-Key",
        )
        assert await proxy.accepted(installs(1, first=1), idempotency_key="good") == 1
        elsewhere = IngestPrincipal(audit.world, admin.headers, "other")
        assert (await elsewhere.send(bad, idempotency_key="k1")).status_code == 200


@pytest.mark.sqlite_only(reason="counts switches to the connection's thread")
async def test_a_row_after_another_takes_one_trip_to_the_writer_and_none_to_a_reader(
    proxy, monkeypatch
):
    """For the commit the way to the writer takes longer than the work."""
    await proxy.accepted(installs(1))
    trips = []
    kept = SqliteConnection._execute

    async def counted(self, fn, *arguments, **named):
        trips.append(fn)
        return await kept(self, fn, *arguments, **named)

    monkeypatch.setattr(SqliteConnection, "_execute", counted)
    await proxy.accepted(installs(1), idempotency_key="k1")

    assert len(trips) == 1


class TestBounds:
    """A flood from one organisation holds up no other."""

    async def fill(self, principal: IngestPrincipal) -> None:
        """Send until nothing more fits."""
        await principal.accepted(installs(10_000))
        answer = await principal.send(installs(5_000))
        while answer.status_code == 200:
            answer = await principal.send(installs(500))

    async def test_a_full_journal_refuses_and_says_when_to_come_back(self, audit, proxy):
        await self.fill(proxy)
        before = await self.journal_rows(audit)
        answer = await proxy.send(installs(5_000), idempotency_key="k1")

        assert await refused(answer) == FULL
        assert int(answer.headers["retry-after"]) > 0
        assert await self.journal_rows(audit) == before
        room = JOURNAL_MAX - before
        assert await proxy.refusal(installs(room + 1)) == FULL
        assert await proxy.accepted(installs(room)) == room
        assert await proxy.refusal(installs(1)) == FULL

    async def test_rows_of_many_days_fill_the_journal_sooner(self, audit, proxy, monkeypatch):
        """Each day is a batch, and every query of the organisation reads them all."""
        monkeypatch.setattr(sealer, "BATCHES_MIN", 0)
        a_year = [
            install(created_at=(audit.clock() - timedelta(days=day)).isoformat())
            for day in range(300)
        ]
        statuses = {(await proxy.send(a_year)).status_code for _ in range(4)}

        assert statuses == {200, 429}
        journal = await self.journal(audit)
        assert journal.batches <= JOURNAL_MAX // sealer.BATCH_ROWS
        assert journal.rows < 4 * 300

    async def test_long_rows_fill_the_journal_sooner(self, audit, proxy, admin, monkeypatch):
        """They pack to next to nothing, but every query of the organisation decodes them."""
        monkeypatch.setattr(sealer, "BYTES_MIN", 0)
        long_rows = [
            {
                "event": "blocklist_hit",
                "packageName": f"p{number}",
                "envelope": {"rule_id": "x" * 4_000, "source": "osv"},
            }
            for number in range(500)
        ]
        statuses = [(await proxy.send(long_rows)).status_code for _ in range(4)]

        assert statuses == [200, 200, 429, 429]
        assert await proxy.refusal(long_rows) == FULL
        journal = await self.journal(audit)
        assert journal.bytes <= JOURNAL_MAX * sealer.ROW_BYTES
        assert journal.rows < JOURNAL_MAX / 8
        assert (await proxy.send(long_rows[:1])).status_code == 200
        elsewhere = IngestPrincipal(audit.world, admin.headers, "other")
        assert await elsewhere.accepted(long_rows) == 500
        assert (await audit.world.create(**binding_body())).status_code == 201

        await audit.seal()

        assert await proxy.accepted(long_rows) == 500

    async def test_single_long_rows_fill_it_too(self, audit, proxy, monkeypatch):
        monkeypatch.setattr(sealer, "BYTES_MIN", 0)
        monkeypatch.setattr(sealer, "ROW_BYTES", 1)
        envelope = {"rule_id": "x" * 4_000, "source": "osv"}
        item = {"event": "blocklist_hit", "packageName": "p", "envelope": envelope}

        statuses = [(await proxy.send([item])).status_code for _ in range(5)]

        assert statuses == sorted(statuses)
        assert set(statuses) == {200, 429}

    async def test_a_journal_of_long_rows_is_due_before_it_is_full(self, audit, proxy):
        """The sealer makes room, and no sender is refused for long."""
        (batch,) = encode_days([sample_row()])
        assert sealer.BYTES_MAX <= sealer.BYTES_MIN / 2
        assert await audit.services.sealer.seal_due() == []
        async with audit.services.store.write() as work:
            large = replace(batch, size=sealer.BYTES_MAX)
            work.journal.add_batches(audit.world.acme.id, [large])

        assert await proxy.accepted(installs(1)) == 1
        assert await audit.services.sealer.seal_due()

    async def test_a_journal_of_single_rows_is_due_before_it_is_full(self, audit, proxy):
        batches_max = JOURNAL_MAX // sealer.BATCH_ROWS
        assert batches_max < sealer.BATCHES_MAX
        async with audit.services.store.write() as work:
            work.journal.add_batches(
                audit.world.acme.id,
                [batch for _ in range(sealer.BATCHES_MAX) for batch in encode_days([sample_row()])],
            )

        assert await proxy.accepted(installs(1)) == 1
        assert await audit.services.sealer.seal_due()

    async def test_only_ingest_of_this_organisation_stops(self, audit, proxy, admin):
        """A flood blocks no revoke, export or ingest, not even its sender's."""
        await self.fill(proxy)
        world = audit.world

        assert await IngestPrincipal(world, admin.headers, "other").accepted(installs(10)) == 10
        created = await world.create(**binding_body())
        assert created.status_code == 201
        binding_id = (await created.get_json())["id"]
        revoked = await world.client.delete(
            bindings_path(binding_id=binding_id), headers=world.admin
        )
        assert revoked.status_code == 200
        exported = await audit.export(format="csv")
        assert exported.status_code == 200
        assert len((await exported.get_data()).splitlines()) > 10_000

    async def test_a_repeat_is_answered_while_the_journal_is_full(self, audit, proxy):
        """Its rows are in already."""
        await proxy.accepted(installs(1), idempotency_key="k1")
        await self.fill(proxy)

        assert await proxy.accepted(installs(1), idempotency_key="k1") == 1

    async def test_after_sealing_there_is_room_again(self, audit, proxy):
        await self.fill(proxy)
        assert await proxy.refusal(installs(5_000), idempotency_key="k1") == FULL

        await audit.seal()

        assert await proxy.accepted(installs(5_000), idempotency_key="k1") == 5_000

    async def test_no_more_than_so_many_requests_wait_at_a_time(self, audit, proxy, admin):
        """While the database is held up the others of this organisation are sent away at once."""
        async with audit.services.store.write():
            waiting = [
                asyncio.create_task(proxy.send(installs(1, first=number)))
                for number in range(ingest.WAITING_MAX)
            ]
            while self.waits(audit) < ingest.WAITING_MAX:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0)
            answer = await proxy.send(installs(1))
            elsewhere = asyncio.create_task(
                IngestPrincipal(audit.world, admin.headers, "other").send(installs(1))
            )

            assert await refused(answer) == (429, "too many requests of this organisation at once")
            assert int(answer.headers["retry-after"]) > 0
        answers = await asyncio.gather(*waiting, elsewhere)

        assert {answer.status_code for answer in answers} == {200}
        assert len(await names(audit)) == ingest.WAITING_MAX
        assert await proxy.accepted(installs(1)) == 1

    def waits(self, audit: AuditWorld) -> int:
        """How many requests of acme wait for their commit."""
        return audit.services.ingest._waiting[audit.world.acme.id]

    async def journal(self, audit: AuditWorld) -> JournalSize:
        """How much of acme is not sealed yet."""
        count = partial(count_journal, tenant_id=audit.world.acme.id)
        return await audit.services.store.read_at_once(count)

    async def journal_rows(self, audit: AuditWorld) -> int:
        """How many rows of acme are not sealed yet."""
        return (await self.journal(audit)).rows
