"""Runs tests over and over, each time in a process of its own that has the libraries loaded.

`python tests/mutants/runner.py FOLDER` reads lines of JSON, each a list of tests in FOLDER, and
answers each with `[exit code, output]`. To load the libraries takes longer than most of the tests;
what is under test is reloaded each time, so that every change to it counts.
"""

import json
import os
import sys
import tempfile

import alembic.command
import cryptography.x509
import duckdb
import httpx2
import hypothesis
import joserfc.jwk
import polars
import prometheus_client
import pyarrow.parquet
import pytest
import rich.table
import sqlalchemy.ext.asyncio
import structlog
import uvloop

LOADED = (
    alembic,
    cryptography,
    duckdb,
    httpx2,
    hypothesis,
    joserfc,
    polars,
    prometheus_client,
    pyarrow,
    rich,
    sqlalchemy,
    structlog,
    uvloop,
)

# Without schemathesis, whose plugin takes longer to load than most of the tests take to run.
OPTIONS = (
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-p",
    "pytest_asyncio.plugin",
    "-p",
    "pytest_timeout",
)


def run(folder: str, tests: list[str]) -> tuple[int, str]:
    """Run `tests` in a child of this process; how pytest ended, and what it said."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            os._exit(pytest.main([*OPTIONS, *tests]))
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


def main(folder: str) -> None:
    """Obey until the orders end."""
    os.chdir(folder)
    os.environ |= {"PYTHONPATH": folder, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""}
    sys.path[0] = folder  # in place of this file's own folder
    for line in sys.stdin:
        print(json.dumps(run(folder, json.loads(line))), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1])
