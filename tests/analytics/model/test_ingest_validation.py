"""What an item from outside must be to become a row; each is judged on its own."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model import ingest_validation
from analytics.model.envelopes import ENVELOPES, EVENTS
from analytics.model.ingest_validation import (
    ENVELOPE_BYTES_MAX,
    INGESTIBLE,
    NOT_JSON,
    ItemRejection,
    read_items,
)
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import AuditContext, AuditRow, VerdictSource
from analytics.storage.journal_batches import encode_days

NOW = datetime(2026, 3, 4, 12, 0, 0, 123_456, tzinfo=UTC)
FLOOR = NOW - timedelta(days=365)
MICROSECOND = timedelta(microseconds=1)
WINDOW = AcceptedInterval(NOW, FLOOR)
AUDIT_CONTEXT = AuditContext(
    actor="key_1",
    actor_source="api_key",
    verdict_source=VerdictSource.PROXY,
    request_id="req_1",
    source_ip="192.0.2.7",
)
GOOD = {
    "event": "blocklist_hit",
    "packageName": "left-pad",
    "envelope": {"rule_id": "r1", "source": "osv"},
}
INSTALLS = {
    "oss_first_party": ("ALLOWED", {"registry": "npm.acme.example"}),
    "install_allowed": ("ALLOWED", {}),
    "blocklist_hit": ("BLOCKED", {"rule_id": "r1", "source": "operator"}),
    "cooldown_active": (
        "BLOCKED",
        {"published_at": "2026-03-03T08:00:00Z", "min_age_days": 7},
    ),
}


def item(**changes: Any) -> dict[str, Any]:
    """A good item with `changes`; the value `...` takes a key out."""
    return {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}


def read(*items: bytes | dict[str, Any]) -> tuple[list[AuditRow], list[ItemRejection]]:
    """Rows and rejections of `items`; what is not bytes is sent as JSON."""
    raw = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in items]
    return read_items(raw, AUDIT_CONTEXT, WINDOW)


def row_of(one: bytes | dict[str, Any]) -> AuditRow:
    rows, rejected = read(one)
    assert rejected == []
    (row,) = rows
    return row


def fault_of(one: bytes | dict[str, Any]) -> str:
    """Why a bad item is not taken: told with its index, while its neighbours are."""
    rows, rejected = read(GOOD, one, GOOD)
    assert len(rows) == 2
    ((index, error),) = [(fault.index, fault.error) for fault in rejected]
    assert index == 1
    return error


def test_the_events_to_be_sent_are_the_installs():
    assert set(INGESTIBLE) == set(INSTALLS)


@pytest.mark.parametrize("event", INSTALLS)
@pytest.mark.parametrize("says_decision", [True, False])
def test_an_install_becomes_a_row(event, says_decision):
    decision, envelope = INSTALLS[event]
    row = row_of(item(event=event, envelope=envelope, decision=decision if says_decision else ...))

    assert (row.event, row.decision) == (event, decision)
    assert json.loads(row.payload) == envelope
    assert json.loads(row.decision_reason) == envelope


@pytest.mark.parametrize("ecosystem", ["npm", "pypi"])
def test_an_install_may_name_its_ecosystem(ecosystem):
    """Two registries may have a package of one name."""
    assert row_of(item(ecosystem=ecosystem)).ecosystem == ecosystem
    assert row_of(item()).ecosystem is row_of(item(ecosystem=None)).ecosystem is None


@pytest.mark.parametrize("wrong", ["", "NPM", "npm ", "PyPI", "maven", "n" * 10_000])
def test_another_ecosystem_is_refused(wrong):
    """A filter for one spelling would miss the others."""
    assert fault_of(item(ecosystem=wrong)) == "ecosystem must be one of pypi, npm"


@pytest.mark.parametrize("event", INSTALLS)
@pytest.mark.parametrize("wrong", ["ALLOWED", "BLOCKED", "blocked", "", "MAYBE"])
def test_a_decision_that_disagrees_with_its_event_is_refused(event, wrong):
    """A row that says both would count as either."""
    decision, envelope = INSTALLS[event]
    if wrong == decision:
        wrong = decision.lower()

    error = fault_of(item(event=event, envelope=envelope, decision=wrong))

    assert error == f"decision of {event} must be {decision}"


@pytest.mark.parametrize("event", sorted(set(EVENTS) - set(INSTALLS)))
def test_every_other_event_is_refused_by_name(event):
    keys = {key.encode_name: "x" for key in msgspec.structs.fields(ENVELOPES[event])}

    for envelope in ({}, keys):
        for name in (event, event.upper(), f"{event} ", "", "\0"):
            error = fault_of(item(event=name, envelope=envelope))
            assert error == f"event must be one of {', '.join(INGESTIBLE)}"


def test_the_sender_does_not_set_the_columns_of_the_server():
    row = row_of(GOOD)

    assert (row.actor, row.actor_source, row.verdict_source) == ("key_1", "api_key", "proxy")
    assert (row.request_id, row.source_ip, row.received_at) == ("req_1", "192.0.2.7", NOW)
    assert (row.subject, row.oidc_binding_id, row.actor_tenant_id) == (None, None, None)


SERVER_KEYS = (
    "actor actor_source actor_tenant_id tenant_id request_id source_ip received_at seq id"
    " oidc_binding_id subject verdict_source decision_reason payload package_name"
    " repository_id run_id token_id Event"
)


@pytest.mark.parametrize("key", SERVER_KEYS.split())
@pytest.mark.parametrize("value", ["text", None])
def test_an_unknown_key_is_refused_by_name(key, value):
    assert fault_of(item(**{key: value})) == f"unknown field: {key}"


def test_an_item_is_not_repeated_at_length():
    assert len(fault_of(item(**{"x" * 10_000: 1}))) == 300


@pytest.mark.parametrize("key", ["event", "packageName"])
def test_a_key_that_is_needed_is_named_when_it_is_missing(key):
    assert fault_of(item(**{key: ...})) == f"{key} is required"


@pytest.mark.parametrize(
    ("key", "is_optional"),
    [
        ("event", False),
        ("packageName", False),
        ("version", True),
        ("created_at", True),
        ("decision", True),
        ("envelope", False),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(key, is_optional):
    for value in (1, 1.5, True, ["x"], {"x": 1}, "x", None):
        if isinstance(value, dict if key == "envelope" else str):
            continue
        if value is None and is_optional:
            assert row_of(item(**{key: None}))
        else:
            assert fault_of(item(**{key: value})).startswith(f"{key} must be ")


class TestText:
    """Package names and versions: visible, and of bounded length."""

    @pytest.mark.parametrize(("key", "longest"), [("packageName", 512), ("version", 256)])
    def test_length_is_counted_in_code_points(self, key, longest):
        for character in ("a", "ä", "🦊"):
            row = row_of(item(**{key: character * longest}))
            assert character * longest in {row.package_name, row.version}
            assert fault_of(item(**{key: character * (longest + 1)})) == (
                f"{key} must have at most {longest} characters"
            )
        assert row_of(item(**{key: "a"}))
        assert fault_of(item(**{key: ""})) == f"{key} must have at least 1 characters"

    @pytest.mark.parametrize("key", ["packageName", "version"])
    @pytest.mark.parametrize(
        "hidden", ["\0", "\x1b", "\n", "\t", "\x7f", "\x85", "\u200b", "\u202e", "\u2028", "\ufeff"]
    )
    def test_what_cannot_be_seen_is_refused(self, key, hidden):
        """A name must be what it looks like, in a terminal as on a page."""
        assert fault_of(item(**{key: f"a{hidden}b"})) == (
            f"{key} must have printable characters only"
        )

    @pytest.mark.parametrize("key", ["packageName", "version"])
    @pytest.mark.parametrize(
        "text",
        [" ", "   ", " left-pad", "left-pad ", "\tleft-pad", "left-pad\n", "\u3000x", "x\xa0"],
    )
    def test_white_space_around_a_name_is_refused(self, key, text):
        """The name looks like another package's, and no filter for that finds it."""
        assert fault_of(item(**{key: text})) == f"{key} must not begin or end with white space"

    @pytest.mark.parametrize(
        "text", ["@babel/core", "a b", "a  b", "=cmd()", "日本語", "🦊", "'; --"]
    )
    def test_what_can_be_seen_is_kept_as_it_is(self, text):
        row = row_of(item(packageName=text, version=text))

        assert (row.package_name, row.version) == (text, text)

    @pytest.mark.parametrize("place", ["packageName", "version", "event", "created_at"])
    def test_a_lone_surrogate_is_no_text(self, place):
        """JSON can spell it, UTF-8 cannot."""
        assert fault_of(item(**{place: "\ud800"})) == NOT_JSON
        assert fault_of(item(**{place: "\udc00x"})) == NOT_JSON
        assert fault_of(item(envelope={"\ud800": 1})) == NOT_JSON

    def test_control_characters_of_an_envelope_stay_escaped(self):
        """The payload is JSON: none of it reaches a terminal raw."""
        row = row_of(item(envelope={"rule_id": "\0\x1b[2J\n🦊", "source": "osv"}))

        assert json.loads(row.payload)["rule_id"] == "\0\x1b[2J\n🦊"
        assert row.payload.isprintable()
        assert row.decision_reason == row.payload


