"""What rows are as events of OCSF 1.8.0."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from analytics.model.envelopes import ENVELOPES, EVENTS
from analytics.model.events import Event
from analytics.model.rows import AuditRow
from analytics.model.schema import audit_id
from service.audit.streams.ocsf import KINDS, VERSION, OcsfClass
from service.audit.streams.rows import RECONCILIATION, lines_of
from service.audit.streams.sinks import FOR_PEOPLE
from tests.analytics.model.test_decision_reason import envelope_of
from tests.analytics.samples import TENANT, sample_row, table_of
from tests.budgets import budget
from tests.service.audit.streams.receivers import Receiver, deliver_all, deliver_until, receiving
from tests.service.audit.streams.test_delivery import accept, all_ids

SCHEMAS: Final = {
    int(class_uid): Draft202012Validator(schema)
    for class_uid, schema in json.loads(
        (Path(__file__).parent / "ocsf-1.8.0.json").read_text()
    ).items()
}
"""The classes as OCSF's release 1.8.0 has them, with the profiles that we name and the objects that
we fill: all other attributes are errors here. Made by `ocsf-json-schema` 1.2.0 (PyPI)."""

PLACES: Final = {
    "id": "metadata.uid",
    "created_at": "time_dt",
    "received_at": "metadata.logged_time_dt",
    "event": "metadata.event_code",
    "verdict_source": "metadata.product.feature.name",
    "tenant_id": "metadata.tenant_uid",
    "request_id": "metadata.correlation_uid",
    "actor": "actor.user.uid",
    "actor_tenant_id": "actor.user.org.uid",
    "decision_reason": "status_detail",
}
OF_INSTALLS: Final = {
    "packageName": "app.name",
    "version": "app.version",
}
ACTIONS: Final = {1: "ALLOWED", 2: "BLOCKED"}
OPTIONAL: Final = [
    field.name
    for field in msgspec.structs.fields(AuditRow)
    if field.default is None and field.name != "decision"
]


def value_at(event: Mapping[str, Any], place: str) -> Any:
    value: Any = event
    for name in place.split("."):
        value = value.get(name, {})
    return value


def events_of(*rows: AuditRow) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row as it is stored, and as an event."""
    table = table_of(rows)
    lines = [lines_of(TENANT, name, table) for name in ("wire", "ocsf")]
    return [
        (json.loads(wire.text), json.loads(event.text)) for wire, event in zip(*lines, strict=True)
    ]


def row_of(event: Event, payload: Mapping[str, Any], **columns: Any) -> AuditRow:
    text = json.dumps(payload)
    decision = ENVELOPES[event].decision
    return sample_row(event=event, decision=decision, payload=text, **columns)


def check(wire: dict[str, Any], event: dict[str, Any]) -> None:
    """It is valid, and has each value of the row in its place, or under its name in `unmapped`."""
    assert [error.message for error in SCHEMAS[event["class_uid"]].iter_errors(event)] == []
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
    assert event["metadata"]["version"] == VERSION
    assert audit_id(event["metadata"]["sequence"]) == wire["id"]
    is_install = event["class_uid"] == OcsfClass.APPLICATION_LIFECYCLE
    endpoint = "device" if "host" in event["metadata"]["profiles"] else "src_endpoint"
    places = PLACES | {"source_ip": f"{endpoint}.ip"} | (OF_INSTALLS if is_install else {})
    for name, value in wire.items():
        if name == "decision" and is_install and value:
            assert ACTIONS[event["action_id"]] == value
        elif value is not None and name not in event["unmapped"]:
            assert value_at(event, places[name]) == value, name
        elif value is not None:
            assert event["unmapped"][name] == value


def test_every_event_of_the_catalogue_has_a_class():
    assert KINDS.keys() == set(EVENTS)


@pytest.mark.parametrize("event", EVENTS)
@settings(max_examples=budget(2, 25))
@given(st.data())
def test_every_event_is_valid_and_loses_nothing(event, data):
    payload = data.draw(envelope_of(ENVELOPES[event]))
    absent = data.draw(st.sets(st.sampled_from(OPTIONAL)))
    for wire, made in events_of(row_of(event, payload, **dict.fromkeys(absent))):
        check(wire, made)


@pytest.mark.parametrize("address", ["", "host", "2001:db8::1", "192.0.2.7:80", "1.2.3"])
@pytest.mark.parametrize("event", ["install_allowed", "audit_read", "member_added"])
def test_what_is_no_address_is_not_said_to_be_one(event, address):
    """Imported rows may have any text."""
    ((wire, made),) = events_of(row_of(event, {}, source_ip=address))
    check(wire, made)
    assert ("source_ip" in made["unmapped"]) == (address != "2001:db8::1")


def test_a_blocked_install_is_a_denied_one():
    ((_, made),) = events_of(row_of("blocklist_hit", {"rule_id": "r", "source": "osv"}))
    assert (made["class_uid"], made["type_uid"]) == (6002, 600201)
    assert (made["action_id"], made["disposition_id"], made["status_id"]) == (2, 2, 2)
    assert made["app"] == {"name": "left-pad", "version": "1.3.0"}


def test_a_revoked_binding_is_disabled():
    ((_, made),) = events_of(row_of("oidc_binding_revoked", {}, subject="obind_1"))
    assert made["type_uid"] == 300409
    assert (made["entity"]["type"], made["entity"]["uid"]) == ("oidc_binding", "obind_1")


async def test_a_stream_of_ocsf_carries_events_and_records(streams):
    async with receiving() as receiver:
        stream_id = await streams.create(receiver.url, format="ocsf")
        await accept(streams, 3)
        await deliver_all(streams.services, stream_id)
        streams.clock.advance(hours=1)
        await deliver_until(streams.services, lambda: is_reconciled(receiver))
        await streams.call("POST", f"/{stream_id}/test")
    *events, record, test = [entry for each in receiver.kept for entry in each.entries]
    assert [event["metadata"]["uid"] for event in events] == await all_ids(streams)
    assert record["metadata"]["event_code"] == RECONCILIATION
    assert record["unmapped"]["rows"] == len(events)
    for entry in (*events, record, test):
        assert [each.message for each in SCHEMAS[entry["class_uid"]].iter_errors(entry)] == []


def is_reconciled(receiver: Receiver) -> bool:
    return RECONCILIATION.encode() in receiver.kept[-1].body


@pytest.mark.parametrize("kind", sorted(FOR_PEOPLE))
async def test_people_are_sent_no_ocsf(streams, kind):
    url = "mailto:soc@acme.example" if kind == "mail" else "https://siem.example"
    body = {"name": "x", "kind": kind, "url": url, "format": "ocsf", "secret": "/x"}
    answer = await streams.send("POST", **body)
    assert answer.status_code == 400
    assert "format" in (await answer.get_json())["error"]
