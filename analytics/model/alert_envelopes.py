"""The envelopes of alerts: rules over the log, and where they fired."""

from typing import Literal

from analytics.model.events import Count, Envelope, Event


class AlertRuleChanged(Envelope, frozen=True, kw_only=True):
    """An alert rule was created, changed or deleted; `definition` is the rule as it is now."""

    event = Event("alert_rule_changed")
    label = "Alert rule changed"
    icon = "alert"
    rule_id: str
    rule: str
    change: Literal["created", "changed", "deleted"]
    definition: str | None


class AlertFired(Envelope, frozen=True, kw_only=True):
    """A rule fired: for how many rows of which window, and the newest of them.

    `key` is the value of what the rule counts by. `usual` is how many rows were expected, if the
    rule is of a silence.
    """

    event = Event("alert_fired")
    label = "Alert fired"
    icon = "alert"
    changes_org = False
    alert_id: str
    rule_id: str
    rule: str
    kind: str
    key: str
    rows: Count
    usual: Count | None
    since: str
    until: str
    query: str
    row_ids: list[str]


class AlertHandled(Envelope, frozen=True, kw_only=True):
    """A member acknowledged or closed an alert."""

    event = Event("alert_handled")
    label = "Alert handled"
    icon = "check"
    changes_org = False
    alert_id: str
    rule: str
    state: Literal["acknowledged", "closed"]
    note: str | None
