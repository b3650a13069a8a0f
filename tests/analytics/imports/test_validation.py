"""What a row with a history of its own must be: each row is judged on its own."""

import json
import types
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec
import pytest

from analytics.imports.items import NOT_AN_OBJECT, ImportItem, read_object
from analytics.imports.validation import MEMO_MAX, RowImporter
from analytics.model.decision_reason import compact, decision_reason
from analytics.model.envelopes import ENVELOPES, EVENTS, VerifiedCi
from analytics.model.events import Event
from analytics.model.instants import format_us
from analytics.model.row_validation import AcceptedInterval, RowRefused
from analytics.model.rows import AuditRow, VerdictSource
from tests.conftest import BY_OPERATOR

NOW = datetime(2026, 3, 4, 12, 0, 0, 123_456, tzinfo=UTC)
FLOOR = NOW - timedelta(days=365)
MICROSECOND = timedelta(microseconds=1)
GOOD = {
    "created_at": "2026-03-03T08:00:00Z",
    "event": "blocklist_hit",
    "packageName": "left-pad",
    "payload": {"rule_id": "r1", "source": "osv"},
}
CI = {
    "sub": "repo:acme/payments:ref:refs/heads/main",
    "repository_id": "123456789",
    "event_name": "push",
    "run_id": "1",
    "jti": "a-b-c",
}
BY_CI = {"actor": "key_1", "actor_source": "oidc_github"}
CI_COLUMNS = ("repository_id", "run_id", "token_id")
WHO = {
    "actor": "github:mem_1",
    "actor_source": "session",
    "actor_tenant_id": "org_platform",
    "verdict_source": "dashboard",
    "subject": "mem_1",
    "oidc_binding_id": "obind_1",
    "request_id": "req_1",
    "source_ip": "2001:db8::1",
}
SAMPLES: dict[Any, Any] = {
    str: "x",
    str | None: None,
    bool: True,
    list[str]: ["a", "b"],
    dict[str, int]: {"npm": 1},
    dict[str, str] | msgspec.UnsetType: {"environment": "production"},
    dict[str, list[str]]: {"event": ["x"]},
}


def item(**changes: Any) -> dict[str, Any]:
    """A good item with `changes`; the value `...` takes a key out."""
    return {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}


def row_of(one: bytes | dict[str, Any], row_importer: RowImporter | None = None) -> AuditRow:
    line = one if isinstance(one, bytes) else json.dumps(one).encode()
    return (row_importer or RowImporter(BY_OPERATOR, AcceptedInterval(NOW, FLOOR))).row(
        read_object(line)
    )


def fault_of(one: bytes | dict[str, Any]) -> str:
    with pytest.raises(RowRefused) as refused:
        row_of(one)
    return str(refused.value)


def columns_of(row: AuditRow) -> tuple[str | None, ...]:
    """What `row` has of a CI job."""
    return tuple(getattr(row, column) for column in CI_COLUMNS)


def envelope_of(event: Event) -> dict[str, Any]:
    special: dict[str, Any] = {
        "counter_before": 4,
        "counter_after": 5,
        "published_at": "2026-03-03T08:00:00Z",
    }
    special["cured"] = {"affected": "1.0.0", "advisory_id": "MAL-1"}
    levels = {"level_before": "provenance", "level_now": "none"}
    proof = {"publisher_before": None, "publisher_now": None, "verified": True}
    special |= {**levels, "verified": True, "trust": {**levels, "version_before": "1", **proof}}
    keys = {}
    for key in msgspec.structs.fields(ENVELOPES[event]):
        choices = getattr(key.type, "__args__", (None,))
        if types.NoneType in choices:  # a key that can be empty
            choices = [None]
        elif msgspec.UnsetType in choices:  # a key that older rows do not have
            choices = [[] if str(choices[0]).startswith("list") else "text"]
        keys[key.encode_name] = special.get(
            key.encode_name,
            SAMPLES.get(key.type, 3 if hasattr(key.type, "__metadata__") else choices[0]),
        )
    return keys


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_can_be_imported_with_its_envelope(event):
    keys = envelope_of(event)
    row = row_of(item(event=event, payload=keys, decision=ENVELOPES[event].decision))

    assert (row.event, row.decision) == (event, ENVELOPES[event].decision)
    assert row.payload == compact(keys)
    assert row.decision_reason == decision_reason(keys)


