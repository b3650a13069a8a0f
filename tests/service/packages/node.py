"""The semver of the real npm client, asked about many cases in one process of node."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = """
const semver = require(process.argv[1])
const options = { includePrerelease: true }
const answers = {
  parse: (text) => {
    const version = semver.parse(text, { loose: true })
    return version && [version.major, version.minor, version.patch, version.prerelease]
  },
  compare: (one, other) => semver.compare(one, other, true),
  isRange: (range) => semver.validRange(range, options) !== null,
  satisfies: (range, version) =>
    semver.validRange(range, options) === null ? null : semver.satisfies(version, range, options),
}
const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'))
process.stdout.write(JSON.stringify(cases.map(([what, ...values]) => answers[what](...values))))
"""


def ask_npm(cases: Sequence[tuple[str, ...]]) -> list[Any]:
    """What npm's semver answers to each of `cases`: a function's name and its arguments."""
    done = subprocess.run(
        ["node", "-e", _PROGRAM, str(_semver())],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[Any] = json.loads(done.stdout)
    return answers


@cache
def _semver() -> Path:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed: nothing to compare with")
    root = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=True)
    module = Path(root.stdout.strip()) / "npm" / "node_modules" / "semver"
    if not module.is_dir():
        pytest.skip(f"npm's own semver is not in {module}: nothing to compare with")
    return module
