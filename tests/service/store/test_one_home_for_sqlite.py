"""What is SQLite's alone has its place: PostgreSQL is a matter of changing a URL."""

import re

from service.settings import REPOSITORY

HOME = REPOSITORY / "service" / "store" / "engine.py"
CONNECTION = HOME.with_name("connection.py")
TEXTS = {
    str(path.relative_to(REPOSITORY)): path.read_text()
    for package in ("service", "analytics")
    for path in (REPOSITORY / package).rglob("*.py")
    if path not in {HOME, CONNECTION}
}
"""Of each other module."""
SQLITE_ONLY = re.compile(
    r"\bPRAGMA\b|\bIMMEDIATE\b|\bINSERT OR\b|\browid\b|\bsqlite_master\b|\bjson_extract\b"
    r"|\bstrftime\('|^[ ]*(?:import|from) (?:sqlite3|aiosqlite)\b"
    r"|sqlalchemy\.dialects\.sqlite",
    re.MULTILINE,
)


def test_no_other_module_speaks_sqlite():
    """No pragma, no driver, no dialect's own statement."""
    offenders = {path: said for path, text in TEXTS.items() if (said := SQLITE_ONLY.findall(text))}

    assert len(TEXTS) > 100
    assert offenders == {}


def test_its_home_does():
    """So the pattern above finds what it is meant to find."""
    found = set(SQLITE_ONLY.findall(HOME.read_text()))

    assert {"PRAGMA", "IMMEDIATE"} <= found
    assert found & {"import sqlite3", "import aiosqlite"}


def test_a_condition_for_sqlite_has_its_twin_for_postgresql():
    """A partial index on one database alone would be a rule on one database alone."""
    alone = [
        path
        for path, text in TEXTS.items()
        if text.count("sqlite_where=") != text.count("postgresql_where=")
    ]

    assert any("sqlite_where=" in text for text in TEXTS.values())
    assert alone == []
