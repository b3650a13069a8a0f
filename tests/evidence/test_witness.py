"""A witness that was not written here cosigns our checkpoints, and refuses what it must."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from analytics.evidence.notes import Note, VerifierKey
from service.audit.evidence.witnesses import NotCosigned, OtherSizeCosigned, cosign
from service.core.http_client import outgoing_client
from tests.budgets import only_full
from tests.evidence.logs import Log
from tests.evidence.verifiers import AICS, HOW
from tests.polling import HANG_S

pytestmark = [pytest.mark.slow, only_full, pytest.mark.timeout(2 * HANG_S)]

LOG = Log(300)
UNKNOWN = Log(5, tenant_id="org_unknown")


@dataclass(frozen=True)
class Witness:
    """A running server of aics-witness."""

    url: str
    key: VerifierKey

    async def cosign(self, http: httpx2.AsyncClient, old: int, new: int, log: Log = LOG) -> str:
        proof = log.tree.consistency(old, new)
        return await cosign(http, self.key, self.url, old, proof, log.checkpoint(new))


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    python = AICS / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no aics-witness: {HOW}")
    command = [python, "-m", "aics_witness"]
    config = ["--config", str(tmp_path / "witness.json")]

    def run(*words: str) -> str:
        ran = subprocess.run(
            [*command, *words[:1], *config, *words[1:]],
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_S,
        )
        return ran.stdout

    vkey = run("init", "--name", "witness.example/w1").strip()
    run("add-log", "--origin", LOG.origin, "--vkey", str(LOG.key))
    serving = [*command, "serve", *config, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serving, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            said = ""
            while not (listening := re.search(r"listening on (http://\S+)", said)):
                line = server.stderr.readline()
                assert line, said
                said += line
            yield Witness(listening[1], VerifierKey.parse(vkey))
        finally:
            server.terminate()


async def test_each_checkpoint_of_a_growing_log_is_cosigned(witness: Witness) -> None:
    async with outgoing_client() as http:
        old = 0
        for new in (1, 2, 256, 257, 300, 300):
            line = await witness.cosign(http, old, new)
            note = LOG.checkpoint(new)
            cosigned = Note(note.text, (*note.signatures, line))
            assert cosigned.signers([LOG.key, witness.key]) == [LOG.key, witness.key]
            assert cosigned.cosigned_at(witness.key) > 1_700_000_000
            old = new


async def test_another_size_than_the_last_one_is_told(witness: Witness) -> None:
    """A caller that does not know it asks from there."""
    async with outgoing_client() as http:
        await witness.cosign(http, 0, 100)
        with pytest.raises(OtherSizeCosigned) as other:
            await witness.cosign(http, 0, 300)
        assert other.value.size == 100
        assert (await witness.cosign(http, other.value.size, 300)).startswith("— ")


async def test_a_history_that_was_written_again_is_not_cosigned(witness: Witness) -> None:
    rewritten = Log(300, first_seq=2)
    async with outgoing_client() as http:
        await witness.cosign(http, 0, 100)
        with pytest.raises(NotCosigned, match="it answered 422"):
            await witness.cosign(http, 100, 300, rewritten)
        with pytest.raises(NotCosigned, match="it answered 4"):
            await witness.cosign(http, 100, 100, rewritten)


async def test_an_unknown_log_is_not_cosigned(witness: Witness) -> None:
    async with outgoing_client() as http:
        with pytest.raises(NotCosigned, match="it answered 404"):
            await witness.cosign(http, 0, 5, UNKNOWN)


async def test_several_may_ask_at_once(witness: Witness) -> None:
    """Of one size only the first gets through, or all the same."""
    async with outgoing_client() as http:
        asked = [witness.cosign(http, 0, 300) for _ in range(4)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, OtherSizeCosigned)]
    assert all(answer.size == 300 for answer in refused)
    assert len(refused) < len(answers)
