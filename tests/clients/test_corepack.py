"""corepack gets pnpm and yarn themselves, through the proxy as any other package."""

import base64
import json
import sys

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from service.core.settings import REPOSITORY
from tests.budgets import only_full
from tests.clients.managers import NPM, Carrier, Project, corepack, is_installed
from tests.clients.stands import RUN_ID, Stand
from tests.processes.package_registry import PackageRegistry

pytestmark = [
    pytest.mark.slow,
    only_full,
    pytest.mark.skipif(NPM is None, reason="no npm on this machine"),
]

GOTTEN = [
    ("pnpm@10.1.0", "pnpm", "10.1.0", "bin/pnpm.cjs"),
    ("yarn@1.22.9", "yarn", "1.22.9", "bin/yarn.js"),
    ("yarn@4.1.0", "@yarnpkg/cli-dist", "4.1.0", "bin/yarn.js"),
]


def keys_of(packages: PackageRegistry) -> str:
    """Have the registry sign its releases as npm's does: its key, as corepack is told of it."""
    key = ec.generate_private_key(ec.SECP256R1())

    def sign(text: str) -> dict[str, str]:
        signed = key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
        return {"keyid": "SHA256:tests", "sig": base64.b64encode(signed).decode()}

    packages.sign = sign
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return json.dumps(
        {"npm": [{"keyid": "SHA256:tests", "key": base64.b64encode(public).decode()}]}
    )


@pytest.mark.parametrize(("wanted", "package", "version", "program"), GOTTEN)
def test_corepack_under_ci_exec(
    stand: Stand,
    packages: PackageRegistry,
    project: Project,
    wanted: str,
    package: str,
    version: str,
    program: str,
) -> None:
    """It verifies the registry's signature, and the row has the job."""
    if not is_installed():
        pytest.fail("run sh tests/clients/install.sh first")
    packages.add_tarball(package, version, program=program, bin={"x": program})
    key = stand.key()
    job = {
        "COUNTERSIGN_SERVER": stand.server.url,
        "COUNTERSIGN_ORG": "acme",
        "COUNTERSIGN_API_KEY": key.secret,
        "COUNTERSIGN_ID_TOKEN": stand.ci_token(),
        "PYTHONPATH": str(REPOSITORY),
        "COREPACK_INTEGRITY_KEYS": keys_of(packages),
        "COREPACK_HOME": str(project.folder / "corepack"),
    }
    project.use(Carrier(job))
    command = ("env", "-u", "PYTHONPATH", *corepack(wanted, "--version"))
    done = project.run(sys.executable, "-m", "service.cli.main", "ci", "exec", "--", *command)
    rows = stand.rows(key)

    assert done.code == 0, done.log
    assert f"{package} {version}" in done.log
    assert [(row["decision"], row["packageName"], row["version"]) for row in rows] == [
        ("ALLOWED", package, version)
    ]
    assert (rows[0]["oidc_binding_id"], rows[0]["run_id"]) == (stand.binding, RUN_ID)