class TestEnvelope:
    """Every key of the event's envelope, of its type, and no other."""

    @pytest.mark.parametrize(
        ("event", "key"), [(event, key) for event, (_, keys) in INSTALLS.items() for key in keys]
    )
    def test_a_missing_key_is_named(self, event, key):
        envelope = {name: value for name, value in INSTALLS[event][1].items() if name != key}

        assert fault_of(item(event=event, envelope=envelope)) == (f"envelope.{key} is required")

    @pytest.mark.parametrize("event", INSTALLS)
    def test_an_unknown_key_is_named(self, event):
        envelope = INSTALLS[event][1] | {"event": event}

        assert fault_of(item(event=event, envelope=envelope)) == ("unknown field: envelope.event")

    def test_without_an_envelope_it_is_empty(self):
        assert row_of(item(event="install_allowed", envelope=...)).payload == "{}"
        assert fault_of(item(envelope=...)).startswith("envelope.")

    @pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 5000, "NaN", "Infinity", "01"])
    def test_what_no_number_type_holds_is_refused(self, number):
        raw = json.dumps(
            item(event="cooldown_active", envelope=INSTALLS["cooldown_active"][1])
        ).replace(": 7", f": {number}")

        assert fault_of(raw.encode()).startswith(("envelope", NOT_JSON))

    def test_the_largest_count_is_taken(self):
        envelope = INSTALLS["cooldown_active"][1] | {"min_age_days": 2**63 - 1}

        row = row_of(item(event="cooldown_active", envelope=envelope))

        assert json.loads(row.payload)["min_age_days"] == 2**63 - 1


