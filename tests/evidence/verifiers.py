"""Verifiers of proofs that were not written here (see install.sh)."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.evidence.cases import Case
from tests.polling import HANG_S

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("VERIFIERS") or HERE.parents[1] / ".verifiers").absolute()
AICS = FOLDER / "aics"
HOW = f"run `sh tests/evidence/install.sh {FOLDER}`"


@dataclass(frozen=True)
class OtherVerifier:
    """A program that reads cases as lines, and answers each: `ok`, or what is wrong."""

    name: str
    command: tuple[Path, ...]

    @property
    def is_there(self) -> bool:
        return self.command[0].exists()

    def require(self) -> None:
        """Skip the test if it is not installed."""
        if not self.is_there:
            pytest.skip(f"no {self.name}: {HOW}")

    def verify(self, cases: Sequence[Case]) -> list[str]:
        """Its answers."""
        asked = "".join(f"{json.dumps(case.as_json())}\n" for case in cases)
        ran = subprocess.run(
            self.command, input=asked, capture_output=True, text=True, timeout=HANG_S
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        answers = ran.stdout.splitlines()
        assert len(answers) == len(cases), ran.stderr[-3000:]
        return answers


OTHERS = (
    OtherVerifier("Go's sumdb/tlog", (FOLDER / "verify-go",)),
    OtherVerifier("aics-tlog", (AICS / "bin" / "python", HERE / "verify_aics.py")),
)


@dataclass(frozen=True)
class OtherVerifiers:
    """All of them that are installed, which must agree."""

    present: tuple[OtherVerifier, ...]

    def verify(self, cases: Sequence[Case]) -> list[bool]:
        """Which of `cases` they accept. Fails if they differ."""
        answers = {each.name: each.verify(cases) for each in self.present}
        verdicts = [[answer == "ok" for answer in said] for said in answers.values()]
        for number, of_case in enumerate(zip(*verdicts, strict=True)):
            said = {name: all_[number] for name, all_ in answers.items()}
            assert len({*of_case}) == 1, (cases[number], said)
        return verdicts[0]


@pytest.fixture(scope="session")
def other_verifiers() -> OtherVerifiers:
    """What verifies proofs and was not written here; without any, the test is skipped."""
    present = tuple(each for each in OTHERS if each.is_there)
    if not present:
        pytest.skip(f"no other verifier: {HOW}")
    return OtherVerifiers(present)
