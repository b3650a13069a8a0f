"""A database whose driver is not installed: one line says what to install, and no password."""

import subprocess
import sys

from service.core.settings import REPOSITORY

WITHOUT_DRIVER = """
import sys
sys.modules["asyncpg"] = None  # as if it were not installed
from service.core.settings import InvalidSetting
from service.store.engine_factory import create_engines
try:
    create_engines("postgresql+asyncpg://u:secret@127.0.0.1/x", 1.0)
except InvalidSetting as refused:
    sys.stdout.write(str(refused))
"""


def test_without_the_driver_the_setting_names_its_extra():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == (
        "COUNTERSIGN_DATABASE_URL: PostgreSQL needs the extra `postgres`:"
        " run `.venv/bin/pip install --no-deps --require-hashes -r requirements/postgres.txt` in"
        " the checkout"
    )