@pytest.mark.parametrize("event", EVENTS)
def test_an_envelope_is_checked_key_by_key(event):
    keys = envelope_of(event)
    required = {f.encode_name for f in msgspec.structs.fields(ENVELOPES[event]) if f.required}

    assert fault_of(item(event=event, payload={**keys, "more": 1})) == (
        "unknown field: payload.more"
    )
    for name in keys:
        short = {key: value for key, value in keys.items() if key != name}
        if name in required:
            assert fault_of(item(event=event, payload=short)) == (f"payload.{name} is required")
        else:
            assert row_of(item(event=event, payload=short)).payload == compact(short)
        wrong = fault_of(item(event=event, payload={**keys, name: {"x": None}}))
        assert wrong.removeprefix("unknown field: ").startswith(f"payload.{name}")


def test_the_shape_of_ingest_is_taken_as_well():
    keys = GOOD["payload"]

    assert row_of(item(payload=..., envelope=keys)) == row_of(GOOD)
    assert row_of(item(envelope=None)) == row_of(GOOD)
    assert "give one of them" in fault_of(item(envelope=keys))
    assert fault_of(item(payload=..., envelope={})).startswith("envelope.")


def test_created_at_and_event_are_all_that_some_rows_need():
    row = row_of({"created_at": "2026-03-03T08:00:00Z", "event": "install_allowed"})

    assert (row.actor, row.actor_source) == ("system:cli", "system")
    assert (row.verdict_source, row.actor_tenant_id) == ("cli", "org_platform")
    assert (row.package_name, row.request_id, row.payload) == (None, None, "{}")
    assert row.received_at == NOW
    assert fault_of(item(created_at=...)) == "created_at is required"
    assert fault_of(item(event=None)) == "event is required"
    assert fault_of(item(event="Nothing")).startswith("event must be one of ")


def test_what_is_given_of_the_other_columns_is_kept():
    row = row_of(item(**WHO, version="1.3.0", decision="BLOCKED"))

    assert {name: getattr(row, name) for name in WHO} == WHO
    assert (row.package_name, row.version, row.decision) == ("left-pad", "1.3.0", "BLOCKED")


def test_what_the_service_alone_says_is_read_over():
    ignored = {"id": "aud_1", "tenant_id": 7, "received_at": [], "decision_reason": {"a": 1}}

    assert row_of(item(**ignored)) == row_of(GOOD)


class TestKeys:
    """A key that is there twice leaves open which value was meant."""

    @pytest.mark.parametrize("key", [*GOOD, *WHO, "version", "decision", "id", "received_at"])
    @pytest.mark.parametrize("again", [None, "the same", 'a"b'])
    @pytest.mark.parametrize("is_first", [True, False])
    def test_no_key_of_a_line_is_given_twice(self, key, again, is_first):
        whole = item(**WHO, version="1", decision="BLOCKED", id="aud_1", received_at="x")
        texts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in whole.items()]
        other = f'"{key}" : {json.dumps(whole[key] if again == "the same" else again)}'
        twice = [other, *texts] if is_first else [*texts, other]

        assert row_of(f"{{{', '.join(texts)}}}".encode())
        assert fault_of(f"{{{', '.join(twice)}}}".encode()) == f"duplicate key: {key}"

    def test_columns_without_a_value_are_no_second_ones(self):
        nulls = dict.fromkeys([name for name in WHO if not name.startswith("actor")])
        reason = compact(GOOD["payload"])

        assert row_of(item(**nulls, id="aud_1", decision_reason=reason)) == row_of(GOOD)

    @pytest.mark.parametrize("name", ["payload", "envelope"])
    @pytest.mark.parametrize(
        "keys",
        [
            '"rule_id": "r0", "rule_id": "r1", "source": "osv"',
            '"rule_id": "r1", "source": "osv", "s\\u006furce":"osv"',
            '"rule_id": "r1", "source": "osv", "ci": {"sub": "a", "sub": "b"}',
        ],
    )
    def test_no_key_of_an_envelope_is_given_twice(self, name, keys):
        members = {**item(payload=...), **BY_CI}
        line = f'{json.dumps(members)[:-1]}, "{name}": {{{keys}}}}}'
        cell = ImportItem(
            **{
                "package_name" if key == "packageName" else key: value
                for key, value in members.items()
            }
        )
        setattr(cell, name, msgspec.Raw(f"{{{keys}}}"))

        assert fault_of(line.encode()).startswith("duplicate key: ")
        with pytest.raises(RowRefused, match="duplicate key: "):
            RowImporter(BY_OPERATOR, AcceptedInterval(NOW, FLOOR)).row(cell)


