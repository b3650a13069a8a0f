"""Alerts: rules over organisations' audit logs, and where they fired."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base


class AlertRuleEntry(Base):
    """A rule of an organisation; `definition` is its JSON, see `service.audit.alerts.rules`.

    It counts rows from `on_since` on, and none if that is null: it is off.
    """

    __tablename__ = "alert_rules"
    __table_args__ = (Index("alert_rules_by_name", "tenant_id", "name", unique=True),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    name: Mapped[str]
    definition: Mapped[str]
    on_since: Mapped[datetime | None]
    changed_by: Mapped[str]
    changed_at: Mapped[datetime]


class AlertFiring(Base):
    """A rule fired for `key` at `fired_at`, for the rows from `since` to before `until`.

    `row_ids` are the newest of them, separated by spaces; `query` finds them on the audit page.
    `usual` is the expected number of rows of a silence. `state` is what people made of it. A rule
    that is deleted leaves its firings.
    """

    __tablename__ = "alert_firings"
    __table_args__ = (
        Index("alert_firings_by_rule", "rule_id", "key", "fired_at", unique=True),
        Index("alert_firings_by_time", "tenant_id", "fired_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("organisations.id"))
    rule_id: Mapped[str]
    rule_name: Mapped[str]
    key: Mapped[str]
    fired_at: Mapped[datetime]
    since: Mapped[datetime]
    until: Mapped[datetime]
    rows: Mapped[int]
    usual: Mapped[int | None]
    row_ids: Mapped[str]
    query: Mapped[str]
    state: Mapped[str]
    note: Mapped[str | None]
    handled_by: Mapped[str | None]
    handled_at: Mapped[datetime | None]