class TestInstant:
    """By the sender's clock, within the interval that the server accepts."""

    def test_without_one_it_is_the_servers_now(self):
        assert row_of(GOOD).created_at == NOW

    @pytest.mark.parametrize(
        "created_at", [FLOOR, FLOOR + MICROSECOND, NOW, NOW + timedelta(seconds=60)]
    )
    def test_inside_the_window_it_is_kept_to_the_microsecond(self, created_at):
        row = row_of(item(created_at=created_at.isoformat()))

        assert (row.created_at, row.received_at) == (created_at, NOW)

    @pytest.mark.parametrize(
        ("created_at", "error"),
        [
            (
                NOW + timedelta(seconds=60) + MICROSECOND,
                "created_at is more than 60 seconds ahead",
            ),
            (FLOOR - MICROSECOND, "created_at is before the retention floor"),
        ],
    )
    def test_outside_it_is_refused(self, created_at, error):
        """A row that no query shows, or one that stays on top of the log for years."""
        assert fault_of(item(created_at=created_at.isoformat())) == error

    def test_without_a_retention_floor_any_past_is_taken(self):
        raw = json.dumps(item(created_at="0001-01-01T00:00:00Z")).encode()

        rows, rejected = read_items([raw], AUDIT_CONTEXT, AcceptedInterval(NOW, None))

        assert (len(rows), rejected) == (1, [])
        assert [batch.day.isoformat() for batch in encode_days(rows)] == ["0001-01-01"]

    @pytest.mark.parametrize("text", ["2026-03-04T14:00:00+02:00", "2026-03-04 12:00:00"])
    def test_zones_are_converted_and_none_means_utc(self, text):
        assert row_of(item(created_at=text)).created_at == NOW.replace(microsecond=0)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "now",
            "2026-03-04",
            "2026-02-30T00:00:00Z",
            "0001-01-01T00:00:00+05:00",
            "1772625600",
        ],
    )
    def test_what_is_no_instant_is_refused(self, text):
        assert fault_of(item(created_at=text)) == "created_at must be an RFC 3339 instant"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="cut off"),
        pytest.param(json.dumps(GOOD).encode() * 2, id="two"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(json.dumps(GOOD).encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"event": "\xff"}', id="not UTF-8 in a value"),
        pytest.param(b'{"\xff": "x"}', id="not UTF-8 in a key"),
        pytest.param(b'{"event": "install_allowed", "event', id="cut off in a key"),
        pytest.param(b'{"envelope": ' + b'{"a":' * 100_000, id="nested objects"),
        pytest.param(b'{"envelope": {"a": ' + b"[" * 100_000, id="nested lists"),
        pytest.param(b'{"actor": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="nested and whole"),
    ],
)
def test_what_is_not_json_does_not_stop_the_others(raw):
    error = fault_of(raw)

    assert error == NOT_JSON or "unknown field" in error


