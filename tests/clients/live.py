"""Real installs from the registries that this machine has configured: `make proxy-live`.

Its name keeps it out of all other runs. What the machine has is read when the test runs: no file
names a host. A registry's files may be at further origins, which its own documents name.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest

from analytics.model.ecosystems import Ecosystem
from tests.clients.managers import NPM, Manager, Project, documented
from tests.clients.stands import Stand, serve_stand
from tests.issuers.fixtures import IssuerProcess
from tests.processes.homes import Home, add_acme

ALLOWED: Final = {Ecosystem.PYPI: ("six", "1.16.0"), Ecosystem.NPM: ("is-number", "7.0.0")}
"""Small packages without dependencies, in a version that stays."""

DENIED: Final = {Ecosystem.PYPI: ("idna", "3.6"), Ecosystem.NPM: ("is-odd", "3.0.1")}
RULE: Final = "denied-for-this-run"

_PIP_DEFAULT: Final = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


@pytest.fixture(scope="session")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A server between the clients and the machine's registries, which denies two releases."""
    home, issuer = Home(tmp_path_factory.mktemp("live")), IssuerProcess()
    home.inherits |= {name for name in os.environ if name.startswith("SSL_CERT_")}
    home.settings |= {
        **registry("pypi", index_url(), "six/"),
        **(registry("npm", npm_registry(), "is-number") if NPM else {}),
    }
    deny = [
        {"ecosystem": ecosystem, "package": name, "versions": version, "id": f"{RULE}-{ecosystem}"}
        for ecosystem, (name, number) in DENIED.items()
        for version in [f"=={number}" if ecosystem is Ecosystem.PYPI else number]
    ]
    try:
        home.change(add_acme)
        yield serve_stand(home, issuer, {"deny": deny})
    finally:
        home.end()
        issuer.stop()


def index_url() -> str:
    """What pip would ask."""
    pip = [sys.executable, "-m", "pip"]
    configured = os.environ.get("PIP_INDEX_URL") or answer(
        *pip, "config", "get", "global.index-url"
    )
    return configured or answer(sys.executable, "-c", _PIP_DEFAULT)


def npm_registry() -> str:
    """What npm would ask."""
    return answer(str(NPM), "config", "get", "registry")


def answer(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def registry(ecosystem: str, url: str, document: str) -> dict[str, str]:
    """The settings of a registry: its URL, and where it has the files of one document."""
    accept = {"accept": "application/vnd.pypi.simple.v1+json, application/json;q=0.9"}
    page = httpx2.get(f"{url.rstrip('/')}/{document}", headers=accept, follow_redirects=True)
    assert page.status_code == 200, f"the machine's registry answers {page.status_code}"
    origins = {origin(found, str(page.url)) for found in file_urls(page.json())}
    return {
        f"proxy_{ecosystem}_upstream": url,
        f"proxy_{ecosystem}_file_origins": ",".join(sorted(origins)),
    }


def file_urls(document: dict[str, Any]) -> list[str]:
    if "files" in document:
        return [file["url"] for file in document["files"]]
    return [version["dist"]["tarball"] for version in document["versions"].values()]


def origin(url: str, page: str) -> str:
    parts = urlsplit(str(httpx2.URL(page).join(url)))
    return f"{parts.scheme}://{parts.netloc}"


def test_an_allowed_release_is_installed(stand: Stand, project: Project, manager: Manager) -> None:
    key = stand.key()
    project.use(documented(manager.client, stand.address, stand.install_token(key)))
    name, version = ALLOWED[manager.ecosystem]
    done = manager.add(project, manager.pinned(name, version))

    assert done.code == 0, json.dumps(done.log)
    assert stand.installs(key) == [("ALLOWED", manager.ecosystem, name, version)]


def test_a_denied_release_is_not(stand: Stand, project: Project, manager: Manager) -> None:
    key = stand.key()
    project.use(documented(manager.client, stand.address, stand.install_token(key)))
    name, version = DENIED[manager.ecosystem]
    done = manager.add(project, manager.pinned(name, version))
    blocked = [row for row in stand.rows(key) if row["decision"] == "BLOCKED"]

    assert done.code != 0
    assert [(row["packageName"], row["version"]) for row in blocked] == [(name, version)]
    assert json.loads(blocked[0]["decision_reason"])["rule_id"] == f"{RULE}-{manager.ecosystem}"
