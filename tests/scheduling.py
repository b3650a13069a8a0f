"""Which tests run in the same worker: those of a file, and those that share something costly."""

from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

_TOGETHER: Final = {
    "a browser": ("tests/browser/",),
    "a PostgreSQL server": (
        "tests/service/audit/backup/test_postgresql.py",
        "tests/service/store/test_database_copy.py",
        "tests/service/store/postgres/",
        "tests/test_postgres.py",
    ),
    "an S3 server": (
        "tests/analytics/open_table/test_storage_faults.py",
        "tests/analytics/open_table/test_tables_on_s3.py",
        "tests/analytics/storage/test_objects.py",
        "tests/analytics/storage/test_object_lock",
        "tests/analytics/storage/test_s3",
        "tests/engines/",
        "tests/processes/test_cli_s3.py",
        "tests/service/audit/test_s3",
        "tests/service/audit/test_segment_locks",
        "tests/service/audit/backup/test_by_version.py",
        "tests/service/audit/open_table/test_bucket",
        "tests/service/audit/open_table/test_places.py",
        "tests/stored/test_damage.py",
    ),
    "a long audit log": (
        "tests/processes/test_broken_exports.py",
        "tests/processes/test_cli_backup.py",
        "tests/processes/test_cli_export.py",
        "tests/processes/test_shutdown.py",
    ),
}
"""What takes a second or more to make, and how the paths begin of the files that use it."""


def group_of(nodeid: str) -> str:
    """Tests with the same group run in one worker, one after the other."""
    for shared, beginnings in _TOGETHER.items():
        if nodeid.startswith(beginnings):
            return shared
    return nodeid.partition("::")[0]


class GroupScheduling(LoadFileScheduling):
    """Gives each worker one group after the other."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)  # mutants are tried without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """Xdist's hook: the scheduler of a run with `--dist loadfile`."""
    return GroupScheduling(config, log) if config.getoption("dist") == "loadfile" else None