class TestActor:
    """Who acted comes whole, or not at all."""

    @pytest.mark.parametrize("source", ["admin_token", "api_key", "session", "system"])
    @pytest.mark.parametrize("tenant", [None, "org_platform"])
    def test_known_sources_are_kept(self, source, tenant):
        row = row_of(item(actor="a", actor_source=source, actor_tenant_id=tenant))

        assert (row.actor, row.actor_source, row.actor_tenant_id) == ("a", source, tenant)

    @pytest.mark.parametrize(
        "source", ["root", "oidc_", "OIDC_github", "oidc_Git", "oidc_a b", "oidc__a", None]
    )
    def test_other_sources_are_refused(self, source):
        assert fault_of(item(actor="a", actor_source=source)).startswith("actor_source must be ")

    @pytest.mark.parametrize("column", ["actor_source", "actor_tenant_id"])
    def test_without_an_actor_nothing_is_said_of_one(self, column):
        """Otherwise the operator would appear with another's credentials."""
        assert fault_of(item(**{column: "session"})) == (
            "actor_source and actor_tenant_id need an actor"
        )

    @pytest.mark.parametrize("ecosystem", ["pypi", "npm"])
    def test_the_ecosystem_is_one_of_ours(self, ecosystem):
        assert row_of(item(ecosystem=ecosystem)).ecosystem == ecosystem
        assert fault_of(item(ecosystem=f"{ecosystem}x")) == "ecosystem must be one of pypi, npm"

    @pytest.mark.parametrize("source", VerdictSource)
    def test_verdict_source_is_one_of_ours(self, source):
        assert row_of(item(verdict_source=source)).verdict_source == source
        assert "must be one of proxy" in fault_of(item(verdict_source=f"{source}x"))


class TestCi:
    """The claims of a verified token are kept beside the envelope."""

    def test_it_is_kept_in_the_payload_and_not_in_the_reason(self):
        row = row_of(item(payload={**GOOD["payload"], "ci": CI}, **BY_CI))

        assert json.loads(row.payload) == {**GOOD["payload"], "ci": CI}
        assert json.loads(row.decision_reason) == GOOD["payload"]

    @pytest.mark.parametrize("key", [key for key in CI if key != "sub"])
    def test_what_a_token_did_not_say_stays_unsaid(self, key):
        for ci in ({**CI, key: None}, {name: value for name, value in CI.items() if name != key}):
            row = row_of(item(payload={**GOOD["payload"], "ci": ci}, **BY_CI))
            assert json.loads(row.payload)["ci"] == ci

    @pytest.mark.parametrize(
        ("ci", "fault"),
        [
            (None, "payload.ci must be "),
            ({}, "payload.ci.sub is required"),
            ({**CI, "aud": "x"}, "unknown field: payload.ci.aud"),
            ({**CI, "run_id": 7}, "payload.ci.run_id must be "),
        ],
    )
    def test_it_is_checked_like_an_envelope(self, ci, fault):
        assert fault_of(item(payload={**GOOD["payload"], "ci": ci}, **BY_CI)).startswith(fault)

    @pytest.mark.parametrize("who", [{}, {"actor": "key_1", "actor_source": "api_key"}])
    def test_no_one_else_was_a_ci_job(self, who):
        row_importer = RowImporter(BY_OPERATOR, AcceptedInterval(NOW, FLOOR))
        good = item(payload={**GOOD["payload"], "ci": CI})
        row_of({**good, **BY_CI}, row_importer)

        with pytest.raises(RowRefused, match="ci is only for rows"):
            row_of({**good, **who}, row_importer)

    @pytest.mark.parametrize("unsaid", [{}, {"run_id": None}, {"run_id": ""}, {"run_id": "\0"}])
    def test_what_it_does_not_say_in_print_is_null(self, unsaid):
        row = row_of(item(payload={**GOOD["payload"], "ci": {"sub": "s", **unsaid}}, **BY_CI))

        assert columns_of(row) == (None, None, None)

    def test_the_columns_may_be_given_as_well(self):
        ci = {key: value for key, value in CI.items() if key != "run_id"}
        given = {"repository_id": "123456789", "run_id": "9", "token_id": "a-b-c"}

        for payload in (..., {**GOOD["payload"], "ci": CI | {"run_id": "9"}}):
            changes = {} if payload is ... else {"payload": payload}
            assert columns_of(row_of(item(**changes, **given, **BY_CI))) == tuple(given.values())
        row = row_of(item(payload={**GOOD["payload"], "ci": ci}, run_id="9", **BY_CI))
        assert columns_of(row) == tuple(given.values())
        assert columns_of(row_of(item(token_id="t", **BY_CI))) == (None, None, "t")

    @pytest.mark.parametrize("column", CI_COLUMNS)
    @pytest.mark.parametrize("claim", ["another", "\0"])
    def test_the_two_agree(self, column, claim):
        """Otherwise a filter would find a row that shows something else."""
        ci = CI | {"jti" if column == "token_id" else column: claim}

        assert fault_of(
            item(payload={**GOOD["payload"], "ci": ci}, **{column: "1234"}, **BY_CI)
        ) == (f"{column} must be as ci in the payload says, or left out")

    @pytest.mark.parametrize("column", CI_COLUMNS)
    @pytest.mark.parametrize("who", [{}, {"actor": "key_1", "actor_source": "api_key"}])
    def test_only_a_ci_job_has_the_columns(self, column, who):
        assert fault_of(item(**{column: "7"}, **who)) == (
            f"{column} is only for rows whose actor_source is oidc_<provider>"
        )

    def test_the_keys_are_those_of_the_documented_payload(self):
        assert list(VerifiedCi.__struct_fields__) == list(CI)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("wrong", ["ALLOWED", "BLOCKED", "", "MAYBE"])
