"""What the lake's tests share: an audit folder, and an ear on its engine."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from analytics.query.engine import Engine
from tests.analytics.samples import SampleLake, open_lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SampleLake]:
    """An empty audit folder with a reader over it."""
    opened = open_lake(tmp_path)
    yield opened
    opened.reader.resources.engine.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the test asks DuckDB; not what a thread of an earlier test still does."""
    statements: list[str] = []
    select = Engine.select
    own_thread = threading.get_ident()

    def recorded(self: Engine, sql: str, *rest: object) -> object:
        if threading.get_ident() == own_thread:
            statements.append(sql)
        return select(self, sql, *rest)

    monkeypatch.setattr(Engine, "select", recorded)
    return statements
