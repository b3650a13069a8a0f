"""kill -9 while a file is served: no byte without its row, no damaged file, each row once."""

import asyncio
import signal
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest

from tests.budgets import only_full
from tests.crashes import order_for
from tests.interpreters import run_module
from tests.service.packages.proxy.files import held
from tests.service.packages.proxy.proxied import BIG, Proxied, second_process, wheel_of

STEPS_MAX = 60

pytestmark = pytest.mark.slow


@dataclass
class Killing:
    """Serves a file of its own each time, in a process that is killed on the way."""

    proxied: Proxied
    count: int = 0

    async def at(self, beginning: str, number: int = 1, after: str = "") -> tuple[bytes, int]:
        """What was sent up to this step, and how the process ended.

        Asserts what must hold after every kill, and that the next process serves the file.
        """
        content = f"{self.count:08}".encode() + BIG
        self.count += 1
        name = f"foo{self.count}"
        self.proxied.publishes(name, wheel_of(name, "1.0", content))
        path = await self.proxied.path_of(name)
        ended = await self._serve_until(path, beginning, number, after)
        sent = ended.stdout
        assert content.startswith(sent)
        assert len(sent) == 0 or len(await self._rows(name)) == 1, "bytes without a row"
        async with second_process(self.proxied) as later:
            await later.world.services.packages.sweep()
            answer = await later.get(path)
            assert (answer.status_code, await answer.get_data()) == (200, content)
        assert [row["event"] for row in await self._rows(name)] == ["install_allowed"]
        return sent, ended.returncode

    async def cut_at(
        self, beginning: str, number: int = 1, after: str = ""
    ) -> tuple[list[str], list[str], int]:
        """The events before and after the file comes whole, and how the process ended.

        Its first transfer, of a file with a wrong last byte, ends early; it is killed at this step.
        """
        content = f"{self.count:08}".encode() + BIG
        self.count += 1
        name = f"foo{self.count}"
        self.proxied.publishes(name, wheel_of(name, "1.0", content))
        path = await self.proxied.path_of(name)
        file = f"/files/{name}-1.0-py3-none-any.whl"
        gate = asyncio.Event()
        opening = asyncio.create_task(self._open_once_recorded(name, gate))
        self.proxied.registry.does(file, held(content[:-1] + b"!", gate))
        ended = await self._serve_until(path, beginning, number, after)
        opening.cancel()
        assert len(ended.stdout) < len(content)
        before = [row["event"] for row in await self._rows(name)]
        self.proxied.registry.says(file, content)
        async with second_process(self.proxied) as later:
            assert await (await later.get(path)).get_data() == content
        after = [row["event"] for row in await self._rows(name)]
        return before, after, ended.returncode

    async def _open_once_recorded(self, name: str, gate: asyncio.Event) -> None:
        while not await self._rows(name):  # noqa: ASYNC110 - the other process has no event to set
            await asyncio.sleep(0.01)
        gate.set()

    async def _serve_until(
        self, path: str, beginning: str, number: int, after: str
    ) -> subprocess.CompletedProcess[Any]:
        settings = self.proxied.world.services.settings
        headers = {"x-service-api-key": self.proxied.key.secret}
        now = self.proxied.clock()
        given = order_for(
            settings, now, "serve-file", beginning, number, after=after, headers=headers
        )
        return await asyncio.to_thread(
            run_module, "tests.crashes", given, input=f"/proxy/acme/{path}".encode()
        )

    async def _rows(self, name: str) -> list[dict[str, Any]]:
        return [row for row in await self.proxied.rows() if row["packageName"] == name]


@pytest.fixture
async def killing(proxied: Proxied) -> Killing:
    """Over a data dir that other processes use, too."""
    return Killing(proxied)


async def test_killed_before_the_row_is_durable(killing: Killing):
    sent, code = await killing.at("COMMIT")

    assert (sent, code) == (b"", -signal.SIGKILL)


async def test_killed_between_the_row_and_the_first_byte(killing: Killing):
    """The row says that the file was to be served; a repeat is the same install."""
    sent, code = await killing.at("send")

    assert (sent, code) == (b"", -signal.SIGKILL)


async def test_killed_during_the_download(killing: Killing):
    """What was written is no file yet."""
    sent, code = await killing.at("pwrite", 3)

    assert code == -signal.SIGKILL
    assert len(sent) < len(BIG)


async def test_killed_at_the_rename(killing: Killing):
    """The file is verified and has no name: the next process fetches it again."""
    assert (await killing.at("rename", after="pwrite"))[1] == -signal.SIGKILL


@only_full
async def test_killed_at_any_step(killing: Killing):
    """Each statement, sync, write and rename on the way."""
    for number in range(1, STEPS_MAX):
        _, code = await killing.at("", number)
        if code == 0:
            break
        assert code == -signal.SIGKILL

    assert (code, number > 10) == (0, True)


ALLOWED, CUT = "install_allowed", "install_cut"


def check_cut(before: list[str], after: list[str]) -> None:
    """A cut and the end of its mark are one change: the next attempt is recorded or it is not."""
    assert before in ([], [ALLOWED], [ALLOWED, CUT])
    assert after == (before if before == [ALLOWED] else [*before, ALLOWED])


async def test_killed_before_a_cut_is_durable(killing: Killing):
    """The row stays alone: that its file did not arrive is then not recorded."""
    before, after, code = await killing.cut_at("COMMIT", after="send")

    assert (before, code) == ([ALLOWED], -signal.SIGKILL)
    check_cut(before, after)


@only_full
async def test_killed_at_any_step_of_a_cut(killing: Killing):
    """Each statement, sync and write after the first byte."""
    for number in range(1, STEPS_MAX):
        before, after, code = await killing.cut_at("", number, after="send")
        check_cut(before, after)
        if code == 0:
            break
        assert code == -signal.SIGKILL

    assert (before, number > 5) == ([ALLOWED, CUT], True)