@pytest.mark.parametrize("raw", [b"null", b"1", b'"text"', b"[]", b"[{}]", b"true"])
def test_what_is_no_object_is_refused(raw):
    assert fault_of(raw).startswith("item must be a JSON object, not ")


NAMED_TWICE = [
    '"packageName": "right-pad"',
    '"packageName" : "right-pad"',
    '"packageName"\t:"right-pad"',
    '"packageName": "left-pad"',
    '"packageN\\u0061me": "right-pad"',
    '"packageName": "a:b,c"',
    '"packageName": "\\"packageName\\":"',
    '"packageName": "\\\\"',
    '"packageName": "\\u0022"',
]
"""A second package name, and ways to spell it that hide it from a search."""


@pytest.mark.parametrize("member", NAMED_TWICE)
@pytest.mark.parametrize("rest", [{}, {"version": None}, {"version": 'a"b', "decision": "BLOCKED"}])
def test_a_key_that_is_given_twice_is_refused(member, rest):
    """Another reader of the same line would take the other value, and see another package."""
    good = json.dumps(item(**rest))
    assert row_of(good.encode())

    for raw in (f"{{{member}, {good[1:]}", f"{good[:-1]}, {member}}}"):
        assert fault_of(raw.encode()) == "duplicate key: packageName"


@pytest.mark.parametrize(
    "member", ['"source": "osv"', '"source": null', '"source":1', '"sourc\\u0065" : {}']
)
def test_no_key_of_an_envelope_is_given_twice(member):
    """The reason why an install was blocked is evidence, too."""
    envelope = f'{{{member}, "rule_id": "r1", "source": "osv"}}'
    raw = f'{{"event": "blocklist_hit", "packageName": "x", "envelope": {envelope}}}'
    twice = '{"event": "install_allowed", "packageName": "x", "envelope": {}, "envelope":{}}'

    assert fault_of(raw.encode()) == "duplicate key: source"
    assert fault_of(twice.encode()) == "duplicate key: envelope"


SPACES = st.sampled_from(["", " ", "\n", "\t \r"])


