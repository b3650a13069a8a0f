"""Prepare a data directory for serving: folders, secrets, schema."""

import os
from pathlib import Path

from analytics.storage.fsync import mkdir_synced
from service.audit.clock_guard import ClockGuard, begin_clock_record
from service.audit.installation import keep_prefix
from service.core.clock import Clock, machine_uptime, utc_now
from service.core.errors import STORAGE_READ_ONLY
from service.core.secrets import with_secrets
from service.core.settings import Settings
from service.store.engine_factory import create_engines
from service.store.migrate import migrate
from service.store.sqlite.files import make_private
from service.store.store import Store
from service.trust.bindings.slots import keep_slot_rule


async def prepare(settings: Settings, clock: Clock = utc_now) -> Settings:
    """Bring data dir and database up to date; return `settings` completed with their secrets.

    Safe to repeat and to run in several processes at once. Raises InvalidSetting if the database
    URL cannot be used, Conflict if a newer version wrote the database or if the stored bindings
    do not allow the slot rule of `settings`, or if the bucket's prefix is another installation's;
    STORAGE_READ_ONLY.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_writable(settings.data_dir)
    for folder in (settings.audit_dir, settings.temp_dir):
        # Owner only, even if the data dir was created with wider permissions.
        folder.mkdir(exist_ok=True, mode=0o700)
        mkdir_synced(folder, within=settings.data_dir)
    complete = with_secrets(settings)
    engines = create_engines(settings.database, settings.database_wait_s)
    make_private(settings.database)
    try:
        await migrate(engines)
        store = Store(engines, clock)
        await keep_slot_rule(store, settings.binding_slot)
        await begin_clock_record(store, await ClockGuard(store, machine_uptime).read())
        await keep_prefix(settings, store)
    finally:
        await engines.dispose()
    return complete


def check_writable(data_dir: Path) -> None:
    """Raise STORAGE_READ_ONLY unless `data_dir` is writable: SQLite's error is less specific."""
    if not os.access(data_dir, os.W_OK):
        raise STORAGE_READ_ONLY from PermissionError(f"{data_dir} cannot be written to")
