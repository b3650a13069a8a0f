"""RELP, the Reliable Event Logging Protocol of rsyslog: each message is acknowledged.

https://github.com/rsyslog/librelp/blob/master/doc/relp.html
"""

import asyncio
from collections.abc import Sequence
from typing import Final

_OFFER: Final = b"relp_version=0\nrelp_software=countersign\ncommands=syslog"
_ANSWER_BYTES_MAX: Final = 64 * 1024


class RelpRefused(Exception):
    """The receiver has refused a message; what it answered."""


async def send_messages(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, messages: Sequence[bytes]
) -> None:
    """Send messages in a session of their own, which ends once all are acknowledged.

    Raises RelpRefused, OSError (also if the receiver takes no session), EOFError, and ValueError
    for an answer that is none of RELP.
    """
    writer.write(_frame(1, b"open", _OFFER))
    try:
        await _confirmed(reader)
    except RelpRefused as error:
        raise ConnectionRefusedError(str(error).strip()) from error
    writer.writelines([_frame(n, b"syslog", each) for n, each in enumerate(messages, 2)])
    for _ in messages:
        await _confirmed(reader)
    writer.write(_frame(len(messages) + 2, b"close"))


def _frame(number: int, command: bytes, content: bytes = b"") -> bytes:
    before = b" " if content else b""
    return b"%d %s %d%s%s\n" % (number, command, len(content), before, content)


async def _confirmed(reader: asyncio.StreamReader) -> None:
    """Wait for the next answer: `NUMBER rsp LENGTH 200 …`."""
    fields = [await reader.readuntil(b" ") for _ in range(3)]
    length = fields[2].strip()
    if fields[1] != b"rsp " or not length.isdigit() or int(length) > _ANSWER_BYTES_MAX:
        raise ValueError(f"no answer of RELP: {b''.join(fields)!r}")
    answer = await reader.readexactly(int(length) + 1)  # and a line feed
    if not answer.startswith(b"200"):
        raise RelpRefused(answer.decode(errors="replace"))