@st.composite
def spelt_items(draw: st.DrawFn) -> tuple[str, bool]:
    """A good item as some JSON writer spells it, and whether a key is in it twice."""

    def spelt(value: Any) -> str:
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        return json.dumps(value) if not isinstance(value, dict) else spelt_object(value)

    def spelt_object(keys: dict[str, Any]) -> str:
        members = draw(st.permutations([*keys.items(), *extra(keys)]))
        parts = [
            f"{draw(SPACES)}{spelt(key)}{draw(SPACES)}:{draw(SPACES)}{spelt(value)}{draw(SPACES)}"
            for key, value in members
        ]
        return f"{{{','.join(parts)}}}"

    def extra(keys: dict[str, Any]) -> list[tuple[str, Any]]:
        nonlocal is_twice
        if is_twice or not keys or not draw(st.booleans()):
            return []
        is_twice = True
        return [draw(st.sampled_from([*keys.items()]))]

    is_twice = False
    event = draw(st.sampled_from([*INSTALLS]))
    text = st.text(st.sampled_from('a:",\\{}é '), min_size=1).filter(lambda t: t == t.strip())
    optional = {
        "version": st.none() | text,
        "created_at": st.none() | st.just(NOW.isoformat()),
        "decision": st.none() | st.just(INSTALLS[event][0]),
        "ecosystem": st.none() | st.just("npm"),
    }
    keys = {"event": event, "packageName": draw(text), "envelope": INSTALLS[event][1]}
    keys |= draw(st.fixed_dictionaries({}, optional=optional))
    return spelt_object(keys), is_twice


@given(spelt_items())
def test_an_item_is_refused_exactly_if_a_key_is_in_it_twice(spelt):
    text, is_twice = spelt
    rows, rejected = read(text.encode())

    assert len(rows) == (not is_twice)
    assert all(fault.error.startswith("duplicate key: ") for fault in rejected)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from([*EVENTS, "ALLOWED", "2026-03-04T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KEYS = ["event", "packageName", "version", "created_at", "decision", "envelope", "actor"]
ALMOST = st.builds(
    lambda changes: {**GOOD, **changes}, st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3)
)


@given(JSON | ALMOST, st.booleans())
def test_any_json_value_makes_a_row_or_a_rejection(value, is_ascii):
    raw = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")

    rows, rejected = read_items([raw], AUDIT_CONTEXT, WINDOW)

    assert len(rows) + len(rejected) == 1
    assert sum(batch.rows for batch in encode_days(rows)) == len(rows)
    assert all(msgspec.json.encode(fault) for fault in rejected)


@given(st.binary())
def test_any_bytes_make_a_row_or_a_rejection(raw):
    rows, rejected = read_items([raw], AUDIT_CONTEXT, WINDOW)

    assert len(rows) + len(rejected) == 1


@pytest.mark.parametrize("letter", ["a", "é", "🦊"])
def test_an_envelope_is_bounded_in_bytes(letter):
    """Rows bound the journal, so one row must not be as long as a request."""
    room = ENVELOPE_BYTES_MAX - len('{"registry":""}')
    fits = letter * (room // len(letter.encode()))

    def sent(registry: str) -> dict[str, Any]:
        return item(event="oss_first_party", decision=None, envelope={"registry": registry})

    assert row_of(sent(fits)).payload == f'{{"registry":"{fits}"}}'
    assert fault_of(sent(fits + letter)) == "envelope must take at most 4096 bytes"


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"ecosystem": "npm"},
        {"version": None, "ecosystem": None, "created_at": None, "decision": None},
        {"version": "1.0.0", "ecosystem": "npm", "decision": "ALLOWED", "envelope": {}},
        {"event": "blocklist_hit", "envelope": {"rule_id": "GHSA-1", "source": "osv"}},
        {
            "event": "cooldown_active",
            "envelope": {"published_at": "2026-03-04T10:00:00Z", "min_age_days": 7},
        },
    ],
)
def test_a_plain_item_is_read_once(monkeypatch, members):
    """Looking for repeated keys takes as long as everything else."""

    def read_again(raw: bytes) -> None:
        raise AssertionError("read twice")

    monkeypatch.setattr(ingest_validation, "check_keys", read_again)
    item = {"event": "install_allowed", "packageName": "left-pad", **members}

    rows, rejected = read_items([json.dumps(item).encode()], AUDIT_CONTEXT, WINDOW)

    assert (len(rows), rejected) == (1, [])
