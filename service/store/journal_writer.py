"""Collects the audit rows that one transaction adds to the journal."""

from collections.abc import Iterable
from datetime import datetime

from analytics.model.rows import AuditRow
from analytics.storage.journal_batches import EncodedBatch, JournalBatch, encode_days
from service.store.journal import JournalSize, append_batches, count_journal
from service.store.transaction import Transaction


class JournalWriter:
    """Collects rows of any tenants and writes them just before the commit."""

    def __init__(self) -> None:
        self._rows: dict[str, list[AuditRow]] = {}
        self._batches: list[tuple[str, EncodedBatch]] = []
        self._stored: list[JournalBatch] = []

    def add(self, tenant_id: str, rows: Iterable[AuditRow]) -> None:
        """Add single rows; rows of the same tenant and day become one batch."""
        self._rows.setdefault(tenant_id, []).extend(rows)

    def add_batches(self, tenant_id: str, batches: Iterable[EncodedBatch]) -> None:
        """Add rows that are already encoded in batches."""
        self._batches += [(tenant_id, batch) for batch in batches]

    def store(
        self, transaction: Transaction, tenant_id: str, batch: EncodedBatch, now: datetime
    ) -> JournalBatch:
        """Store one batch now, for a caller that needs its seq before the commit."""
        (stored,) = append_batches(transaction, [(tenant_id, batch)], now=now)
        self._stored.append(stored)
        _add_to_size(transaction, tenant_id, batch)
        return stored

    def events(self) -> list[str]:
        """The events of the single rows, grouped by organisation."""
        return [row.event for rows in self._rows.values() for row in rows]

    def count(self, transaction: Transaction, tenant_id: str) -> JournalSize:
        """The size of the tenant's journal, including the rows added here.

        Single rows count as rows only: they have no batch and no bytes until they are written.
        """
        size = transaction.kept.get(_key(tenant_id))
        if size is None:
            size = transaction.kept[_key(tenant_id)] = count_journal(transaction, tenant_id)
        added = (batch for owner, batch in self._batches if owner == tenant_id)
        rows, batches, bytes_ = _with(size, added)
        return JournalSize(rows + len(self._rows.get(tenant_id, ())), batches, bytes_)

    def write(self, transaction: Transaction, now: datetime) -> list[JournalBatch]:
        """Assign seq numbers to all rows and store them; returns the stored batches."""
        for tenant_id, rows in self._rows.items():
            self.add_batches(tenant_id, encode_days(rows))
        self._rows.clear()
        self._stored += append_batches(transaction, self._batches, now=now)
        for tenant_id, batch in self._batches:
            _add_to_size(transaction, tenant_id, batch)
        self._batches.clear()
        return self._stored


def _add_to_size(transaction: Transaction, tenant_id: str, batch: EncodedBatch) -> None:
    # A kept size must be true as of the commit, these rows included.
    if (size := transaction.kept.get(_key(tenant_id))) is not None:
        transaction.kept[_key(tenant_id)] = _with(size, [batch])


def _key(tenant_id: str) -> tuple[str, str]:
    """The key of the tenant's cached journal size; counting takes time linear in the journal."""
    return "journal", tenant_id


def _with(size: JournalSize, batches: Iterable[EncodedBatch]) -> JournalSize:
    rows, count, bytes_ = size
    for batch in batches:
        rows, count, bytes_ = rows + batch.rows, count + 1, bytes_ + batch.size
    return JournalSize(rows, count, bytes_)
