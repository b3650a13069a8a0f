"""The version that is reported is the one that runs, or says that it is not."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from service.core.settings import REPOSITORY
from service.core.version import FALLBACK, UNKNOWN, service_version, version_of
from tests.conftest import SCRAPER
from tests.processes.command_line import invoke

COMMIT = "91408d5c8c0ffcc34bacea6fc23c3c65cb59795d"
OTHER = "0a1b2c3d4c0ffcc34bacea6fc23c3c65cb59795d"
INSTALLED = "0.1.dev912+g91408d5c8"


def files(tree: Path, **contents: str) -> Path:
    """`tree`, with these files in `.git`: `a__b` is `a/b`."""
    for name, text in contents.items():
        path = tree / ".git" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tree


def checkout(tree: Path, commit: str) -> Path:
    """A checkout of a branch."""
    return files(tree, HEAD="ref: refs/heads/main\n", refs__heads__main=f"{commit}\n")


def test_a_checkout_of_the_installed_commit_has_the_installed_version(tmp_path: Path) -> None:
    tree = checkout(tmp_path, COMMIT)

    for installed in (INSTALLED, "1.2.0+g91408d5c8", f"{INSTALLED}.dirty"):
        assert version_of(installed, tree) == installed


def test_a_checkout_of_another_commit_says_so(tmp_path: Path) -> None:
    """An editable installation runs what is checked out, with the version of its installation."""
    tree = checkout(tmp_path, OTHER)

    assert version_of(INSTALLED, tree) == f"{INSTALLED}.checkout.g0a1b2c3d4"
    assert version_of("1.2.0", tree) == "1.2.0+checkout.g0a1b2c3d4"
    assert version_of(UNKNOWN, tree) == f"{UNKNOWN}.checkout.g0a1b2c3d4"


def test_the_commit_is_found_wherever_git_keeps_it(tmp_path: Path) -> None:
    detached = files(tmp_path / "detached", HEAD=f"{COMMIT}\n")
    packed = files(
        tmp_path / "packed",
        HEAD="ref: refs/heads/main\n",
        **{"packed-refs": f"# peeled\n{OTHER} refs/tags/1\n{COMMIT} refs/heads/main\n"},
    )
    files(tmp_path / "main", refs__heads__side=COMMIT)
    own = tmp_path / "main" / ".git" / "worktrees" / "side"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    (own / "commondir").write_text("../..\n")
    worktree = tmp_path / "side"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {own}\n")

    for tree in (detached, packed, worktree):
        assert version_of(INSTALLED, tree) == INSTALLED
        assert version_of("1.0+g000000000", tree) == "1.0+g000000000.checkout.g91408d5c8"


def test_a_checkout_that_cannot_be_read_is_not_taken_for_the_installed_one(tmp_path: Path) -> None:
    for number, head in enumerate(("ref: refs/heads/main\n", "ref: refs/heads/.invalid\n")):
        tree = files(tmp_path / str(number), HEAD=head)
        assert version_of(INSTALLED, tree) == f"{INSTALLED}.checkout.unknown"


def test_a_tree_without_git_has_the_version_that_it_was_given(tmp_path: Path) -> None:
    assert version_of("0+g91408d5c8", tmp_path) == "0+g91408d5c8"


def test_the_command_shows_the_version() -> None:
    assert invoke(["--version"], {}).out == f"countersign, version {service_version()}\n"


async def test_the_service_shows_the_version(world) -> None:
    health = await world.client.get("/healthz")
    document = await world.client.get("/openapi.json")
    metrics = await (await world.client.get("/metrics", headers=SCRAPER)).get_data(as_text=True)

    assert await health.get_json() == {"status": "ok", "version": service_version()}
    assert (await document.get_json())["info"]["version"] == service_version()
    assert f'countersign_build_info{{version="{service_version()}"}} 1.0' in metrics.splitlines()


# What setuptools does for any installer, with the tree in the working directory.
BUILD = """
import sys
from pathlib import Path
from setuptools import build_meta
folder = sys.argv[1]
name = build_meta.prepare_metadata_for_build_wheel(folder)
for line in Path(folder, name, "METADATA").read_text().splitlines():
    if line.startswith("Version: "):
        print("VERSION", line.removeprefix("Version: "))
"""
PACK = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def python(tree: Path, code: str, *arguments: str, **variables: str) -> str:
    """What `code` prints last, run in `tree`."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        cwd=tree,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


def built(tree: Path, **variables: str) -> str:
    """The version that an installation of `tree` gets."""
    with tempfile.TemporaryDirectory() as folder:
        return python(tree, BUILD, folder, **variables).removeprefix("VERSION ")


def git(tree: Path, *arguments: str) -> str:
    options = ["user.name=a", "user.email=a@example.com", "commit.gpgsign=false"]
    command = ["git", *(part for option in options for part in ("-c", option)), *arguments]
    return subprocess.run(
        command, cwd=tree, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What setuptools reads, with one module; no git yet."""
    place = tmp_path / "tree"
    (place / "service").mkdir(parents=True)
    (place / "service" / "__init__.py").touch()
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        (place / name).write_text((REPOSITORY / name).read_text())
    return place


def committed(tree: Path) -> str:
    """The first nine digits of the commit of all files in `tree`."""
    if not (tree / ".git").exists():
        git(tree, "init", "--initial-branch", "main")
        (tree / ".gitignore").write_text("*.egg-info/\n")
    git(tree, "add", "--all")
    git(tree, "commit", "--message", "state", "--allow-empty")
    return git(tree, "rev-parse", "HEAD")[:9]


@pytest.mark.slow
def test_an_installation_is_named_for_its_tag_and_its_commit(tree: Path) -> None:
    first = committed(tree)
    assert built(tree) == f"0.1.dev1+g{first}"
    git(tree, "tag", "v1.2.0")
    assert built(tree) == f"1.2.0+g{first}"
    second = committed(tree)
    assert built(tree) == f"1.2.1.dev1+g{second}"
    (tree / "README.md").write_text("changed")
    assert built(tree) == f"1.2.1.dev1+g{second}.dirty"


@pytest.mark.slow
def test_a_source_archive_has_the_version_of_its_commit(tree: Path, tmp_path: Path) -> None:
    commit = committed(tree)
    name = python(tree, PACK, str(tmp_path))
    subprocess.run(["tar", "xzf", name], cwd=tmp_path, check=True)

    assert built(tmp_path / name.removesuffix(".tar.gz")) == f"0.1.dev1+g{commit}"


@pytest.mark.slow
def test_a_tree_without_git_has_the_version_of_the_build_argument(tree: Path) -> None:
    image = (REPOSITORY / "docs" / "deployment" / "Containerfile").read_text()
    variable = "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_COUNTERSIGN_SERVICE"

    assert f'{variable}="$VERSION" ' in image
    assert built(tree, **{variable: "0+g91408d5c8"}) == "0+g91408d5c8"
    assert built(tree, **{variable: ""}) == FALLBACK
