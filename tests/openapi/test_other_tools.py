"""Tools of other authors read the document: two more validators, a linter, and TypeScript."""

import shutil
from pathlib import Path

import pytest

from service.core.settings import REPOSITORY
from tests.conftest import World
from tests.openapi.examples import TOOLS, block_of_docs, run
from tests.processes.homes import Home

pytestmark = [
    pytest.mark.slow,
    pytest.mark.full,
    pytest.mark.skipif(
        not (TOOLS / "installed").exists(), reason=f"run `sh tests/openapi/install.sh {TOOLS}`"
    ),
]

SCRIPTS = REPOSITORY / "tests" / "openapi"
PARSER = TOOLS / "node_modules" / "@apidevtools" / "swagger-parser" / "lib" / "index.js"


@pytest.fixture
async def document(world: World, tmp_path: Path) -> Path:
    answer = await world.client.get("/openapi.json")
    (file := tmp_path / "openapi.json").write_bytes(await answer.get_data())
    return file


@pytest.mark.parametrize(
    ("command", "accepts"),
    [
        (["validate-api"], '"valid": true'),
        (["node", SCRIPTS / "validate.mjs", PARSER], ""),
        # Health needs no credential, so it refuses nothing.
        (["redocly", "lint", "--skip-rule=operation-4xx-response"], "description is valid"),
    ],
    ids=["seriousme", "swagger-parser", "redocly"],
)
def test_other_validators_accept_the_document(
    command: list[str | Path], accepts: str, document: Path
) -> None:
    ran = run(*command, document, folder=document.parent)

    told = ran.stdout + ran.stderr
    assert ran.returncode == 0, told
    assert accepts in told
    assert "warning" not in told.replace("Deprecation warning", "").lower(), told


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder in which npx finds what is installed here."""
    (folder := tmp_path / "desk").mkdir()
    (folder / "node_modules").symlink_to(TOOLS / "node_modules")
    return folder


def test_the_types_of_typescript_fit_a_program(home: Home, desk: Path) -> None:
    made = run("sh", "-euc", block_of_docs("sh", "npx"), folder=desk, url=home.serve().url)
    assert made.returncode == 0, made.stdout + made.stderr

    shutil.copy(SCRIPTS / "reader.ts", desk)
    checked = run(
        *("tsc", "--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom"),
        *("--module", "esnext", "--moduleResolution", "bundler"),
        *("reader.ts", "countersign.d.ts"),
        folder=desk,
    )

    assert checked.returncode == 0, checked.stdout
