"""The Makefile's commands are what they say: make itself cuts and expands text."""

import re
import subprocess

from service.core.settings import REPOSITORY


def commands(target: str) -> list[str]:
    """What `make target` would run, as if nothing were there yet."""
    done = subprocess.run(
        ["make", "--always-make", "--dry-run", target],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_all_that_is_installed_has_a_known_hash() -> None:
    """Only the project itself has none: it is built from the checkout, with tools that do."""
    installs = [line for line in commands("bench") if re.search("pip install", line)]

    assert len(installs) == 5
    (other,) = (line for line in installs if "--require-hashes" not in line)
    assert other.endswith(" --no-deps --no-build-isolation -e .")
    assert re.findall(r"-r requirements/(\S+)", installs[-1])[:2] == ["bench.txt", "chdb.txt"]


def test_uv_trusts_the_certificates_that_pip_and_the_service_trust() -> None:
    """Behind a proxy that signs for registries it would print an error before pip is tried."""
    installs = [line for line in commands("bench") if "/uv pip install" in line]

    assert installs
    assert all("--system-certs" in line for line in installs)
