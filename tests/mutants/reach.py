"""Which tests reach a statement: a mutant of it is tried with these alone."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.mutants.copied import Reached
from tests.mutants.modules import MODULES
from tests.mutants.plugins import ELSEWHERE


class Chosen(NamedTuple):
    """Tests of one file, by their ids, and how long they take without a mutant."""

    file: str
    ids: list[str]
    seconds: float


@dataclass
class Reach:
    """What the tests of each file reached in a run of marked code."""

    _files: dict[str, Reached] = field(default_factory=dict)

    def add(self, file: str, reached: Reached) -> None:
        """Keep what the tests of `file` reached of the modules that name it."""
        of_file = {module for module, tests in MODULES.items() if file in tests}

        def kept(names: list[str]) -> list[str]:
            return [each for each in names if each.partition(" ")[0] in {*of_file, ELSEWHERE}]

        shared, tests = reached
        self._files[file] = (
            kept(shared),
            {test: (seconds, kept(names)) for test, (seconds, names) in tests.items()},
        )

    def __contains__(self, file: str) -> bool:
        """Whether it is known of `file`."""
        return file in self._files

    def tests_of(self, module: str, statement: str) -> list[Chosen]:
        """In the order of the table those that reach it; then those that start processes."""
        name = f"{module} {statement}"
        near = {file: self._reaching(file, {name}) for file in MODULES[module]}
        far = {file: self._reaching(file, {ELSEWHERE}) - near[file] for file in MODULES[module]}
        return [
            self._chosen(file, ids) for tests in (near, far) for file, ids in tests.items() if ids
        ]

    def _reaching(self, file: str, names: set[str]) -> set[str]:
        shared, tests = self._files[file]
        return {test for test, (_, own) in tests.items() if not names.isdisjoint((*shared, *own))}

    def _chosen(self, file: str, ids: set[str]) -> Chosen:
        """With the quickest first; tests of one file are quick to select."""
        seconds = {test: self._files[file][1][test][0] for test in ids}
        return Chosen(file, sorted(ids, key=seconds.__getitem__), sum(seconds.values()))