def test_a_decision_that_disagrees_with_its_event_is_refused(event, wrong):
    settled = ENVELOPES[event].decision
    if wrong == settled:
        return
    fault = fault_of(item(event=event, payload=envelope_of(event), decision=wrong))

    assert fault == f"decision of {event} must be {settled or 'null'}"


class TestAdmission:
    """What the install proxy based an install on is kept beside the envelope, too."""

    SAID: ClassVar = {
        "registry": "https://registry.npmjs.org/",
        "policy_revision": 7,
        "blocklist_generation": 0,
        "rule_id": "urgent",
        "digest": f"sha512:{'0f' * 64}",
    }

    def test_it_is_kept_in_the_payload_and_not_in_the_reason(self):
        row = row_of(item(event="install_allowed", payload={"admission": self.SAID}))

        assert json.loads(row.payload) == {"admission": self.SAID}
        assert row.decision_reason == "{}"

    @pytest.mark.parametrize(
        ("changes", "fault"),
        [
            ({"digest": "sha512:x"}, "payload.admission.digest"),
            ({"policy_revision": -1}, "payload.admission.policy_revision must be"),
            ({"scans": 1}, "unknown field: payload.admission.scans"),
        ],
    )
    def test_it_is_checked_like_an_envelope(self, changes, fault):
        payload = {"admission": self.SAID | changes}
        assert fault_of(item(event="install_allowed", payload=payload)).startswith(fault)

    def test_what_was_refused_was_not_admitted(self):
        payload = {**GOOD["payload"], "admission": self.SAID}
        assert fault_of(item(payload=payload)) == "unknown field: payload.admission"


