"""Processor time, memory and file descriptors of each of the processes that serve together."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder through which the processes of a supervisor count together."""
_PID_BYTES: Final = 16


def reserve_pid_file(folder: Path, name: str) -> None:
    """Make the file of process `name`, with the room that it needs later. Raises OSError."""
    (folder / f"{name}.pid").write_text(" " * _PID_BYTES)


def record_pid(folder: Path, name: str) -> None:
    """Say in `folder` that this process is process `name` now."""
    with (folder / f"{name}.pid").open("r+") as file:
        file.write(str(os.getpid()).ljust(_PID_BYTES))


class ProcessesCollector(Collector):
    """prometheus_client's `process_…` metrics, with the label `process`."""

    def collect(self) -> Iterator[Metric]:
        """Those of each process; of one that has just ended there are none."""
        families: dict[str, Metric] = {}
        for name, pid in with_children(process_ids()).items():
            for family in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                shown = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    shown.add_sample(sample.name, {"process": name}, sample.value)
        yield from families.values()


def process_ids() -> dict[str, int]:
    """The process ids by name: the supervisor, if it does not serve itself, and its processes."""
    supervisor, folder = parent_process(), os.environ.get(METRICS_FOLDER)
    if folder is None:
        return {"0": os.getpid()}
    noted = {path.stem: path.read_text().strip() for path in Path(folder).glob("*.pid")}
    above = {} if supervisor is None or supervisor.pid is None else {"supervisor": supervisor.pid}
    return above | {name: int(pid) for name, pid in sorted(noted.items()) if pid}


def with_children(processes: Mapping[str, int]) -> dict[str, int]:
    """`processes`, and their other children: `0.1` is the second one of process 0."""
    found = dict(processes)
    for name, pid in processes.items():
        children = sorted(_children(pid) - set(processes.values()))
        found |= {f"{name}.{place}": child for place, child in enumerate(children)}
    return found


def _children(pid: int) -> set[int]:
    children: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children |= {int(child) for child in path.read_text().split()}
        except OSError:  # the thread has ended
            continue
    return children
