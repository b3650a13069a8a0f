"""Dependencies of the endpoints and pages of the audit log."""

from dataclasses import dataclass

from service.audit.exports import Exporter
from service.audit.lake import Lake
from service.audit.query_service import AuditQueryService
from service.audit.readings import WordReader
from service.audit.sql_runs import SqlRunner
from service.audit.streams.sending import Sender
from service.core.clock import Clock
from service.core.settings import Settings
from service.store.lease import LeaseKeeper
from service.store.store import Store
from service.web.dependencies import BaseServices


@dataclass(frozen=True, slots=True)
class AuditServices(BaseServices):
    """Also what reads and exports audit rows."""

    lake: Lake
    queries: AuditQueryService
    exporter: Exporter
    sql: SqlRunner
    sender: Sender
    readers: tuple[WordReader, ...]
    """What reads the words of searches that rooms above know."""


@dataclass(frozen=True, kw_only=True)
class OperatorServices:
    """What the operator's commands on the stored log work with: backup, restore, loss."""

    settings: Settings
    clock: Clock
    store: Store
    lake: Lake
    lease: LeaseKeeper
    """The lease on the log's segments."""
