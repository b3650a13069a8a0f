"""Shell completion: commands, options and values, without what makes commands slow to start."""

import subprocess
import sys

import pytest

from tests.processes.homes import Home

CODE = """
import sys
from service.cli.main import main
try:
    main(prog_name="countersign")
finally:
    heavy = {"quart", "duckdb"} & set(sys.modules)
    if heavy:
        sys.stdout.write(f"imported {heavy}")
"""


def complete(*words: str) -> list[str]:
    """What bash is offered after `words`, of which the last one is not finished."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "_COUNTERSIGN_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["countersign", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert "imported" not in done.stdout
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("au",), ["audit", "auth"]),
        (("audit", "s"), ["seal", "show", "stats"]),
        (("audit", "query", "--ver"), ["--version", "--verdict-source"]),
        (("audit", "export", "--format", "p"), ["parquet"]),
        (("audit", "import", "--pa"), ["--partial"]),
        (("bindings", "re"), ["rejected", "revoke"]),
        (("member", "add", "--r"), ["--role"]),
        (("member", "add", "--role", "o"), ["owner"]),
        (("serve", "--p"), ["--port"]),
        (("login", "--with"), ["--with-token"]),
        (("backup", "--l"), ["--link"]),
        (("demo", "--no"), ["--no-serve"]),
    ],
)
@pytest.mark.slow
def test_names_are_completed_without_the_web_framework_and_the_engine(words, offered):
    """A person presses the key and waits."""
    assert set(offered) <= set(complete(*words))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(tmp_path, shell):
    """What docs/command-line.md tells to evaluate."""
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
