"""Resource use of a process and its descendants over time, read from Linux's /proc."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.memory import processes_of, share_mb


@dataclass(frozen=True)
class Sample:
    """At `after_s` seconds: resident memory in MB, open file descriptors, processor seconds."""

    after_s: float
    memory_mb: float
    descriptors: int
    processor_s: float


@dataclass
class Watch:
    """Samples of a process with its descendants, oldest first."""

    process_id: int
    began_at: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)

    def look(self) -> Sample:
        """Add a sample."""
        every = processes_of(self.process_id)
        sample = Sample(
            after_s=round(time.monotonic() - self.began_at, 1),
            memory_mb=round(sum(map(share_mb, every)), 1),
            descriptors=sum(map(_descriptors, every)),
            processor_s=round(processor_s(self.process_id), 2),
        )
        self.samples.append(sample)
        return sample

    @property
    def peak_mb(self) -> float:
        """The most memory of all samples, in MB."""
        return max(sample.memory_mb for sample in self.samples)


def processor_s(process_id: int) -> float:
    """Processor time of the process and its descendants so far, to hundredths of a second."""
    ticks = 0
    for each in processes_of(process_id):
        with suppress(OSError):  # it has ended, and counts among the children of its parent
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _descriptors(process_id: int) -> int:
    with suppress(OSError):
        return len(list(Path(f"/proc/{process_id}/fd").iterdir()))
    return 0


@contextmanager
def watched(process_id: int, every_s: float) -> Iterator[Watch]:
    """Samples of the process every `every_s` seconds, and at both ends."""
    watch = Watch(process_id)
    is_over = threading.Event()
    watch.look()

    def sample() -> None:
        while not is_over.wait(every_s):
            watch.look()

    sampling = threading.Thread(target=sample)
    sampling.start()
    try:
        yield watch
    finally:
        is_over.set()
        sampling.join()
        watch.look()
