"""Resource use of a process over time, read from Linux's /proc."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.memory import line_mb


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
        """Add a sample."""
        folder = Path(f"/proc/{self.process_id}")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        sample = Sample(
            after_s=round(time.monotonic() - self.began_at, 1),
            memory_mb=round(line_mb(folder / "status", "VmRSS"), 1),
            descriptors=len(list((folder / "fd").iterdir())),
            processor_s=ticks / 100,
        )
        self.samples.append(sample)
        return sample

    @property
    def peak_mb(self) -> float:
        """The peak memory of the process, in MB."""
        return line_mb(Path(f"/proc/{self.process_id}/status"), "VmHWM")


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
