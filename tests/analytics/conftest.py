"""What the lake's tests share: an audit folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analytics.samples import SampleLake, open_lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SampleLake]:
    """An empty audit folder with a reader over it."""
    opened = open_lake(tmp_path)
    yield opened
    opened.reader.engine.close()
