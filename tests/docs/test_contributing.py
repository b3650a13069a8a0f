"""The table of common changes points at files that exist."""

import re
from typing import Final

from service.core.settings import REPOSITORY

ROWS: Final = 19
FILES_MAX: Final = 3


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


def test_the_table_names_nineteen_changes_and_one_to_three_files_for_each() -> None:
    rows = table_rows()

    assert len(rows) == ROWS
    assert all(1 <= len(named_files(row)) <= FILES_MAX for row in rows)


def test_every_file_named_in_the_table_exists() -> None:
    missing = [
        name
        for row in table_rows()
        for name in named_files(row)
        if not (REPOSITORY / name).exists()
    ]

    assert missing == []