class TestText:
    """Bounded and visible, whichever column it is in."""

    BASE = item(actor="a", actor_source="oidc_github")

    @pytest.mark.parametrize(
        ("column", "longest"),
        [
            ("packageName", 512),
            ("version", 256),
            ("actor", 256),
            ("actor_tenant_id", 64),
            ("subject", 1024),
            ("oidc_binding_id", 64),
            ("request_id", 128),
            ("source_ip", 64),
            ("repository_id", 256),
            ("run_id", 256),
            ("token_id", 256),
            ("file_name", 512),
            ("client", 64),
        ],
    )
    def test_both_sides_of_each_length(self, column, longest):
        for character in ("a", "🦊"):
            assert row_of({**self.BASE, column: character * longest})
            for wrong in ("", character * (longest + 1)):
                assert fault_of({**self.BASE, column: wrong}) == (
                    f"{column} must be 1..{longest} characters"
                )

    @pytest.mark.parametrize(
        "column",
        ["packageName", "version", "actor", "file_name", "client", *list(WHO)[4:], *CI_COLUMNS],
    )
    @pytest.mark.parametrize("hidden", ["\0", "\x1b", "\n", "\u200b", "\u202e", "\ufeff"])
    def test_what_cannot_be_seen_is_refused(self, column, hidden):
        assert fault_of({**self.BASE, column: f"a{hidden}b"}) == (
            f"{column} must have printable characters only"
        )

    @pytest.mark.parametrize("wrong", ["", "0a", "0A" * 32, "0a" * 33, f"{'0a' * 31} a", "٠a" * 32])
    def test_a_digest_has_one_spelling(self, wrong):
        """A filter compares texts: another spelling of a digest would not be found."""
        assert row_of(item(file_sha256="0a" * 32)).file_sha256 == "0a" * 32
        assert fault_of(item(file_sha256=wrong)) == (
            "file_sha256 must be 64 hex digits in lower case"
        )

    @pytest.mark.parametrize("column", ["packageName", "version"])
    @pytest.mark.parametrize("text", [" ", " left-pad", "left-pad ", "\tleft-pad", "x\xa0"])
    def test_white_space_around_a_name_is_refused(self, column, text):
        """A filter for the package would not find the row."""
        assert fault_of(item(**{column: text})) == (
            f"{column} must not begin or end with white space"
        )
        assert row_of(item(**{column: "a b"}))

    @pytest.mark.parametrize("column", [name for name in GOOD if name != "payload"] + [*WHO])
    @pytest.mark.parametrize("value", [1, 1.5, True, ["x"], {"x": 1}])
    def test_a_value_of_another_type_is_refused_by_name(self, column, value):
        assert fault_of(item(**{column: value})).startswith(f"{column} must be ")


class TestInstant:
    """Within the interval that ingest accepts, refused with the same texts."""

    @pytest.mark.parametrize(
        ("instant", "fault"),
        [
            (FLOOR - MICROSECOND, "created_at is before the retention floor"),
            (
                NOW + timedelta(seconds=60) + MICROSECOND,
                "created_at is more than 60 seconds ahead",
            ),
        ],
    )
    def test_beyond_them_a_row_is_refused(self, instant, fault):
        assert fault_of(item(created_at=format_us(instant))) == fault

    @pytest.mark.parametrize("text", ["", "yesterday", "2026-03-03", "2026-02-30T00:00:00Z"])
    def test_what_is_no_instant_is_refused(self, text):
        assert fault_of(item(created_at=text)) == "created_at must be an RFC 3339 instant"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"x",
        b'{"event"',
        b'{"event": "a\0"}',
        b'{"event": "\xff"}',
        b'{"id": "\xff"}',
        b'{"payload": {"rule_id": "\xff"}}',
        b'{"event": "\\ud800"}',
        b'{"payload": {"rule_id": tru}}',
        b"{} {}",
        b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"NaN",
    ],
)
def test_a_line_that_is_no_json_object_is_refused(line):
    assert fault_of(line) == f"the line {NOT_AN_OBJECT}"


@pytest.mark.parametrize("line", [b"[]", b'"x"', b"1", b"null"])
def test_a_line_that_is_another_json_value_is_refused(line):
    assert fault_of(line).startswith("item must be a JSON object, not ")


@pytest.mark.parametrize("name", ["package_name", "Event", "seq", "\x1b[2J"])
def test_an_unknown_column_is_refused_by_name(name):
    assert fault_of(item(**{name: None})) == f"unknown field: {name}"


def test_deep_nesting_in_an_envelope_is_refused():
    deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    line = json.dumps(item(payload=...)).encode()[:-1] + b',"payload":' + deep + b"}"

    assert fault_of(line)


def test_what_is_remembered_is_bounded():
    row_importer = RowImporter(BY_OPERATOR, AcceptedInterval(NOW, FLOOR))
    for number in range(MEMO_MAX + 10):
        row = row_of(item(payload={"rule_id": f"r{number}", "source": "osv"}), row_importer)
        assert json.loads(row.payload)["rule_id"] == f"r{number}"

    assert len(row_importer._said) <= MEMO_MAX


def test_an_error_does_not_repeat_a_whole_file():
    row_importer = RowImporter(BY_OPERATOR, AcceptedInterval(NOW, FLOOR))
    rows, refused = row_importer.rows([(7, RowRefused("x" * 1_000_000))])

    assert rows == []
    assert [(one.line, len(one.error)) for one in refused] == [(7, 300)]
