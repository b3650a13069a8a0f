"""The table of common changes points at files that exist."""

import re
from typing import Final

from service.core.settings import REPOSITORY

ROWS: Final = 21
FILES_MAX: Final = 3
MORE: Final = {"Add an ecosystem": 7, "Add a policy rule": 4}
"""An ecosystem: its package and six files, of which two are documents."""


def rows_by_task() -> dict[str, str]:
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    section = page.split("## To change X, open Y\n")[1].split("\n## ")[0]
    _, _, *rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)
    return dict(rows)


def table_rows() -> list[str]:
    """The second cell of each row."""
    return list(rows_by_task().values())


def named_files(cell: str) -> list[str]:
    """The paths in backticks; a name without a slash is an identifier."""
    return [name for name in re.findall(r"`([^`]+)`", cell) if "/" in name]


def test_the_table_names_twenty_one_changes_and_few_files_for_each() -> None:
    rows = rows_by_task()

    assert len(rows) == ROWS
    for task, row in rows.items():
        assert 1 <= len(named_files(row)) <= MORE.get(task, FILES_MAX)


def test_every_file_named_in_the_table_exists() -> None:
    missing = [
        name
        for row in table_rows()
        for name in named_files(row)
        if not (REPOSITORY / name).exists()
    ]

    assert missing == []
