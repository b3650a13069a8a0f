"""Every command exists in the process of a user, which has imported nothing before."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import click
import pytest

from service.core.settings import REPOSITORY
from tests.budgets import budget
from tests.processes.command_tree import documented_words, every_command
from tests.processes.homes import CLI, DEADLINE_S

TREE = every_command()
COMMANDS = [words for words, command in TREE.items() if not isinstance(command, click.Group)]
RECOVERY = ("audit", "take-over")


def test_a_group_lists_the_commands_that_its_modules_add():
    """Both are made of the same decorators, one by reading the source, one by running it."""
    for words, group in TREE.items():
        if isinstance(group, click.Group):
            listed = group.list_commands(click.Context(group))
            assert listed == sorted(group.commands), words
            assert listed, words


def test_every_documented_command_exists():
    """What a page tells to type must not be answered with `No such command`."""
    documented = documented_words()
    assert len(documented) > 50
    for words in documented:
        path: tuple[str, ...] = ()
        for word in words:
            if path in TREE and not isinstance(TREE[path], click.Group):
                break  # its arguments follow
            path = (*path, word)
            assert path in TREE, words


@pytest.mark.slow
def test_every_command_starts_in_an_interpreter_of_its_own():
    """An import by another test must not be what makes a command known."""
    assert RECOVERY in COMMANDS
    step = len(COMMANDS) // budget(6, len(COMMANDS))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        codes = dict(threads.map(started, {RECOVERY, *COMMANDS[::step]}))

    assert {words for words, code in codes.items() if code != 0} == set()


def started(words: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """The exit code of `countersign WORDS --help` in a new interpreter, under its words."""
    done = subprocess.run(
        [sys.executable, "-m", CLI, *words, "--help"],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return words, done.returncode if b"Usage:" in done.stdout else -1
