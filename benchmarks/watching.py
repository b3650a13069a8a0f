"""What a process takes while it works, read from Linux's /proc."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """At `after_s` seconds: resident memory in MB, open file descriptors, processor seconds."""

    after_s: float
    memory_mb: float
    descriptors: int
    processor_s: float


@dataclass
class Watch:
    """Samples of one process, oldest first."""

    process_id: int
    began_at: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)

    def look(self) -> Sample:
        """Take one more sample."""
        folder = Path(f"/proc/{self.process_id}")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        sample = Sample(
            after_s=round(time.monotonic() - self.began_at, 1),
            memory_mb=round(_kilobytes(folder / "status", "VmRSS") / 1024, 1),
            descriptors=len(list((folder / "fd").iterdir())),
            processor_s=ticks / 100,
        )
        self.samples.append(sample)
        return sample

    @property
    def peak_mb(self) -> float:
        """The most memory it has had at any time, in MB."""
        return _kilobytes(Path(f"/proc/{self.process_id}/status"), "VmHWM") / 1024


@asynccontextmanager
async def watched(process_id: int, every_s: float) -> AsyncIterator[Watch]:
    """Samples of the process every `every_s` seconds, one at either end included."""
    watch = Watch(process_id)
    watch.look()
    sampling = asyncio.create_task(_sample(watch, every_s))
    try:
        yield watch
    finally:
        sampling.cancel()
        watch.look()


async def _sample(watch: Watch, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        watch.look()


def _kilobytes(status: Path, name: str) -> int:
    for line in status.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)
