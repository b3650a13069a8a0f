"""Every client's every way to send a credential, and the job that its install is attributed to."""

import base64
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from analytics.model.ecosystems import Ecosystem
from service.core.settings import REPOSITORY
from service.packages.clients import USER, PackageManager, ProxyAddress
from service.packages.npm.clients import NPM_CLIENT, PNPM, YARN, YARN_1, registry_url
from service.packages.pypi.clients import PIP, POETRY, UV, index_url
from tests.budgets import only_full
from tests.clients.managers import Carrier, Manager, Project
from tests.clients.stands import RUN_ID, Key, Stand

pytestmark = [pytest.mark.slow, only_full]


@dataclass(frozen=True)
class Login:
    """A user and a password; the row names the job if `is_attributed`."""

    user: str
    password: str
    is_attributed: bool


SAYS_REFUSED = {
    PIP: "No matching distribution found",
    UV: "No solution found",
    POETRY: "Authorization error",
    NPM_CLIENT: "E401",
    PNPM: "(401 )",
    YARN_1: "missing or invalid credentials",
    YARN: "Invalid authentication",
}
"""What the log has; pip and uv look for versions and find none."""

LOGINS: dict[str, Callable[[Stand, Key], Login]] = {
    "key as password": lambda _, key: Login(USER, key.secret, is_attributed=False),
    "key as user": lambda _, key: Login(key.secret, "", is_attributed=False),
    "key and CI token": lambda stand, key: Login(key.secret, stand.ci_token(), is_attributed=True),
    "install token as password": lambda stand, key: Login(
        USER, stand.install_token(key), is_attributed=True
    ),
    "install token as user": lambda stand, key: Login(
        stand.install_token(key), "x", is_attributed=True
    ),
}


def basic(client: PackageManager, address: ProxyAddress, login: Login) -> Carrier:
    """Basic authentication as each client is told to use it."""
    pair = f"{login.user}:{login.password}"
    encoded = base64.b64encode(pair.encode()).decode()
    scheme, _, rest = index_url(address).partition("://")
    own = client.variables(address, "unused")
    if client is PIP:
        return Carrier(own | {"PIP_INDEX_URL": f"{scheme}://{pair}@{rest}"})
    if client is UV:
        return Carrier({"UV_DEFAULT_INDEX": f"{scheme}://{pair}@{rest}"})
    if client is POETRY:
        prefix = "POETRY_HTTP_BASIC_COUNTERSIGN_"
        login_of = {f"{prefix}USERNAME": login.user, f"{prefix}PASSWORD": login.password}
        return Carrier(own | login_of)
    if client is YARN:
        del own["YARN_NPM_AUTH_TOKEN"]
        return Carrier(own | {"YARN_NPM_AUTH_IDENT": pair})
    registry = registry_url(address).partition(":")[2]
    lines = [f"registry={registry_url(address)}", f"{registry}:_auth={encoded}"]
    if client is YARN_1:
        lines.append(f"{registry}:always-auth=true")
    return Carrier(own, "".join(f"{line}\n" for line in lines))


def bearer(client: PackageManager, address: ProxyAddress, token: str) -> Carrier:
    """A bearer token, which the clients of npm send."""
    own = client.variables(address, token)
    if client is YARN:
        return Carrier(own)
    registry = registry_url(address).partition(":")[2]
    always = f"{registry}:always-auth=true\n" if client is YARN_1 else ""
    return Carrier(
        own, f"registry={registry_url(address)}\n{registry}:_authToken={token}\n{always}"
    )


@pytest.mark.parametrize("way", LOGINS)
def test_basic_authentication(stand: Stand, project: Project, manager: Manager, way: str) -> None:
    """User and password in every form that names a key or a token."""
    key = stand.key()
    login = LOGINS[way](stand, key)
    project.use(basic(manager.client, stand.address, login))
    done = manager.add(project, manager.below_2("left-pad"))

    assert done.code == 0, done.log
    assert_one_row(stand, key, manager, is_attributed=login.is_attributed)


@pytest.mark.parametrize("has_job", [False, True], ids=["key", "install token"])
def test_bearer_tokens(stand: Stand, project: Project, manager: Manager, has_job: bool) -> None:
    """Npm's `_authToken`."""
    if manager.ecosystem is not Ecosystem.NPM:
        pytest.skip("of npm alone")
    key = stand.key()
    token = stand.install_token(key) if has_job else key.secret
    project.use(bearer(manager.client, stand.address, token))
    done = manager.add(project, manager.below_2("left-pad"))

    assert done.code == 0, done.log
    assert_one_row(stand, key, manager, is_attributed=has_job)


def test_ci_exec(stand: Stand, project: Project, manager: Manager) -> None:
    """The client is told nothing: `ci exec` exchanges the job's token and sets the variables."""
    key = stand.key()
    project.use(
        Carrier(
            {
                "COUNTERSIGN_SERVER": stand.server.url,
                "COUNTERSIGN_ORG": "acme",
                "COUNTERSIGN_API_KEY": key.secret,
                "COUNTERSIGN_ID_TOKEN": stand.ci_token(),
                "PYTHONPATH": str(REPOSITORY),
            }
        )
    )
    requirement = manager.below_2("left-pad")
    manager.prepare(project, requirement)
    # The clients of Python must not find our packages in the place of their own.
    command = ("env", "-u", "PYTHONPATH", *manager.command(requirement))
    done = project.run(sys.executable, "-m", "service.cli.main", "ci", "exec", "--", *command)

    assert done.code == 0, done.log
    assert_one_row(stand, key, manager, is_attributed=True)


@pytest.mark.parametrize("secret", ["cs_wrong", "csi_wrong"])
def test_a_wrong_credential_fails_the_install(
    stand: Stand, project: Project, manager: Manager, secret: str
) -> None:
    """Within the deadline: no client waits for a person to type a password."""
    project.use(basic(manager.client, stand.address, Login(USER, secret, is_attributed=False)))
    done = manager.add(project, manager.below_2("left-pad"))

    assert done.code != 0, done.log
    assert SAYS_REFUSED[manager.client] in done.log, done.log
    assert manager.version(project, "left-pad") is None


def assert_one_row(stand: Stand, key: Key, manager: Manager, *, is_attributed: bool) -> None:
    """Of the install, with the job's binding and run if it is attributed."""
    rows = stand.rows(key)
    assert len(rows) == 1, rows
    (row,) = rows
    job = (stand.binding, RUN_ID) if is_attributed else (None, None)
    assert (row["decision"], row["ecosystem"]) == ("ALLOWED", manager.ecosystem)
    assert (row["oidc_binding_id"], row["run_id"]) == job
