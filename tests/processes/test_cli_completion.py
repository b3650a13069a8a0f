"""Shell completion: commands, options and values, without what makes commands slow to start."""

import json
import subprocess
import sys

import pytest

from tests.budgets import only_full
from tests.processes.homes import Home

CODE = """
import sys
from service.cli.root import root as main
try:
    main(prog_name="countersign")
finally:
    heavy = {"quart", "duckdb"} & set(sys.modules)
    if heavy:
        sys.stdout.write(f"imported {heavy}")
"""

COMPLETE_ALL = """
import contextlib, io, json, os, sys
from service.cli.root import root as main
offered = []
for words in json.load(sys.stdin):
    os.environ["COMP_WORDS"] = " ".join(["countersign", *words])
    os.environ["COMP_CWORD"] = str(len(words))
    said = io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main(prog_name="countersign")
    said.flush()
    offered.append(said.buffer.getvalue().decode())
heavy = sorted({"quart", "duckdb"} & set(sys.modules))
json.dump({"offered": offered, "heavy": heavy}, sys.stdout)
"""
"""A shell asks in a process for each word; here one process answers for all."""

OFFERED = [
    (("au",), ["audit", "auth"]),
    (("audit", "s"), ["seal", "show", "stats"]),
    (("audit", "query", "--ver"), ["--version", "--verdict-source"]),
    (("audit", "export", "--format", "p"), ["parquet"]),
    (("audit", "import", "--pa"), ["--partial"]),
    (("audit", "query", "--decision", "B"), ["BLOCKED"]),
    (("audit", "list", "--event", "!install_a"), ["!install_allowed"]),
    (("bindings", "re"), ["rejected", "revoke"]),
    (("member", "add", "--r"), ["--role"]),
    (("member", "add", "--role", "o"), ["owner"]),
    (("serve", "--p"), ["--port"]),
    (("login", "--with"), ["--with-token"]),
    (("backup", "--l"), ["--link"]),
    (("demo", "--no"), ["--no-serve"]),
]


@only_full
@pytest.mark.slow
def test_names_are_completed_without_the_web_framework_and_the_engine() -> None:
    """A person waits for them."""
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE_ALL],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "_COUNTERSIGN_COMPLETE": "bash_complete",
        },
        input=json.dumps([words for words, _ in OFFERED]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert answer["heavy"] == []
    for (words, names), said in zip(OFFERED, answer["offered"], strict=True):
        assert {line.partition(",")[2] for line in said.splitlines()} >= set(names), words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(tmp_path, shell):
    home = Home(tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=home.environment()
        | {"PYTHONPATH": ":".join(sys.path), "_COUNTERSIGN_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0
    assert f"_COUNTERSIGN_COMPLETE={shell}_complete" in done.stdout
