"""What answers of a witness mean; its server is another one than ours, and may be hostile."""

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from analytics.evidence.notes import Note, parse_consistency
from service.audit.evidence import witnesses
from service.audit.evidence.witnesses import (
    ANSWER_BYTES_MAX,
    NotCosigned,
    OtherSizeCosigned,
    cosign,
)
from service.core.http_client import outgoing_client
from tests.evidence.logs import Log, SomeWitness

LOG = Log(9)
NOTE = LOG.checkpoint()
W1, W2 = SomeWitness("w1.example/a"), SomeWitness("w2.example/a")
Answer = Callable[[httpx2.Request], httpx2.Response]


async def ask(answer: Answer, url: str = "https://w1.example/prefix/") -> str:
    async with outgoing_client(httpx2.MockTransport(answer)) as http:
        return await cosign(http, W1.key, url, 4, LOG.tree.consistency(4, 9), NOTE)


def lines(*witnesses: SomeWitness, note: Note = NOTE) -> str:
    return "".join(f"{witness.cosign(note).signatures[-1]}\n" for witness in witnesses)


def answering(text: str, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx2.Response(status, content=text.encode(), headers=named)


async def test_the_request_has_the_form_of_the_specification() -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, content=lines(W1).encode())

    assert await ask(answer) == lines(W1).rstrip()
    (request,) = seen
    assert (request.method, str(request.url)) == (
        "POST",
        "https://w1.example/prefix/add-checkpoint",
    )
    text = request.content.decode()
    assert text.startswith("old 4\n")
    assert text.endswith(f"\n\n{NOTE}")
    sent = parse_consistency(text)
    assert (sent.number, [*sent.hashes], sent.checkpoint) == (4, LOG.tree.consistency(4, 9), NOTE)


async def test_lines_of_others_are_left_out() -> None:
    assert await ask(answering(lines(W2, W1))) == lines(W1).rstrip()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (answering(lines(W2)), "it did not sign with the key w1.example/a"),
        (answering(lines(W1, note=LOG.checkpoint(8))), "the signature of w1.example/a is wrong"),
        (answering(""), "its answer is wrong: a note is a text"),
        (answering("<html>"), "its answer is wrong"),
        (lambda _: httpx2.Response(200, content=b"\xff\n"), "its answer is wrong"),
        (answering("x" * (ANSWER_BYTES_MAX + 1)), "too long"),
        (answering("no\n" * 999, 403), "it answered 403: no"),
        (answering("9\n", 409), "it answered 409: 9"),
        (answering("-9\n", 409, content_type="text/x.tlog.size"), "it answered 409"),
        (answering("9" * 40 + "\n", 409, content_type="text/x.tlog.size"), "it answered 409"),
        (answering("", 302, location="https://other.example/"), "it answered 302"),
    ],
)
async def test_what_is_no_cosignature_is_told(answer: Answer, reason: str) -> None:
    with pytest.raises(NotCosigned, match=reason):
        await ask(answer)


async def test_the_size_that_a_witness_cosigned_is_taken_from_its_answer() -> None:
    with pytest.raises(OtherSizeCosigned, match="a checkpoint of 7 rows last") as other:
        await ask(answering("7\n", 409, content_type="text/x.tlog.size"))
    assert other.value.size == 7


async def test_a_witness_that_is_away_is_told() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    with pytest.raises(NotCosigned, match="ConnectError: refused"):
        await ask(answer)


async def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witnesses, "ANSWER_S", 0.01)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(3_600)
            yield b""

    with pytest.raises(NotCosigned, match=r"no answer within 0\.01 s"):
        await ask(lambda _: httpx2.Response(200, content=endless()))
