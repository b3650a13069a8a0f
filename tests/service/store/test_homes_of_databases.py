"""What is of one database alone has its place: another is a matter of changing a URL."""

import re

import pytest

from service.core.settings import REPOSITORY

STORE = REPOSITORY / "service" / "store"
TEXTS = {
    path.relative_to(REPOSITORY): path.read_text()
    for package in ("service", "analytics")
    for path in (REPOSITORY / package).rglob("*.py")
}
OWN = {
    "sqlite": re.compile(
        r"\bPRAGMA\b|\bIMMEDIATE\b|\bINSERT OR\b|\browid\b|\bsqlite_master\b|\bjson_extract\b"
        r"|\bstrftime\('|^[ ]*(?:import|from) (?:sqlite3|aiosqlite)\b"
        r"|sqlalchemy\.dialects\.sqlite",
        re.MULTILINE,
    ),
    "postgres": re.compile(
        r"\bpg_[a-z_]+\(|\bclock_timestamp\b|\bstatement_timeout\b|\bsynchronous_commit\b"
        r"|^[ ]*(?:import|from) (?:asyncpg|psycopg)\b|sqlalchemy\.dialects\.postgresql",
        re.MULTILINE,
    ),
}
"""What only one database understands, by the package it belongs in."""


@pytest.mark.parametrize("database", OWN)
def test_no_other_module_speaks_a_databases_own_language(database: str):
    offenders = {
        str(path): said
        for path, text in TEXTS.items()
        if not (REPOSITORY / path).is_relative_to(STORE / database)
        and (said := OWN[database].findall(text))
    }

    assert len(TEXTS) > 100
    assert offenders == {}


@pytest.mark.parametrize(
    ("database", "said"),
    [
        ("sqlite", {"PRAGMA", "IMMEDIATE", "import sqlite3", "import aiosqlite"}),
        ("postgres", {"clock_timestamp", "statement_timeout", "import asyncpg"}),
    ],
)
def test_its_home_does(database: str, said: set[str]):
    """So the pattern above finds what it must."""
    texts = (path.read_text() for path in (STORE / database).glob("*.py"))

    assert said <= {found for text in texts for found in OWN[database].findall(text)}


def test_a_condition_for_sqlite_has_its_twin_for_postgresql():
    """A partial index on one database alone would be a rule on one database alone."""
    alone = [
        path
        for path, text in TEXTS.items()
        if text.count("sqlite_where=") != text.count("postgresql_where=")
    ]

    assert any("sqlite_where=" in text for text in TEXTS.values())
    assert alone == []
