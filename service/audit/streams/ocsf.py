"""Rows as events of OCSF 1.8.0, the Open Cybersecurity Schema Framework.

Each event of the catalogue has its class and activity in one table. What has no place in its class
stays in `unmapped`, under its name in the row: nothing of a row is lost.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from analytics.model.envelopes import ENVELOPES, InstallCut, InstallWouldBlock
from analytics.model.events import Decision, Event
from analytics.model.labels import event_label
from analytics.model.org_envelopes import SignInFailed
from service.audit.streams.sinks import Line

VERSION: Final = "1.8.0"


class OcsfClass(IntEnum):
    """What rows become, by `class_uid`."""

    BASE_EVENT = 0
    DETECTION_FINDING = 2004
    ACCOUNT_CHANGE = 3001
    AUTHENTICATION = 3002
    ENTITY_MANAGEMENT = 3004
    APPLICATION_LIFECYCLE = 6002
    API_ACTIVITY = 6003


_OTHER: Final = 99
_ACTIVITIES: Final[dict[tuple[OcsfClass, int], str]] = {
    (OcsfClass.APPLICATION_LIFECYCLE, 1): "oss_first_party install_allowed install_would_block"
    " blocklist_hit cooldown_active trust_downgraded release_withdrawn artifact_changed"
    " install_cut",
    (OcsfClass.AUTHENTICATION, 1): "oauth_login_succeeded passkey_authentication_succeeded"
    " link_sign_in_succeeded device_sign_in_succeeded sign_in_failed",
    (OcsfClass.AUTHENTICATION, 2): "signed_out session_revoked",
    (OcsfClass.AUTHENTICATION, 3): "session_issued",
    (OcsfClass.ACCOUNT_CHANGE, 1): "member_added",
    (OcsfClass.ACCOUNT_CHANGE, 6): "member_removed",
    (OcsfClass.ACCOUNT_CHANGE, 10): "passkey_registered",
    (OcsfClass.ACCOUNT_CHANGE, 11): "passkey_removed",
    (OcsfClass.ACCOUNT_CHANGE, _OTHER): "member_role_changed team_admin_changed",
    (OcsfClass.ENTITY_MANAGEMENT, 1): "oidc_binding_created api_key_created machine_token_issued"
    " install_token_issued org_created project_created team_created policy_exception_requested"
    " evidence_witness_added",
    (OcsfClass.ENTITY_MANAGEMENT, 3): "api_key_rotated admin_token_changed org_tier_changed"
    " legal_hold_changed role_override_changed sign_in_domain_changed policy_changed"
    " policy_exception_decided blocklist_imported artifact_accepted clock_accepted"
    " evidence_key_rotated stream_changed alert_rule_changed",
    (OcsfClass.ENTITY_MANAGEMENT, 4): "evidence_witness_removed",
    (OcsfClass.ENTITY_MANAGEMENT, 9): "oidc_binding_revoked api_key_revoked machine_token_revoked",
    (OcsfClass.ENTITY_MANAGEMENT, 13): "evidence_resumed",
    (OcsfClass.API_ACTIVITY, 1): "audit_imported",
    (OcsfClass.API_ACTIVITY, 2): "audit_exported audit_export_finished audit_sql_run audit_read"
    " audit_reviewed",
    (OcsfClass.API_ACTIVITY, 3): "audit_segment_restored",
    (OcsfClass.API_ACTIVITY, 4): "audit_pruned audit_segment_lost stream_gap",
    (OcsfClass.DETECTION_FINDING, 1): "alert_fired installs_matched evidence_differs",
    (OcsfClass.DETECTION_FINDING, 2): "alert_handled",
}
KINDS: Final = {event: kind for kind, events in _ACTIVITIES.items() for event in events.split()}
"""The class and the `activity_id` of each event."""

_PROFILES: Final[dict[OcsfClass, list[str]]] = {
    OcsfClass.BASE_EVENT: ["datetime", "host"],
    OcsfClass.DETECTION_FINDING: ["datetime", "host"],
    OcsfClass.APPLICATION_LIFECYCLE: ["datetime", "host", "security_control"],
}
"""By profiles these have an actor and a device. The others have an actor and an endpoint."""

_ACTIONS: Final = {"ALLOWED": (1, 1), "BLOCKED": (2, 2)}
"""The `action_id` and `disposition_id` of a decision."""
_DETECTED: Final = 15
_DONE, _FAILED = {"status_id": 1}, {"status_id": 2}
_INFORMATIONAL, _MEDIUM = 1, 3
_ALARMING: Final = {"ban", "alert"}
"""The icons of events of medium severity."""
_ACTOR_TYPES: Final = {"session": 1, "machine_token": 1, "admin_token": 2, "system": 3}
_SERVICE: Final = 4
_PRODUCT: Final = {"name": "Countersign", "vendor_name": "Countersign"}

_Fields = dict[str, Any]
_encode: Final = msgspec.json.Encoder().encode


def ocsf_line(line: Line) -> Line:
    """The event of a row. A record, which is no row, is a base event."""
    row = _given(msgspec.json.decode(line.text))
    kind, activity = KINDS.get(line.event, (OcsfClass.BASE_EVENT, _OTHER))
    envelope = ENVELOPES.get(Event(line.event))
    label = event_label(row.pop("event"))
    fields = {
        "category_uid": kind // 1000,
        "class_uid": kind,
        "activity_id": activity,
        "activity_name": label if activity == _OTHER else None,
        "type_uid": kind * 100 + activity,
        "time": line.at_us // 1000,
        "time_dt": row.pop("created_at"),
        "severity_id": _MEDIUM if envelope and envelope.icon in _ALARMING else _INFORMATIONAL,
        "message": label,
        **_OF_CLASS[kind](row, line.event),
        **_origin(row, kind),
        "status_detail": row.pop("decision_reason", None),
        "metadata": _metadata(row, kind, line),
        "unmapped": row,
    }
    return msgspec.structs.replace(line, text=_encode(_given(fields)))


def _given(fields: Mapping[str, Any]) -> _Fields:
    return {name: value for name, value in fields.items() if value is not None}


def _metadata(row: _Fields, kind: OcsfClass, line: Line) -> _Fields:
    surface = row.pop("verdict_source", None)
    fields = {
        "version": VERSION,
        "product": _PRODUCT | ({"feature": {"name": surface}} if surface else {}),
        "profiles": _PROFILES.get(kind, ["datetime"]),
        "uid": row.pop("id"),
        "sequence": line.seq,
        "event_code": line.event,
        "tenant_uid": row.pop("tenant_id"),
        "logged_time_dt": row.pop("received_at", None),
        "correlation_uid": row.pop("request_id", None),
    }
    return _given(fields)


def _origin(row: _Fields, kind: OcsfClass) -> _Fields:
    """Who acted, and from which address."""
    fields: _Fields = {}
    if "actor" in row:
        type_id = _ACTOR_TYPES.get(row["actor_source"], _SERVICE)
        tenant = row.pop("actor_tenant_id", None)
        org = {"org": {"uid": tenant}} if tenant else {}
        fields["actor"] = {"user": {"uid": row.pop("actor"), "type_id": type_id, **org}}
    if _is_address(row.get("source_ip", "")):
        address: _Fields = {"ip": row.pop("source_ip")}
        has_device = kind in _PROFILES
        fields |= {"device": address | {"type_id": 0}} if has_device else {"src_endpoint": address}
    elif kind == OcsfClass.API_ACTIVITY:
        fields["src_endpoint"] = {"name": "unknown"}
    return fields


def _is_address(text: str) -> bool:
    """Whether it is an IP address: imported rows may have any text, which stays in `unmapped`."""
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _install(row: _Fields, event: str) -> _Fields:
    decision = row.pop("decision", None)
    name = row.pop("packageName", None) or row.get("file_name", "unknown")
    fields: _Fields = {"app": _given({"name": name, "version": row.pop("version", None)})}
    if decision is not None:
        action, disposition = _ACTIONS[decision]
        is_detected = event == InstallWouldBlock.event
        fields |= {"action_id": action, "disposition_id": _DETECTED if is_detected else disposition}
    has_failed = decision == Decision.BLOCKED or event == InstallCut.event
    return fields | (_FAILED if has_failed else _DONE)


def _finding(row: _Fields, event: str) -> _Fields:
    told = row["payload"]
    uid = told.get("alert_id") or told.get("rule_id") or row["id"]
    return {"finding_info": {"uid": uid, "title": told.get("rule") or event_label(event)}}


def _user(row: _Fields) -> _Fields:
    return {"uid": row["payload"].get("member_id") or row.get("subject") or row["actor"]}


def _account(row: _Fields, _: str) -> _Fields:
    return {"user": _user(row), **_DONE}


def _sign_in(row: _Fields, event: str) -> _Fields:
    status = _FAILED if event == SignInFailed.event else _DONE
    return {"user": _user(row), "service": {"name": "Countersign"}, **status}


def _entity(row: _Fields, event: str) -> _Fields:
    entity = {
        "uid": row.get("subject") or row["id"],
        "name": row["payload"].get("name"),
        "type_id": _OTHER,
        "type": event.rpartition("_")[0],
    }
    return {"entity": _given(entity), **_DONE}


def _api_call(row: _Fields, event: str) -> _Fields:
    return {"api": {"operation": event}, **_DONE}


_OF_CLASS: Final[dict[OcsfClass, Callable[[_Fields, str], _Fields]]] = {
    OcsfClass.BASE_EVENT: lambda row, event: {},
    OcsfClass.DETECTION_FINDING: _finding,
    OcsfClass.ACCOUNT_CHANGE: _account,
    OcsfClass.AUTHENTICATION: _sign_in,
    OcsfClass.ENTITY_MANAGEMENT: _entity,
    OcsfClass.APPLICATION_LIFECYCLE: _install,
    OcsfClass.API_ACTIVITY: _api_call,
}
"""What each class has besides, taken out of the row where it is the same."""
