"""The event catalogue: what can happen, and what each event must say."""

import msgspec
import pytest

from analytics.model.envelopes import (
    ENVELOPES,
    EVENTS,
    ArtifactChanged,
    BlocklistHit,
    CooldownActive,
    InstallAllowed,
    InstallWouldBlock,
    OssFirstParty,
    ReleaseWithdrawn,
    TrustDowngraded,
    parse_envelope,
)
from analytics.model.events import Decision, Envelope, Event
from analytics.model.org_envelopes import PasskeyAuthenticationSucceeded

TEXT = "text"
WHOLE = 7
SPEC_ENVELOPES = {
    "oss_first_party": {"registry": TEXT},
    "blocklist_hit": {"rule_id": TEXT, "source": "osv"},
    "cooldown_active": {"published_at": "2026-01-31T08:00:00Z", "min_age_days": WHOLE},
    "oauth_login_succeeded": {"member_id": TEXT, "is_new_member": True, "provider": "github"},
    "passkey_authentication_succeeded": {
        "member_id": TEXT,
        "credential_id": TEXT,
        "counter_before": WHOLE,
        "counter_after": WHOLE + 1,
    },
}
"""A valid envelope of each shape that clients were promised."""

SPEC_PAYLOADS = {
    "oidc_binding_created": "binding_id issuer sub_pattern repository_id event_names origin"
    " project_id team_id by_user_id",
    "oidc_binding_revoked": "binding_id revoked_reason by_user_id",
}
"""The payload keys that clients were promised."""

KEYS = [(event, key) for event, keys in SPEC_ENVELOPES.items() for key in keys]
WRONG_VALUES = {
    str: [None, 1, True, ["text"], {}],
    bool: [None, 0, 1, "true", []],
    int: [None, True, 1.0, 1.5, "1", -1, 2**63, []],
}


def test_every_event_has_exactly_one_envelope():
    """A second shape for one event would make its rows ambiguous."""
    events = [envelope.event for envelope in Envelope.__subclasses__()]

    assert sorted(events) == sorted(EVENTS)
    assert {event: envelope.event for event, envelope in ENVELOPES.items()} == {
        event: event for event in EVENTS
    }


def test_the_catalogue_is_the_specifications_and_ours():
    """An event string is part of the interface: none is renamed or dropped unnoticed."""
    ours = (
        "install_allowed install_would_block install_cut artifact_changed artifact_accepted"
        " audit_exported audit_export_finished audit_pruned audit_imported clock_accepted"
        " audit_segment_restored audit_segment_lost audit_sql_run audit_read"
        " audit_reviewed stream_changed stream_gap alert_rule_changed alert_fired alert_handled"
        " evidence_differs evidence_key_rotated evidence_resumed evidence_witness_added"
        " evidence_witness_removed"
        " org_created org_tier_changed legal_hold_changed role_override_changed member_added"
        " member_role_changed member_removed team_created team_admin_changed project_created"
        " admin_token_changed api_key_created api_key_rotated api_key_revoked install_token_issued"
        " machine_token_issued machine_token_revoked"
        " session_issued session_revoked"
        " link_sign_in_succeeded device_sign_in_succeeded passkey_registered passkey_removed"
        " sign_in_failed signed_out sign_in_domain_changed policy_changed blocklist_imported"
        " installs_matched"
        " policy_exception_requested policy_exception_decided trust_downgraded release_withdrawn"
    )

    assert set(EVENTS) == {*SPEC_ENVELOPES, *SPEC_PAYLOADS, *ours.split()}


@pytest.mark.parametrize(("event", "keys"), SPEC_ENVELOPES.items())
def test_a_specified_envelope_has_the_specified_keys_in_order(event, keys):
    assert list(ENVELOPES[Event(event)].__struct_fields__) == list(keys)
    assert msgspec.to_builtins(parse_envelope(Event(event), keys)) == keys


@pytest.mark.parametrize(("event", "keys"), SPEC_PAYLOADS.items())
def test_a_binding_event_has_the_specified_payload_keys(event, keys):
    fields = msgspec.structs.fields(ENVELOPES[Event(event)])

    assert {field.name for field in fields if field.required} == set(keys.split())


@pytest.mark.parametrize("source", ["osv", "operator"])
def test_a_source_is_one_of_two(source):
    hit = Event("blocklist_hit")
    for wrong in (source.upper(), "", "other"):
        with pytest.raises(msgspec.ValidationError, match="source"):
            parse_envelope(hit, {"rule_id": TEXT, "source": wrong})
    assert parse_envelope(hit, {"rule_id": TEXT, "source": source})


@pytest.mark.parametrize(
    ("event", "key", "value"),
    [
        (event, key, wrong)
        for event, key in KEYS
        for wrong in WRONG_VALUES[type(SPEC_ENVELOPES[event][key])]
    ],
)
def test_a_value_of_another_type_is_refused_and_never_converted(event, key, value):
    with pytest.raises(msgspec.ValidationError, match=key):
        parse_envelope(Event(event), SPEC_ENVELOPES[event] | {key: value})


@pytest.mark.parametrize("keys", [None, [], "", 1, [("registry", "npm")]])
def test_an_envelope_is_an_object(keys):
    with pytest.raises(msgspec.ValidationError):
        parse_envelope(OssFirstParty.event, keys)


@pytest.mark.parametrize(("before", "after"), [(7, 7), (7, 6), (7, 9), (0, 0), (0, 2)])
def test_a_passkeys_counter_goes_up_by_exactly_one(before, after):
    """Anything else may be a cloned key."""
    counters = {"counter_before": before, "counter_after": after}

    with pytest.raises(msgspec.ValidationError, match=r"counter_before \+ 1"):
        parse_envelope(
            PasskeyAuthenticationSucceeded.event,
            SPEC_ENVELOPES["passkey_authentication_succeeded"] | counters,
        )
    with pytest.raises(ValueError, match=r"counter_before \+ 1"):
        PasskeyAuthenticationSucceeded(member_id="m", credential_id="c", **counters)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-31", "2026-01-31T08:00:60Z"])
def test_published_at_is_a_timestamp(text):
    """The cooldown can then be checked from the row."""
    with pytest.raises(msgspec.ValidationError):
        parse_envelope(
            CooldownActive.event, SPEC_ENVELOPES["cooldown_active"] | {"published_at": text}
        )
    with pytest.raises(ValueError, match=r"RFC 3339|must be in"):
        CooldownActive(published_at=text, min_age_days=1)


def test_only_installs_have_a_decision_and_come_from_outside():
    installs = {
        OssFirstParty.event: Decision.ALLOWED,
        InstallAllowed.event: Decision.ALLOWED,
        BlocklistHit.event: Decision.BLOCKED,
        CooldownActive.event: Decision.BLOCKED,
    }
    of_the_proxy = {
        InstallWouldBlock.event: Decision.ALLOWED,
        ArtifactChanged.event: Decision.BLOCKED,
        TrustDowngraded.event: Decision.BLOCKED,
        ReleaseWithdrawn.event: Decision.BLOCKED,
    }

    assert {
        event: envelope.decision for event, envelope in ENVELOPES.items() if envelope.decision
    } == installs | of_the_proxy
    assert {event for event, envelope in ENVELOPES.items() if envelope.ingestible} == set(installs)
