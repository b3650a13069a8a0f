"""Which witnesses are asked to cosign checkpoints, and the job that asks them.

A witness is a server of others that cosigns a checkpoint only if it continues the last one that it
cosigned (https://c2sp.org/tlog-witness): without it this service cannot sign another history. It is
asked after the checkpoint is stored, and never kept waiting for.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httpx2
import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.evidence.groups import LeavesDiffer
from analytics.evidence.notes import COSIGNATURE, InvalidNote, Note, VerifierKey, consistency_text
from analytics.model.log_envelopes import WitnessAdded, WitnessRemoved
from analytics.model.rows import AuditContext
from service.audit.evidence.prover import Prover, note_of
from service.audit.evidence.trees import StoredCheckpoint, read_last_checkpoint
from service.audit.lake import Lake
from service.audit.tenant_log import open_log
from service.core.clock import Clock
from service.core.errors import Conflict, Invalid, NotFound, Refusal
from service.core.http_client import outgoing_client
from service.store.organisations import list_orgs
from service.store.store import Store
from service.store.tables import EvidenceCheckpoint, EvidenceTree, Organisation, Witness
from service.store.transaction import within

WITNESSES_MAX: Final = 16

NO_WITNESS_KEY: Final = Invalid.of(
    "the key of a witness is a vkey of type 4, as witnesses publish it: {value}",
    value="a key must have the form name+id+base64, of Ed25519",
)
NO_WITNESS_URL: Final = Invalid.of(
    "the address of a witness is an https:// URL, or http:// on this machine, without"
    " a user, password, query or fragment"
)
WITNESS_EXISTS: Final = Conflict.of(
    "there is a witness {value}: remove it first", value="witness.example/w1"
)
TOO_MANY_WITNESSES: Final = Conflict.of(f"limit of {WITNESSES_MAX} witnesses reached")
WITNESS_NOT_FOUND: Final = NotFound.of("there is no witness {value}", value="witness.example/w1")
ANSWER_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 * 1024
_YEAR_10000_S: Final = 253_402_300_800
_SIZE_TYPE: Final = "text/x.tlog.size"
_SIZE: Final = re.compile(rb"(0|[1-9][0-9]{0,18})\n")
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

_log = structlog.get_logger(__name__)


async def list_witnesses(session: AsyncSession) -> list[Witness]:
    """All of them, by name."""
    return [*await session.scalars(select(Witness).order_by(Witness.name))]


async def add_witness(store: Store, by: AuditContext, vkey: str, url: str) -> Witness:
    """Ask this witness from now on. Raises what the table above has."""
    try:
        key = VerifierKey.parse(vkey)
    except InvalidNote as error:
        raise NO_WITNESS_KEY(value=str(error)) from error
    if key.kind != COSIGNATURE:
        raise NO_WITNESS_KEY(value="this one is that of a log")
    if not _is_address(url):
        raise NO_WITNESS_URL
    async with store.write() as work:
        known = await list_witnesses(work.session)
        if key.name in {each.name for each in known}:
            raise WITNESS_EXISTS(value=key.name)
        if len(known) >= WITNESSES_MAX:
            raise TOO_MANY_WITNESSES
        witness = Witness(name=key.name, vkey=str(key), url=url, created_at=work.now)
        work.session.add(witness)
        for org in await list_orgs(work.session):
            work.record(org.id, WitnessAdded(name=key.name, key=str(key), url=url), by)
    return witness


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        # The address is listed and recorded: it must not hold a password.
        is_plain = "@" not in parts.netloc and parts.port != 0 and not parts.query + parts.fragment
    except ValueError:  # no such host or port can be
        return False
    return bool(parts.hostname) and (parts.scheme == "https" or is_local) and is_plain


async def remove_witness(store: Store, by: AuditContext, name: str) -> None:
    """Ask it no longer. Raises WITNESS_NOT_FOUND."""
    async with store.write() as work:
        witness = await work.session.get(Witness, name)
        if witness is None:
            raise WITNESS_NOT_FOUND(value=name)
        await work.session.delete(witness)
        for org in await list_orgs(work.session):
            work.record(org.id, WitnessRemoved(name=name, key=witness.vkey), by)


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
) -> str:
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
    return signed[0]


async def _post(http: httpx2.AsyncClient, url: str, content: bytes) -> tuple[int, str, bytes]:
    async with http.stream("POST", url, content=content, follow_redirects=False) as response:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise httpx2.DecodingError("too long", request=response.request)
        return response.status_code, response.headers.get("content-type", ""), bytes(body)


@dataclass(frozen=True, slots=True)
class Cosigner:
    """Asks all witnesses to cosign the newest checkpoint of each organisation."""

    store: Store
    lake: Lake
    clock: Clock
    transport: httpx2.AsyncBaseTransport | None

    async def cosign_due(self) -> None:
        """Ask those whose signature is missing; what fails is tried again with the next one."""
        async with self.store.read() as session:
            witnesses = await list_witnesses(session)
            orgs = await list_orgs(session) if witnesses else []
        if orgs:
            async with outgoing_client(self.transport) as http:
                silent: set[str] = set()  # asked no more in this round
                for org in orgs:
                    await self._cosign(http, org, witnesses, silent)

    async def _cosign(
        self,
        http: httpx2.AsyncClient,
        org: Organisation,
        witnesses: Sequence[Witness],
        silent: set[str],
    ) -> None:
        async with self.store.read() as session:
            tree = await session.get(EvidenceTree, org.id)
            last = await within(session, read_last_checkpoint, org.id)
        if tree is None or last is None or tree.suspended is not None:
            return
        note = Note.parse(note_of(tree.origin, last))
        for witness in witnesses:
            key = VerifierKey.parse(witness.vkey)
            if witness.name in silent or note.signers([key]):
                continue
            try:
                line = await self._ask(http, org, key, witness.url, note, last.size)
            except (NotCosigned, Refusal, LeavesDiffer) as error:
                _log.error("checkpoint_not_cosigned", witness=witness.name, reason=str(error))
                if isinstance(error, NoAnswer):
                    silent.add(witness.name)
            else:
                await self._store(org, last, key, line)

    async def _ask(
        self,
        http: httpx2.AsyncClient,
        org: Organisation,
        key: VerifierKey,
        url: str,
        note: Note,
        size: int,
    ) -> str:
        log = await open_log(self.store, self.lake, org, self.clock())
        prover = Prover(self.store, log)
        old = 0
        for _ in range(2):
            _, proof = await prover.consistency(old, size)
            try:
                return await cosign(http, key, url, old, proof, note)
            except OtherSizeCosigned as other:
                if not 0 < other.size <= size or old:
                    raise
                old = other.size
        raise NotCosigned("it names another size each time")

    async def _store(
        self, org: Organisation, signed: StoredCheckpoint, key: VerifierKey, line: str
    ) -> None:
        async with self.store.write() as work:
            place = (org.id, signed.generation, signed.size)
            checkpoint = await work.session.get_one(EvidenceCheckpoint, place)
            present = Note("", tuple(checkpoint.signatures.splitlines())).signed_by()
            # Another node may have asked it, too.
            if key.key_id not in {key_id for _, key_id, _ in present}:
                checkpoint.signatures += f"{line}\n"
