"""A server whose proxy asks a registry on loopback, its policy, and a CI job that it trusts."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from analytics.model.ecosystems import Ecosystem
from service.access.roles import Capability
from service.app.composition import Services
from service.orgs.api_keys import issue_api_key
from service.packages.clients import ProxyAddress
from service.store.organisations import get_org
from tests.clients.managers import FOLDER
from tests.conftest import BY_OPERATOR, binding_body, bindings_path
from tests.issuers.fixtures import IssuerProcess
from tests.processes.homes import Home, Server, all_entries
from tests.processes.package_registry import OLD, PackageRegistry
from tests.service.packages.policy.osv_files import osv_record, osv_zip

RULES: Final = {ecosystem: f"acme-stolen-{ecosystem}" for ecosystem in Ecosystem}
"""The rules that deny left-pad 1.2.0."""

REASON: Final = "stolen release, see SEC-42 in Jira"
LOOKALIKE: Final = "looks like left-pad, ask #security"

RUN_ID: Final = "9876543210"
"""The run of the job."""

POLICY: Final = {
    "first_party": [
        {"ecosystem": ecosystem, "package": "acme-internal", "registry": "packages.acme.example"}
        for ecosystem in Ecosystem
    ],
    "deny": [
        {
            "ecosystem": ecosystem,
            "package": "left-pad",
            "versions": "==1.2.0" if ecosystem is Ecosystem.PYPI else "1.2.0",
            "id": RULES[ecosystem],
            "reason": REASON,
        }
        for ecosystem in Ecosystem
    ]
    + [
        {
            "ecosystem": ecosystem,
            "package": "left-pda",
            "id": f"lookalike-{ecosystem}",
            "reason": LOOKALIKE,
        }
        for ecosystem in Ecosystem
    ],
    "trust": {"action": "refuse"},
    "cooldown": {"min_age_days": 7, "cure": True},
}


@dataclass(frozen=True)
class Key:
    id: str
    secret: str


@dataclass
class Stand:
    """A running proxy. A test issues a key of its own, so that its rows are told from others'."""

    home: Home
    server: Server
    issuer: IssuerProcess
    binding: str
    url: str = ""
    """Where clients find it: the server's own address, unless something is in front of it."""

    def __post_init__(self) -> None:
        self.url = self.url or self.server.url

    @property
    def address(self) -> ProxyAddress:
        return ProxyAddress(self.url, "acme")

    def key(self) -> Key:
        async def issue(services: Services) -> Key:
            async with services.store.write() as work:
                acme = await get_org(work.session, "acme")
                scopes = (Capability.PACKAGES_INSTALL,)
                key, secret = await issue_api_key(
                    work, acme, f"ci {secrets.token_hex(4)}", None, BY_OPERATOR, scopes=scopes
                )
                return Key(key.id, secret)

        return self.home.change(issue)

    def ci_token(self) -> str:
        return self.issuer.sign(jti=secrets.token_hex(8))

    def install_token(self, key: Key) -> str:
        """A token that is issued for the job."""
        headers = {"x-service-api-key": key.secret, "x-service-ci-oidc": self.ci_token()}
        with self.server.client(headers=headers) as job:
            issued = job.post("/api/v1/orgs/acme/install-tokens")
        assert issued.status_code == 201, issued.text
        return str(issued.json()["token"])

    def rows(self, key: Key) -> list[dict[str, Any]]:
        """The rows of what was installed, or refused, with `key`; oldest first."""
        with self.server.client() as operator:
            rows = all_entries(operator, actor=key.id)
        return [row for row in reversed(rows) if row["decision"] is not None]

    def installs(self, key: Key) -> list[tuple[str, str, str, str]]:
        """Decision, ecosystem, package and version of each of `rows`."""
        names = ("decision", "ecosystem", "packageName", "version")
        return [tuple(row[name] for name in names) for row in self.rows(key)]


def stock(packages: PackageRegistry) -> None:
    """Publish what the tests install, in both ecosystems alike."""
    recently = datetime.now(UTC) - timedelta(days=2)
    for add in (packages.add_wheel, packages.add_tarball):
        for version in ("1.0.0", "1.1.0", "1.2.0"):
            add("left-pad", version)
        add("fresh", "1.0.0")
        add("fresh", "1.1.0", recently)
        add("acme-internal", "9.9.9")
        for version in ("1.0.0", "1.1.0"):
            add("left-pda", version)
        add("attested", "1.0.0")
        add("attested", "1.1.0", OLD + timedelta(days=30))
        add("cured", "1.0.0")
        for version in ("1.1.0", "1.2.0"):
            add("cured", version, recently)
    packages.attested.add(("attested", "1.0.0"))
    packages.add_tarball("picky", "1.0.0", optionalDependencies={"left-pda": "^1.0.0"})
    packages.add_wheel("part", "3.1.0")
    packages.add_wheel("whole", "2.0.0", extras={"more": "part>=3"})
    packages.add_tarball("@tools/pad", "2.1.0", dependencies={"left-pad": "^1.0.0"})


def stock_pip(packages: PackageRegistry) -> None:
    """Publish pip itself, which pipx installs for its own use."""
    for file in (FOLDER / "wheels").glob("pip-*.whl"):
        version = file.name.split("-")[1]
        packages.wheels.setdefault("pip", {})[version] = (file.read_bytes(), OLD)


def build_stand(home: Home, packages: PackageRegistry, issuer: IssuerProcess) -> Stand:
    """A server on `home`, which has the organisation acme, in front of `packages`."""
    stock(packages)
    home.settings |= upstreams(packages)
    records = [
        osv_record(f"MAL-{number}", "cured", ecosystem, versions=["1.0.0"], ranges=[])
        for number, ecosystem in enumerate(("npm", "PyPI"), 1)
    ]
    (home.folder / "osv.zip").write_bytes(osv_zip(records).getvalue())
    home.ask("blocklist", "import", str(home.folder / "osv.zip"))
    return serve_stand(home, issuer, POLICY)


def upstreams(packages: PackageRegistry) -> dict[str, str]:
    """The settings with which a proxy asks `packages`."""
    return {
        "proxy_pypi_upstream": f"{packages.url}/simple/",
        "proxy_npm_upstream": f"{packages.url}/npm/",
    }


def serve_stand(home: Home, issuer: IssuerProcess, policy: dict[str, Any], url: str = "") -> Stand:
    """A server with the settings of `home`, for an organisation with this policy.

    `url` is where clients find it, if that is not its own address.
    """
    home.settings["issuers_file"] = str(issuer.file(home.folder))
    server = home.serve(**({"base_url": url} if url else {}))
    with server.client() as operator:
        bound = operator.post(bindings_path(), json=binding_body(issuer=issuer.url))
        path = "/api/v1/admin/orgs/acme/policy"
        put = operator.put(path, headers={"if-match": "*"}, json=policy)
    assert (bound.status_code, put.status_code) == (201, 200), put.text
    return Stand(home, server, issuer, bound.json()["id"], url)
