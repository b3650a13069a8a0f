"""What docs/attestations.md shows works as it is printed."""

import json
import re
from pathlib import Path

import pytest

from service.core.settings import REPOSITORY
from tests.service.packages.attestations.conftest import Attested


async def test_the_program_of_the_page_accepts_a_bundle(
    attested: Attested,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    row = await attested.install()
    envelope = await attested.envelope(row["id"])
    (tmp_path / "run.intoto.jsonl").write_text(json.dumps(envelope) + "\n")
    (key,) = (await attested.keys()).values()
    (tmp_path / "keys.txt").write_text(f"{key}\n")
    page = (REPOSITORY / "docs" / "attestations.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()

    exec(compile(program, "attestations.md", "exec"), {})  # noqa: S102 - our own page
    assert "pkg:npm/left-pad@1.3.0" in capsys.readouterr().out
