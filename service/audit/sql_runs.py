"""Runs statements in SQL, each in a process of its own, in its organisation's turn."""

import asyncio
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import structlog

from analytics.query.sql_job import FILE_BYTES_MAX, TOO_LARGE, SqlJob, SqlOutcome, StoredRows
from analytics.storage.journal_batches import JournalBatch, decode_batches
from analytics.storage.segment_metadata import Segment
from service.audit.lake import Lake
from service.audit.refusals import SQL_DIED, SQL_REFUSED, SQL_TOO_LARGE, SQL_TOO_SLOW
from service.audit.tenant_log import TenantLog
from service.core.fair_queue import Bounds, FairTurns, Length
from service.core.settings import Settings
from service.core.threads import run_uncancellable

CHILD: Final = "analytics.query.sql_child"
_ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""All of it, so without a secret. Other allocators reserve more than the process may have."""

_OUTCOME_BYTES_MAX: Final = 2**20
_PIECE_BYTES: Final = 256 * 1024
_FETCHED_TOGETHER: Final = 64
"""Segments between two looks at the time, where they lie in a bucket."""

_WAITING_PER_TENANT: Final = 8
_WAITING: Final = 64

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The result of a statement: what it has, and its rows as they were asked for."""

    outcome: SqlOutcome
    content: bytes


class SqlRunner:
    """Runs statements of all organisations; of one organisation one at a time."""

    def __init__(self, settings: Settings, lake: Lake) -> None:
        self.time_max_s = settings.sql_max_s
        self.memory_mb = settings.sql_memory_mb
        self._lake = lake
        at_once = settings.sql_at_once
        self._turns = FairTurns(
            Bounds(
                at_once=at_once,
                per_tenant=1,
                beside_others=1,
                long_at_once=at_once,
                long_per_tenant=1,
                waiting_per_tenant=_WAITING_PER_TENANT,
                waiting=_WAITING,
                per_caller=_WAITING_PER_TENANT,
            ),
            settings.query_wait_max_s,
        )

    @asynccontextmanager
    async def turn(self, tenant_id: str) -> AsyncIterator[None]:
        """A turn to `run`. Raises TooManyWaiting, ServerBusy, WAITED_TOO_LONG."""
        async with self._turns.turn(tenant_id, Length.LONG):
            yield

    async def run(self, log: TenantLog, job: SqlJob) -> SqlAnswer:
        """The result of `job` over the rows of `log`. Its process ends with the caller's task.

        Raises SQL_REFUSED, SQL_TOO_LARGE, SQL_TOO_SLOW, SQL_DIED, StoreFault.
        """
        snapshot = log.snapshot
        journal = await self._lake.run_in_thread(_stream_of, snapshot.batches)
        root = self._lake.segments.root
        job.tenant_id, job.floor = log.org.id, log.floor
        job.files = [
            StoredRows(str(segment.path(root)), segment.seq_base, segment.received_at)
            for segment in snapshot.segments
        ]
        try:
            async with asyncio.timeout(self.time_max_s), self._local(snapshot.segments):
                said = await self._ask(msgspec.json.encode(job) + b"\n" + journal)
        except TimeoutError as error:
            raise SQL_TOO_SLOW(seconds=f"{self.time_max_s:g}") from error
        head, _, content = said.partition(b"\n")
        outcome = msgspec.json.decode(head, type=SqlOutcome)
        if outcome.refused == TOO_LARGE:
            raise SQL_TOO_LARGE
        if outcome.refused is not None:
            raise SQL_REFUSED(value=outcome.refused)
        return SqlAnswer(outcome, content)

    @asynccontextmanager
    async def _local(self, segments: Sequence[Segment]) -> AsyncIterator[None]:
        """In the block the files of `segments` are local, and what the catalog says they are."""
        ends_at = time.monotonic() + self.time_max_s

        def check(_: int) -> None:
            if time.monotonic() > ends_at:
                raise TimeoutError

        def enter() -> None:
            for start in range(0, len(segments), _FETCHED_TOGETHER):
                check(start)
                part = segments[start : start + _FETCHED_TOGETHER]
                stack.enter_context(self._lake.segments.local(part, check))

        stack = ExitStack()
        try:
            await run_uncancellable(enter)
            yield
        finally:
            await run_uncancellable(stack.close)

    async def _ask(self, job: bytes) -> bytes:
        process = await create_subprocess_exec(
            sys.executable, "-I", "-m", CHILD,
            stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_ENVIRONMENT, cwd="/",
        )  # fmt: skip
        try:
            said = await _exchange(process, job)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            code = await process.wait()
        if code in {-signal.SIGALRM, -signal.SIGXCPU}:
            raise TimeoutError
        if code == -signal.SIGKILL:  # the kernel's, which had no memory left, or ours
            raise SQL_TOO_LARGE
        if b"\n" not in said:
            died = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            _log.error("sql_process_died", how=died)
            raise SQL_DIED(value=died)
        return said


async def _exchange(process: Process, job: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101 - pipes
    with suppress(ConnectionError):  # it has died: what it said is incomplete
        process.stdin.write(job)
        await process.stdin.drain()
    process.stdin.close()
    said = bytearray()
    while len(said) <= FILE_BYTES_MAX + _OUTCOME_BYTES_MAX:
        more = await process.stdout.read(_PIECE_BYTES)
        if not more:
            await process.wait()
            break
        said += more
    return bytes(said)


def _stream_of(batches: Sequence[JournalBatch]) -> bytes:
    rows = decode_batches(batches)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())
