"""Witnesses: servers of others that cosign a checkpoint which continues the last one they saw.

https://c2sp.org/tlog-witness is the protocol.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

import httpx2

from analytics.evidence.notes import InvalidNote, Note, VerifierKey, consistency_text

ANSWER_S: Final = 10.0
_YEAR_10000_S: Final = 253_402_300_800
ANSWER_BYTES_MAX: Final = 64 * 1024
_SIZE_TYPE: Final = "text/x.tlog.size"
_SIZE: Final = re.compile(rb"(0|[1-9][0-9]{0,18})\n")


class NotCosigned(Exception):
    """A witness did not cosign; the text says why."""


class NoAnswer(NotCosigned):
    """It cannot be reached, or is too slow."""


class OtherSizeCosigned(NotCosigned):
    """The last checkpoint that the witness cosigned is of `size`: send the proof from there."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it cosigned a checkpoint of {size} rows last")
        self.size = size


async def cosign(
    http: httpx2.AsyncClient,
    witness: VerifierKey,
    url: str,
    old: int,
    proof: Sequence[bytes],
    note: Note,
) -> list[str]:
    """The line with which `witness`, whose prefix is `url`, cosigns the checkpoint `note`.

    `proof` says that its tree continues that of `old` rows, which the witness cosigned last.
    Raises OtherSizeCosigned, NotCosigned.
    """
    request = consistency_text(old, proof, str(note)).encode()
    try:
        async with asyncio.timeout(ANSWER_S):
            status, kind, body = await _post(http, f"{url.rstrip('/')}/add-checkpoint", request)
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {ANSWER_S:g} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
    if status == httpx2.codes.CONFLICT and kind == _SIZE_TYPE and (size := _SIZE.fullmatch(body)):
        raise OtherSizeCosigned(int(size[1]))
    if status != httpx2.codes.OK:
        raise NotCosigned(f"it answered {status}: {body[:200].decode(errors='replace')}")
    try:
        lines = Note.parse(f"{note.text}\n{body.decode()}").signatures
        signed = [line for line in lines if Note(note.text, (line,)).signers([witness])]
    except (InvalidNote, UnicodeDecodeError) as error:
        raise NotCosigned(f"its answer is wrong: {error}") from error
    if not signed:
        raise NotCosigned(f"it did not sign with the key {witness.label}")
    if not 0 < Note(note.text, (signed[0],)).cosigned_at(witness) < _YEAR_10000_S:
        raise NotCosigned("it signed no time that there is")
    return signed[:1]


async def _post(http: httpx2.AsyncClient, url: str, content: bytes) -> tuple[int, str, bytes]:
    async with http.stream("POST", url, content=content, follow_redirects=False) as response:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise httpx2.DecodingError("too long", request=response.request)
        return response.status_code, response.headers.get("content-type", ""), bytes(body)
