"""A process that gets one file through a file cache, until it is killed at a step it was told."""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from service.packages.proxy.file_keys import parse_file_key
from tests.replaced import replaced
from tests.service.packages.proxy.files import open_files
from tests.service.packages.proxy.registry import FakeRegistry, http_client

STEPS = ((os, "fsync"), (os, "pwrite"), (Path, "rename"), (Path, "unlink"))


class Order(msgspec.Struct):
    """What to get, and the number of the step not to take any more; 0 for none."""

    folder: str
    url: str
    key: str
    last: int = 0


@contextmanager
def counted_steps(last: int) -> Any:
    """Be killed before the step with the number `last` that changes a file."""
    taken = 0

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return run

    with replaced(*((owner, name, stepping(getattr(owner, name))) for owner, name in STEPS)):
        yield


async def obey(order: Order) -> None:
    """Get the file and print the SHA-256 of what came."""
    folder, registry = Path(order.folder), FakeRegistry(order.url)
    async with http_client() as http, open_files(folder, registry, http, is_alone=False) as files:
        with counted_steps(order.last):
            got = await files.get(parse_file_key(order.key).at("01" * 32))
            await files.settled()
    sys.stdout.write(hashlib.sha256(got).hexdigest())


if __name__ == "__main__":
    asyncio.run(obey(msgspec.json.decode(sys.argv[1], type=Order)))
