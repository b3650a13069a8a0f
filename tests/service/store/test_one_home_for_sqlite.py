"""What is SQLite's alone has its place: PostgreSQL is a matter of changing a URL."""

import re

import pytest

from service.settings import REPOSITORY

HOME = REPOSITORY / "service" / "store" / "engine.py"
CONNECTION = HOME.with_name("connection.py")
ELSEWHERE = sorted(
    path
    for package in ("service", "analytics")
    for path in (REPOSITORY / package).rglob("*.py")
    if path not in {HOME, CONNECTION}
)
SQLITE_ONLY = re.compile(
    r"\bPRAGMA\b|\bIMMEDIATE\b|\bINSERT OR\b|\browid\b|\bsqlite_master\b|\bjson_extract\b"
    r"|\bstrftime\('|^[ ]*(?:import|from) (?:sqlite3|aiosqlite)\b"
    r"|sqlalchemy\.dialects\.sqlite",
    re.MULTILINE,
)


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_other_module_speaks_sqlite(path):
    """No pragma, no driver, no dialect's own statement."""
    assert SQLITE_ONLY.findall(path.read_text()) == []


def test_its_home_does():
    """So the pattern above finds what it is meant to find."""
    found = set(SQLITE_ONLY.findall(HOME.read_text()))

    assert {"PRAGMA", "IMMEDIATE"} <= found
    assert found & {"import sqlite3", "import aiosqlite"}


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_a_condition_for_sqlite_has_its_twin_for_postgresql(path):
    """A partial index on one database alone would be a rule on one database alone."""
    text = path.read_text()

    assert text.count("sqlite_where=") == text.count("postgresql_where=")
