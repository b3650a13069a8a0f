"""What the lake's tests share: an audit folder, and an ear on its engine."""

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
    """What DuckDB is asked."""
    statements: list[str] = []
    select = Engine.select

    def recorded(self: Engine, sql: str, *rest: object) -> object:
        statements.append(sql)
        return select(self, sql, *rest)

    monkeypatch.setattr(Engine, "select", recorded)
    return statements
