"""`make mutants`: try a sample of the seeded mutants, and list those that no test notices.

The sample depends on the seed alone. Each mutant is tried on a copy of the code with the tests
that `modules.py` names for its module.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from tests.mutants.copied import Copy
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.modules import MODULES, REPOSITORY
from tests.mutants.seeded import Mutant, mutants_of

SAMPLE: Final = 100
SEED: Final = 1
PASSED: Final = 0


class Trial(NamedTuple):
    """A mutant of a module."""

    module: str
    mutant: Mutant

    @property
    def name(self) -> str:
        """Where it is, and what it is."""
        return f"{self.module} {self.mutant.name}"

    @property
    def shown(self) -> str:
        """What a reader has to judge."""
        return f"{self.name}\n    {self.mutant.statement}\n    -> {self.mutant.text}"


@contextmanager
def copies(number: int) -> Iterator[list[Copy]]:
    """So many copies, which are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        made = [Copy(Path(folder) / str(each)) for each in range(number)]
        try:
            yield made
        finally:
            for one in made:
                one.close()


def trials(modules: list[str], count: int | None, seed: int) -> list[Trial]:
    """A sample of the mutants of `modules`, or all, without those that are judged equivalent."""
    found = [
        Trial(module, mutant)
        for module in modules
        for mutant in mutants_of((REPOSITORY / module).read_text())
        if mutant.name not in EQUIVALENT
    ]
    if count is None or count >= len(found):
        return found
    return random.Random(seed).sample(found, count)


def _is_noticed(trial: Trial, copy: Copy) -> bool:
    """Whether a test fails with the mutant, or does not end in time."""
    code = (REPOSITORY / trial.module).read_text()
    with copy.with_code(trial.module, trial.mutant.applied_to(code)):
        return copy.run(*MODULES[trial.module])[0] != PASSED


def try_all(sample: list[Trial], workers: int) -> list[Trial]:
    """Those of the sample that are not noticed; says how far it is."""
    with copies(workers) as made, ThreadPoolExecutor(workers) as threads:
        free: SimpleQueue[Copy] = SimpleQueue()
        for one in made:
            free.put(one)

        def is_noticed(trial: Trial) -> bool:
            one = free.get()
            try:
                return _is_noticed(trial, one)
            finally:
                free.put(one)

        survivors = []
        for number, (trial, noticed) in enumerate(
            zip(sample, threads.map(is_noticed, sample), strict=True), 1
        ):
            if not noticed:
                survivors.append(trial)
                print(f"[{number}/{len(sample)}] survives: {trial.shown}", flush=True)
    return survivors


def report(sample: list[Trial], survivors: list[Trial]) -> None:
    """The rate of each module that has survivors, and of all."""
    of_module, alive = (Counter(one.module for one in each) for each in (sample, survivors))
    for module in sorted(alive):
        killed = of_module[module] - alive[module]
        print(f"{module}: {killed} of {of_module[module]} noticed")
    killed = len(sample) - len(survivors)
    print(f"{killed} of {len(sample)} mutants noticed: {killed / len(sample):.1%}")


def main() -> int:
    """0 if every mutant is noticed, else 1."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=SAMPLE, help="how many (0: all)")
    parser.add_argument("--seed", type=int, default=SEED, help="of the sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("modules", nargs="*", help="modules to change (default: all)")
    given = parser.parse_args()
    unknown = set(given.modules) - MODULES.keys()
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in tests/mutants/modules.py")
    sample = trials(given.modules or [*MODULES], given.count or None, given.seed)
    survivors = try_all(sample, given.workers)
    report(sample, survivors)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
