"""`make mutants`: try a sample of the seeded mutants, and list those that no test notices.

Names and the seed decide which mutants are in the sample: it changes as little as the code does.
The tests that `modules.py` names for a module run once without mutants, which shows what statements
each of them reaches. A mutant is tried on a copy of the code with those that reach its statement.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple, TypeVar

from tests.mutants.copied import Copy, Reached
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.modules import MODULES, REPOSITORY
from tests.mutants.reach import Reach
from tests.mutants.seeded import Mutant, marked, mutants_of

SAMPLE: Final = 100
SEED: Final = 1
WORKERS_MAX: Final = 2
PASSED: Final = 0
NONE_COLLECTED: Final = 5
STOPPED: Final = -signal.SIGKILL
LIMIT_S: Final = 60
"""What a file's tests may take with a mutant, beside `LIMIT_TIMES` of what they take without."""

LIMIT_TIMES: Final = 5

_A = TypeVar("_A")
_B = TypeVar("_B")


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

    @property
    def is_equivalent(self) -> bool:
        """Whether it is known to make no difference."""
        return self.mutant.name in EQUIVALENT


class Copies:
    """Copies of the code, each of which runs one thing at a time."""

    def __init__(self, made: list[Copy]) -> None:
        self.made = made
        self._threads = ThreadPoolExecutor(len(made))
        self._free: SimpleQueue[Copy] = SimpleQueue()
        for copy in made:
            self._free.put(copy)

    def map(self, run: Callable[[Copy, _A], _B], each: Iterable[_A]) -> Iterator[_B]:
        """What `run` makes of each, in order."""

        def with_free_copy(one: _A) -> _B:
            copy = self._free.get()
            try:
                return run(copy, one)
            finally:
                self._free.put(copy)

        return self._threads.map(with_free_copy, each)


@contextmanager
def copies(number: int) -> Iterator[Copies]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        made = [Copy(Path(folder) / str(each)) for each in range(number)]
        try:
            yield Copies(made)
        finally:
            for copy in made:
                copy.close()


def mutants(modules: Iterable[str]) -> list[Trial]:
    return [
        Trial(module, mutant)
        for module in modules
        for mutant in mutants_of((REPOSITORY / module).read_text())
    ]


def sample_of(modules: Iterable[str], count: int | None, seed: int) -> list[Trial]:
    """A sample of the mutants of `modules`, or all, with those of a module together."""
    found = mutants(modules)
    drawn = sorted(found, key=lambda trial: sha256(f"{seed} {trial.mutant.name}".encode()).digest())
    chosen = set(drawn[:count])
    return [trial for trial in found if trial in chosen]


def record(made: Copies, reach: Reach, files: list[str], modules: Iterable[str]) -> None:
    """Add to `reach` what the tests of `files` reach in `modules`.

    Exits if one fails without any mutant.
    """
    code = {module: (REPOSITORY / module).read_text() for module in modules}
    for copy in made.made:
        for module in code:
            copy.write(module, marked(code[module], module))

    def recorded(copy: Copy, file: str) -> tuple[str, int, str, Reached]:
        return file, *copy.record(file)

    for file, ended, said, reached in made.map(recorded, files):
        if ended not in {PASSED, NONE_COLLECTED}:
            sys.exit(f"{said}\n{file} fails without any mutant")
        reach.add(file, reached)
    for copy in made.made:
        for module in code:
            copy.write(module, code[module])


def is_noticed(trial: Trial, copy: Copy, reach: Reach) -> bool:
    """Whether a test fails with the mutant, or does not end in time."""
    code = (REPOSITORY / trial.module).read_text()
    with copy.with_code(trial.module, trial.mutant.applied_to(code)):
        for file, ids, seconds in reach.tests_of(trial.module, trial.mutant.statement_name):
            limit_s = LIMIT_S + LIMIT_TIMES * seconds
            ended, _ = copy.run(file, only=ids, limit_s=limit_s)
            if ended == STOPPED:
                print(f"{file} does not end with {trial.name}", flush=True)
            if ended != PASSED:
                return True
    return False


def survivors_of(made: Copies, sample: list[Trial]) -> list[Trial]:
    """Those of the sample that no test notices; says how far it is."""
    reach, survivors, number = Reach(), list[Trial](), 0
    modules = {trial.module for trial in sample}
    for module, trials in groupby(sample, key=lambda trial: trial.module):
        of_module = list(trials)
        record(made, reach, [file for file in MODULES[module] if file not in reach], modules)
        noticed = made.map(lambda copy, trial: is_noticed(trial, copy, reach), of_module)
        for trial, is_killed in zip(of_module, noticed, strict=True):
            number += 1
            if not is_killed:
                survivors.append(trial)
                print(f"[{number}/{len(sample)}] survives: {trial.shown}", flush=True)
    return survivors


def report(sample: list[Trial], survivors: list[Trial]) -> None:
    """The figures of each module, and of all."""
    alive = Counter(trial.module for trial in survivors)
    for module, trials in groupby(sample, key=lambda trial: trial.module):
        tried = list(trials)
        print(f"{module}: {_figures(tried, alive[module])}")
    print(f"all: {_figures(sample, len(survivors))}")


def _figures(sample: list[Trial], survived: int) -> str:
    equivalent = sum(trial.is_equivalent for trial in sample)
    wrong = len(sample) - equivalent
    rate = f" ({(wrong - survived) / wrong:.1%})" if wrong else ""
    return (
        f"{wrong - survived} of {wrong} killed{rate}, {survived} survived, {equivalent} equivalent"
    )


def main() -> int:
    """0 if every mutant is noticed, else 1."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=SAMPLE, help="how many (0: all)")
    parser.add_argument("--seed", type=int, default=SEED, help="of the sample")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, WORKERS_MAX))
    parser.add_argument("--names", nargs="*", help="try these mutants alone")
    parser.add_argument("modules", nargs="*", help="modules to change (default: all)")
    given = parser.parse_args()
    unknown = set(given.modules) - MODULES.keys()
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in tests/mutants/modules.py")
    if given.names:
        sample = [trial for trial in mutants(MODULES) if trial.mutant.name in given.names]
    else:
        sample = sample_of(given.modules or MODULES, given.count or None, given.seed)
    with copies(given.workers) as made:
        tried = [trial for trial in sample if not trial.is_equivalent]
        survivors = survivors_of(made, tried)
    report(sample, survivors)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
