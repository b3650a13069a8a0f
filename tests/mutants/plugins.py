"""What pytest is given where mutants are tried: which tests to run, or what to record of them."""

import builtins
import json
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

ELSEWHERE: Final = "elsewhere"
"""Reached by a test that starts a process, whose statements are not seen."""


class Chosen:
    """Runs the tests `only`, given by their ids, in this order."""

    def __init__(self, only: list[str]) -> None:
        self._rank = {test: rank for rank, test in enumerate(only)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._rank]
        items[:] = sorted(chosen, key=lambda item: self._rank[item.nodeid])


class Recorder:
    """Writes to a file what the tests of a file reach: by each test, and by what all share."""

    def __init__(self, written: Path) -> None:
        self._written = written
        self._shared: set[str] = set()
        self._now = self._shared
        self._tests: dict[str, tuple[float, set[str]]] = {}
        builtins.reached = self._reach  # type: ignore[attr-defined]
        os.register_at_fork(before=lambda: self._reach(ELSEWHERE))
        sys.addaudithook(self._tell_of_process)

    def _reach(self, name: str) -> None:
        self._now.add(name)

    def _tell_of_process(self, event: str, _: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self._reach(ELSEWHERE)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """A test, with the fixtures of its own."""
        self._now, start = set(), time.perf_counter()
        self._tests[item.nodeid] = 0, self._now
        outcome = yield
        self._tests[item.nodeid] = time.perf_counter() - start, self._now
        self._now = self._shared
        return outcome

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """A fixture of several tests counts for all."""
        before = self._now
        if fixturedef.scope != "function":
            self._now = self._shared
        try:
            return (yield)
        finally:
            self._now = before

    def pytest_sessionfinish(self) -> None:
        """Write down what was reached."""
        tests = {test: [seconds, sorted(names)] for test, (seconds, names) in self._tests.items()}
        self._written.write_text(json.dumps([sorted(self._shared), tests]))
