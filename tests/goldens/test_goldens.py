"""Every endpoint, page and command has goldens, and all runs of one commit are equal."""

from pathlib import Path

import pytest

from tests.budgets import only_full
from tests.conftest import World
from tests.goldens.api import PATHS, is_api, parameters_of
from tests.goldens.command_cases import ARGUMENTS, LEFT_OUT, NEVER_DONE, paths_in, words_of
from tests.goldens.commands import cases_of, leaves
from tests.goldens.pages import STREAMS, file_name, is_page
from tests.goldens.world import ID_NAMES, MORE_IDS
from tests.interpreters import run_module


async def _rules(world: World) -> dict[str, bool]:
    """The paths of all endpoints but files, and whether each is one for programs."""
    document = await (await world.client.get("/openapi.json")).get_json()
    rules = [rule.rule for rule in world.app.url_map.iter_rules()]
    return {rule: is_api(rule, document) for rule in rules if is_page(rule, document)} | {
        rule: True for rule in rules if is_api(rule, document)
    }


async def test_each_endpoint_is_called_with_a_value_for_each_parameter(world: World) -> None:
    """A new parameter needs an id in `found`, or a value in PATHS."""
    rules = await _rules(world)

    named = {name for rule in rules for name in parameters_of(rule)}
    assert named == PATHS.keys() | set(ID_NAMES)
    assert STREAMS.keys() <= rules.keys()


def test_each_command_can_be_called() -> None:
    commands = leaves()
    names = dict.fromkeys((*ID_NAMES, *MORE_IDS, *paths_in(Path()), "server"), "x")

    assert ARGUMENTS.keys() | LEFT_OUT.keys() | NEVER_DONE.keys() <= commands.keys()
    for name, command in commands.items():
        for arguments in cases_of(name, command):
            assert words_of(arguments, names) is not None


def written(folder: Path, only: str) -> Path:
    """A new folder with the goldens that match `only`, by a process of their own."""
    done = run_module("tests.goldens", str(folder), "--only", only)
    assert done.returncode == 0, done.stderr.decode()
    return folder


def all_files(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


@only_full
@pytest.mark.slow
async def test_all_goldens_are_equal_and_complete(tmp_path: Path, world: World) -> None:
    one, other = (all_files(written(tmp_path / name, "")) for name in ("one", "other"))

    assert one == other
    for rule, is_for_programs in (await _rules(world)).items():
        ending = f"_{file_name(rule)}.txt" if is_for_programs else f"/{file_name(rule)}"
        assert rule in STREAMS or [name for name in one if ending in name], rule
    for name in leaves().keys() - LEFT_OUT.keys():
        files = [f"json/{name.replace(' ', '-')}{kind}.txt" for kind in ("", ".server")]
        text = b"".join(one.get(file, b"") for file in files)
        assert text, name
        assert (b"exit code 0" in text) != (name in NEVER_DONE), name
