"""Witnesses are asked to cosign each organisation's newest checkpoint."""

import httpx2
import pytest

from analytics.evidence.merkle import verify_consistency
from analytics.evidence.notes import Checkpoint, Note, VerifierKey, parse_consistency
from service.audit.evidence.witnesses import (
    NO_WITNESS_KEY,
    NO_WITNESS_URL,
    WITNESS_EXISTS,
    WITNESS_NOT_FOUND,
    Cosigner,
    add_witness,
    list_witnesses,
    remove_witness,
)
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR
from tests.evidence.logs import SomeWitness
from tests.service.audit.evidence.proving import answer, prove, sign

W1 = SomeWitness("w1.example/a")
URL = "https://w1.example/"


class Serving:
    """A witness that holds the last checkpoint of each log, as the specification demands."""

    def __init__(self) -> None:
        self.held: dict[str, Checkpoint] = {}
        self.asked = 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        sent = parse_consistency(request.content.decode())
        checkpoint = Checkpoint.parse(sent.checkpoint.text)
        before = self.held.get(checkpoint.origin)
        if sent.number != (0 if before is None else before.size):
            content = f"{0 if before is None else before.size}\n".encode()
            return httpx2.Response(
                409, content=content, headers={"content-type": "text/x.tlog.size"}
            )
        if before is not None:
            verify_consistency(
                before.size, checkpoint.size, before.root, checkpoint.root, sent.hashes
            )
        self.held[checkpoint.origin] = checkpoint
        line = W1.cosign(sent.checkpoint).signatures[-1]
        return httpx2.Response(200, content=f"{line}\n".encode())


@pytest.fixture
async def witnessed(audit):
    await add_witness(audit.services.store, BY_OPERATOR, str(W1.key), URL)
    return audit


async def ask(audit, answering) -> None:
    services = audit.services
    transport = httpx2.MockTransport(answering)
    await Cosigner(services.store, services.lake, audit.clock, transport).cosign_due()


async def test_each_newest_checkpoint_is_cosigned_once(witnessed):
    serving = Serving()
    for _ in range(3):
        await witnessed.accept([sample_row()])
        await sign(witnessed)
        await ask(witnessed, serving)
        said = await answer(witnessed, "/checkpoint")
        note = Note.parse(said["note"])
        assert note.signers([VerifierKey.parse(key) for key in said["witnesses"]]) == [W1.key]
    asked = serving.asked
    await ask(witnessed, serving)
    assert serving.asked == asked
    (row, *_) = await witnessed.pages(event="blocklist_hit")
    assert W1.name in (await prove(witnessed, row))["note"]


@pytest.mark.parametrize("size", [10**6, 1])
async def test_a_witness_that_holds_another_history_leaves_the_checkpoint_uncosigned(
    witnessed, size
):
    """It names a size, which this log never had, or another one each time."""
    await witnessed.accept([sample_row()])
    await sign(witnessed)
    said = iter(range(size, size + 9))

    def other(_: httpx2.Request) -> httpx2.Response:
        kind = {"content-type": "text/x.tlog.size"}
        return httpx2.Response(409, content=f"{next(said)}\n".encode(), headers=kind)

    await ask(witnessed, other)
    assert W1.name not in (await answer(witnessed, "/checkpoint"))["note"]
    serving = Serving()
    await ask(witnessed, serving)
    assert W1.name in (await answer(witnessed, "/checkpoint"))["note"]


async def test_a_witness_that_is_removed_is_asked_no_more(witnessed):
    store = witnessed.services.store
    await remove_witness(store, BY_OPERATOR, W1.name)
    serving = Serving()
    await sign(witnessed)
    await ask(witnessed, serving)
    assert serving.asked == 0
    (row,) = await witnessed.pages(event="evidence_witness_removed")
    assert row["payload"]["key"] == str(W1.key)
    with pytest.raises(WITNESS_NOT_FOUND):
        await remove_witness(store, BY_OPERATOR, W1.name)


@pytest.mark.parametrize(
    ("vkey", "url", "refusal"),
    [
        ("x", URL, NO_WITNESS_KEY),
        (str(VerifierKey("w", bytes(32))), URL, NO_WITNESS_KEY),
        (str(SomeWitness("w2").key), "http://w2.example", NO_WITNESS_URL),
        (str(SomeWitness("w2").key), "file:///etc", NO_WITNESS_URL),
        (str(SomeWitness("w2").key), "https://w2.example/?a=b", NO_WITNESS_URL),
        (str(SomeWitness("w2").key), "https://w2.example/#a", NO_WITNESS_URL),
        (str(SomeWitness("w2").key), "https://user:secret@w2.example", NO_WITNESS_URL),
        (str(SomeWitness("w2").key), "https://secret@w2.example", NO_WITNESS_URL),
        (str(SomeWitness("w2").key), "https://w2.example:port", NO_WITNESS_URL),
        (str(SomeWitness("w2").key), "https://[w2.example", NO_WITNESS_URL),
        (str(W1.key), URL, WITNESS_EXISTS),
    ],
)
async def test_what_is_no_witness_is_refused(witnessed, vkey, url, refusal):
    with pytest.raises(refusal):
        await add_witness(witnessed.services.store, BY_OPERATOR, vkey, url)
    async with witnessed.services.store.read() as session:
        assert [each.name for each in await list_witnesses(session)] == [W1.name]
