"""What Linux tells of running processes in `/proc`: they may close files and end meanwhile."""

import signal
from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"
"""In /proc/net/tcp; of a listener, the same field counts connections."""

_ENDED = (FileNotFoundError, ProcessLookupError)


def children(process_id: int) -> set[int]:
    """The processes that any thread of this one has started and that run."""
    found: set[int] = set()
    with suppress(*_ENDED):
        for thread in Path(f"/proc/{process_id}/task").iterdir():
            with suppress(*_ENDED):
                found |= set(map(int, (thread / "children").read_text().split()))
    return found


def descendants(process_id: int) -> set[int]:
    """Its children, those of its children, and so on."""
    found = children(process_id)
    return found.union(*map(descendants, found))


def command(process_id: int) -> bytes:
    """Its command line, arguments ended by NUL; empty once it has ended."""
    with suppress(*_ENDED):
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    return b""


def open_names(process_id: int | str) -> list[str]:
    """The names of what it has open: paths, and `socket:[inode]`."""
    names = []
    with suppress(*_ENDED):
        for link in Path(f"/proc/{process_id}/fd").iterdir():
            with suppress(*_ENDED):
                names.append(str(link.readlink()))
    return names


def catches_sigterm(process_id: int) -> bool:
    """True once it has a handler of its own for SIGTERM."""
    with suppress(*_ENDED):
        for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def is_paused(process_id: int) -> bool:
    """True once a SIGSTOP has reached it: a signal sent before may still come first."""
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def has_unread_bytes(port: int) -> bool:
    """True if a client has sent what the listener on `port` of this machine has not read."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        int(queues.partition(":")[2], 16)
        for _, local, _, state, queues, *_ in lines
        if local.endswith(f":{port:04X}") and state == _ESTABLISHED
    )
