"""What is shown to be pasted: as the documentation has it, and as shells and clients take it."""

import subprocess
from pathlib import Path

import pytest
import yaml

from analytics.model.ecosystems import Ecosystem
from service.ci.providers import CiProvider
from service.core.settings import REPOSITORY
from service.packages.clients import (
    PackageManager,
    ProxyAddress,
    client_snippet,
    exchange_snippet,
    job_snippet,
)
from service.packages.ecosystems import CLIENTS, all_variables
from service.packages.npm.clients import NPM_CLIENT

ADDRESS = ProxyAddress("https://audit.example.com", "acme")
LOOPBACK = ProxyAddress("http://127.0.0.1:8080", "acme")
TOKEN = "csi_" + "t" * 43


def test_the_page_has_every_snippet() -> None:
    """It is written from them; a change of one must reach the page."""
    page = (REPOSITORY / "docs" / "install-proxy.md").read_text()
    snippets = [
        *(job_snippet(NPM_CLIENT, provider, ADDRESS) for provider in CiProvider),
        *(exchange_snippet(provider, ADDRESS) for provider in CiProvider),
        *(client_snippet(client, ADDRESS) for client in CLIENTS.values()),
        *(client.project(ADDRESS) for client in CLIENTS.values() if client.project),
    ]

    for snippet in snippets:
        assert f"```{snippet.language}\n{snippet.text}```\n" in page


def test_the_quick_start_is_the_job_for_npm_on_github() -> None:
    page = (REPOSITORY / "README.md").read_text()

    assert f"```yaml\n{job_snippet(NPM_CLIENT, CiProvider.GITHUB, ADDRESS).text}```\n" in page


@pytest.mark.parametrize(
    ("client", "provider"),
    [
        (client, provider)
        for client in CLIENTS.values()
        for provider in (CiProvider.GITHUB, CiProvider.GITLAB, CiProvider.CIRCLECI)
    ],
)
def test_each_job_is_yaml_that_runs_the_client(
    client: PackageManager, provider: CiProvider
) -> None:
    snippet = job_snippet(client, provider, ADDRESS, "our-audience")
    job = yaml.safe_load(snippet.text)

    assert snippet.language == "yaml"
    assert f"--org acme -- {client.command}" in str(job)
    if provider is CiProvider.GITHUB:
        assert job["permissions"] == {"contents": "read", "id-token": "write"}
        (_, step) = job["jobs"]["build"]["steps"]
        assert step["env"] == {"COUNTERSIGN_API_KEY": "${{ secrets.COUNTERSIGN_API_KEY }}"}
    if provider is CiProvider.GITLAB:
        assert job["build"]["id_tokens"] == {"COUNTERSIGN_ID_TOKEN": {"aud": "our-audience"}}
    if provider is CiProvider.CIRCLECI:
        assert '{"aud": "our-audience"}' in job["jobs"]["build"]["steps"][1]["run"]


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_the_lines_for_a_client_set_what_the_command_line_sets(
    client: PackageManager, tmp_path: Path
) -> None:
    program = tmp_path / client.command.split()[0]
    file = '"$NPM_CONFIG_USERCONFIG"'
    program.write_text(f"#!/bin/sh\nenv\ntest -z {file} || cat {file}\n")
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-euc", client_snippet(client, ADDRESS).text],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TOKEN": TOKEN, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = set(done.stdout.splitlines())

    given = client.variables(ADDRESS, TOKEN)
    assert {f"{name}={value}" for name, value in given.items()} <= lines
    if client.npmrc is not None:
        assert set(client.npmrc(ADDRESS, TOKEN).splitlines()) <= lines


@pytest.mark.parametrize("provider", CiProvider)
def test_install_scripts_get_neither_the_key_nor_the_ci_token(provider: CiProvider) -> None:
    """What outlives the build, and what could be exchanged again; GitHub masks what remains."""
    text = exchange_snippet(provider, ADDRESS).text

    assert "unset COUNTERSIGN_API_KEY COUNTERSIGN_ID_TOKEN" in text
    assert ("::add-mask::$TOKEN" in text) == (provider is CiProvider.GITHUB)


def test_plain_http_is_allowed_to_yarn_on_this_machine_alone() -> None:
    """Elsewhere yarn should refuse it."""
    name = "YARN_UNSAFE_HTTP_WHITELIST"

    assert all_variables(LOOPBACK, TOKEN)[name] == "127.0.0.1"
    assert name not in all_variables(ADDRESS, TOKEN)
    assert name not in all_variables(ProxyAddress("http://audit.lan", "acme"), TOKEN)
    assert name in all_variables(ProxyAddress("http://[::1]:8080", "acme"), TOKEN)


def test_an_organisation_stands_in_a_path_as_it_is_written() -> None:
    assert (
        ProxyAddress("https://a.example", "a/b").registry(Ecosystem.NPM)
        == "https://a.example/proxy/a%2Fb/npm/"
    )
