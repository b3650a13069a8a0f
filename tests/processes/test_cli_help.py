"""What `--help` says, of every command and every option."""

import subprocess
import sys
from collections.abc import Iterator
from typing import get_args

import click
import pytest
from click.testing import CliRunner

from analytics.model.filters import FILTER_COLUMNS, PREFIX_PARAMETERS
from service.audit.streams.sinks import SinkKind
from service.cli.audit import audit
from service.cli.root import root as main


def _commands(command: click.Command, *words: str) -> Iterator[tuple[list[str], click.Command]]:
    yield list(words), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, *words, name)


COMMANDS = list(_commands(main))


def help_of(words: list[str], flag: str = "--help") -> str:
    """What a person reads, without a data dir to work on."""
    said = CliRunner().invoke(main, [*words, flag], env={"COUNTERSIGN_DATA_DIR": "/nowhere"})
    assert said.exit_code == 0
    return said.output


def test_every_command_and_group_has_help():
    assert len(COMMANDS) > 40
    for words, _ in COMMANDS:
        _, _, text = help_of(words).partition("\n\n")

        assert text.strip().split("\n")[0].strip(), f"the first line says what {words} does"
        assert help_of(words, "-h") == help_of(words)


def test_the_lists_of_commands_show_each_command_s_own_summary():
    for words, group in COMMANDS:
        if isinstance(group, click.Group):
            context = click.Context(group)
            listed = " ".join(help_of(words).partition("\nCommands:\n")[2].split())
            for name in group.list_commands(context):
                command = group.get_command(context, name)
                assert f"{name} {command.get_short_help_str(100)}" in listed, words


def test_every_kind_of_stream_is_named():
    words = help_of(["stream", "create"]).replace(",", " ").replace(".", " ").split()
    assert set(get_args(SinkKind)) <= set(words)


def test_help_imports_neither_the_web_framework_nor_the_query_engine():
    """`countersign --help` answers at once."""
    code = (
        "import sys; from service.cli.main import main; main(['--help'], standalone_mode=False);"
        " sys.exit(bool({'quart', 'duckdb', 'pyarrow', 'sqlalchemy'} & set(sys.modules)))"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert ran.returncode == 0, ran.stderr.decode()


def test_no_summary_is_cut_in_a_list_of_commands():
    """Half a sentence does not tell two commands apart."""
    for words, command in COMMANDS:
        if isinstance(command, click.Group):
            _, _, listed = help_of(words).partition("\nCommands:\n")
            assert listed, words
            assert "..." not in listed, words


def test_every_option_says_what_it_alone_does():
    """An option without a text, or with its neighbour's, has to be tried out."""
    for words, command in COMMANDS:
        options = [option for option in command.params if isinstance(option, click.Option)]
        texts = [option.help for option in options]

        assert all(texts), (words, [option.name for option in options if not option.help])
        assert len(set(texts)) == len(texts), words


@pytest.mark.parametrize("name", FILTER_COLUMNS)
def test_every_filter_has_an_example_and_says_whether_a_star_works(name):
    """A star where it means nothing finds nothing, and looks like an empty log."""
    (option,) = [found for found in audit.commands["query"].params if found.name == name]

    assert "Example: " in option.help
    assert ("trailing *" in option.help) == (name in PREFIX_PARAMETERS)
