"""The page about installing: its lines get an install token, on each provider's machine."""

import os
import subprocess
from pathlib import Path

import pytest

from service.ci.providers import CiProvider
from service.packages.clients import ProxyAddress, exchange_snippet
from tests.conftest import binding_body, bindings_path
from tests.docs.programs import add_jq, add_program
from tests.docs.test_ci import REQUEST_TOKEN, token_endpoint
from tests.issuers.fixtures import IssuerProcess, issuer_process
from tests.polling import HANG_S
from tests.processes.homes import Home, Server

__all__ = ["issuer_process"]  # a fixture

pytestmark = pytest.mark.slow


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs that providers' machines have."""
    (folder := tmp_path / "bin").mkdir()
    add_jq(folder)
    return folder


@pytest.fixture
def job(home: Home, issuer_process: IssuerProcess) -> tuple[Server, str]:
    """A server that trusts the issuer's job, and an API key that installs."""
    home.settings["issuers_file"] = str(issuer_process.file(home.folder))
    words = ("apikey", "issue", "--org", "acme", "--name", "ci", "--scope", "packages:install")
    key = str(home.run(*words, "--json").json["secret"])
    server = home.serve()
    with server.client() as client:
        body = binding_body(issuer=issuer_process.url)
        assert client.post(bindings_path(), json=body).status_code == 201
    return server, key


def run(
    provider: CiProvider, server: Server, programs: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The lines of the page on a provider's machine, then what they leave in the environment."""
    lines = exchange_snippet(provider, ProxyAddress(server.url, "acme")).text
    return subprocess.run(
        ["bash", "-e", "-c", f"{lines}\necho result $TOKEN $COUNTERSIGN_API_KEY"],
        env={"PATH": f"{programs}:{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_the_lines_of_each_provider_get_an_install_token(
    job: tuple[Server, str], issuer_process: IssuerProcess, programs: Path
) -> None:
    server, key = job
    asked = """test "$*" = 'run oidc get --claims {"aud": "countersign"}'"""
    add_program(programs, "circleci", f"set -e\n{asked}\necho {issuer_process.sign(jti='c')}")
    variables = {"COUNTERSIGN_API_KEY": key}
    with token_endpoint(issuer_process.sign(jti="g")) as url:
        github = variables | {
            "ACTIONS_ID_TOKEN_REQUEST_URL": url,
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
        }
        ran = {CiProvider.GITHUB: run(CiProvider.GITHUB, server, programs, **github)}
    given = variables | {"COUNTERSIGN_ID_TOKEN": issuer_process.sign(jti="l")}
    ran[CiProvider.CIRCLECI] = run(CiProvider.CIRCLECI, server, programs, **variables)
    ran[CiProvider.GITLAB] = run(CiProvider.GITLAB, server, programs, **given)
    ran[CiProvider.OTHER] = run(CiProvider.OTHER, server, programs, **given)

    for provider in CiProvider:
        *before, result = ran[provider].stdout.splitlines()
        _, *words = result.split()
        assert [word[:4] for word in words] == ["csi_"], ran[provider].stderr
        if provider is CiProvider.GITHUB:
            assert before[1:] == [f"::add-mask::{words[0]}"]


def test_a_refused_job_ends_with_the_reason(
    job: tuple[Server, str], issuer_process: IssuerProcess, programs: Path
) -> None:
    """GitHub's shell ignores a failure at the start of a pipe."""
    server, key = job
    other = issuer_process.sign(sub="repo:acme/other:ref:refs/heads/main")
    variables = {"COUNTERSIGN_API_KEY": key, "COUNTERSIGN_ID_TOKEN": other}
    ran = run(CiProvider.OTHER, server, programs, **variables)

    assert ran.returncode != 0
    assert "result" not in ran.stdout
    assert "unbound_oidc_subject: no binding trusts this job" in ran.stderr
