"""How each package manager is pointed at the proxy: its variables and its file, for one token.

As observed with pip 23 to 26, uv 0.13, poetry 2.5, pdm 2.29, pipx 1.18, npm 11 and 12, pnpm 10 and
12, yarn 1.22, yarn 4.18, bun 1.4 and corepack 0.36. No I/O: the command line sets the variables,
and snippets show them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote, urlsplit

from service.ci.providers import CiProvider
from service.core.origins import is_loopback

USER: Final = "countersign"
"""The user name when the token is the password. Any works; poetry's source has this name, too."""


class PackageManager(StrEnum):
    """A package manager."""

    PIP = "pip"
    UV = "uv"
    POETRY = "poetry"
    PDM = "pdm"
    NPM = "npm"
    PNPM = "pnpm"
    YARN_1 = "yarn 1"
    YARN = "yarn"
    BUN = "bun"


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """Where package managers find the proxy of one organisation; `server` is an origin."""

    server: str
    org: str

    @property
    def pypi(self) -> str:
        """The index of PyPI's packages."""
        return f"{self._base}/pypi/simple/"

    @property
    def npm(self) -> str:
        """The npm registry."""
        return f"{self._base}/npm/"

    def pypi_with(self, token: str) -> str:
        """The index with `token` as the password in its URL."""
        scheme, _, rest = self.pypi.partition("://")
        return f"{scheme}://{USER}:{token}@{rest}"

    @property
    def is_plain_loopback(self) -> bool:
        """True for http to this machine, where nothing leaves it unprotected."""
        parts = urlsplit(self.server)
        return parts.scheme == "http" and is_loopback(parts.hostname or "")

    @property
    def _base(self) -> str:
        return f"{self.server}/proxy/{quote(self.org, safe='')}"


def variables(client: PackageManager, address: ProxyAddress, token: str) -> dict[str, str]:
    """The variables that point `client` at the proxy; npm, pnpm and yarn 1 also need `npmrc`."""
    if client in _FROM_PYPI:
        return _of_python(client, address, token)
    if client is PackageManager.BUN:
        return {"BUN_CONFIG_REGISTRY": address.npm, "BUN_CONFIG_TOKEN": token}
    if client is PackageManager.YARN:
        return _of_yarn(address, token) | _of_corepack(address, token)
    # Above a project's own .npmrc, which is above the user's. pnpm 11 and later read theirs alone.
    name = "pnpm_config_registry" if client is PackageManager.PNPM else "npm_config_registry"
    own = {name: address.npm}
    return own if client is PackageManager.NPM else own | _of_corepack(address, token)


_FROM_PYPI: Final = frozenset(
    {PackageManager.PIP, PackageManager.UV, PackageManager.POETRY, PackageManager.PDM}
)


def _of_python(client: PackageManager, address: ProxyAddress, token: str) -> dict[str, str]:
    if client is PackageManager.PIP:
        # Without a terminal pip fails with a traceback where it would ask for another password.
        return {"PIP_INDEX_URL": address.pypi_with(token), "PIP_NO_INPUT": "1"}
    if client is PackageManager.UV:
        index = address.pypi_with(token)
        return {
            "UV_DEFAULT_INDEX": index,
            "UV_INDEX_URL": index,  # before 0.4.23
            "UV_INDEX_COUNTERSIGN_USERNAME": USER,
            "UV_INDEX_COUNTERSIGN_PASSWORD": token,
        }
    if client is PackageManager.PDM:
        return {
            # Without the token: pdm writes this address into its lock file.
            "PDM_PYPI_URL": address.pypi,
            "PDM_PYPI_USERNAME": USER,
            "PDM_PYPI_PASSWORD": token,
        }
    return {
        "POETRY_HTTP_BASIC_COUNTERSIGN_USERNAME": USER,
        "POETRY_HTTP_BASIC_COUNTERSIGN_PASSWORD": token,
    }


def _of_corepack(address: ProxyAddress, token: str) -> dict[str, str]:
    """Corepack downloads pnpm and yarn themselves, on machines that have no copy of their own."""
    return {
        "COREPACK_NPM_REGISTRY": address.npm.rstrip("/"),
        "COREPACK_NPM_TOKEN": token,
    }


def _of_yarn(address: ProxyAddress, token: str) -> dict[str, str]:
    of_plain = {"YARN_UNSAFE_HTTP_WHITELIST": urlsplit(address.server).hostname or ""}
    return {
        "YARN_NPM_REGISTRY_SERVER": address.npm.rstrip("/"),
        "YARN_NPM_AUTH_TOKEN": token,
        "YARN_NPM_ALWAYS_AUTH": "true",
        **(of_plain if address.is_plain_loopback else {}),
    }


def all_variables(address: ProxyAddress, token: str) -> dict[str, str]:
    """The variables of every client."""
    return {
        name: value
        for client in PackageManager
        for name, value in variables(client, address, token).items()
    }


def npmrc(address: ProxyAddress, token: str, *, is_for_yarn_1: bool) -> str:
    """A user's `.npmrc` that points npm, pnpm and yarn 1 at the proxy.

    A file, because shells drop variables with names such as `npm_config_//host/:_authToken`. yarn 1
    sends a token for packages without a scope only with `always-auth`, of which npm 11 warns.
    """
    registry = address.npm.partition(":")[2]
    lines = [f"registry={address.npm}", f"{registry}:_authToken={token}"]
    if is_for_yarn_1:
        lines.append(f"{registry}:always-auth=true")
    return "".join(f"{line}\n" for line in lines)


KEY_VARIABLE: Final = "COUNTERSIGN_API_KEY"
ID_TOKEN_VARIABLE: Final = "COUNTERSIGN_ID_TOKEN"  # noqa: S105 - a variable's name
_TOKEN: Final = "$TOKEN"  # noqa: S105 - a variable of the shell


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text to paste; `language` is that of its code block."""

    language: str
    text: str


INSTALL_COMMANDS: Final[dict[PackageManager, str]] = {
    PackageManager.PIP: "pip install -r requirements.txt",
    PackageManager.UV: "uv sync",
    PackageManager.POETRY: "poetry install",
    PackageManager.PDM: "pdm sync",
    PackageManager.NPM: "npm ci",
    PackageManager.PNPM: "pnpm install --frozen-lockfile",
    PackageManager.YARN_1: "yarn install --frozen-lockfile",
    PackageManager.YARN: "yarn install --immutable",
    PackageManager.BUN: "bun install --frozen-lockfile",
}
"""How a job installs with each client: from its lock file."""


def exec_command(client: PackageManager, address: ProxyAddress) -> str:
    """The job's install command, run by `countersign ci exec`."""
    return (
        f"countersign ci exec --url {address.server} --org {address.org}"
        f" -- {INSTALL_COMMANDS[client]}"
    )


def job_snippet(
    client: PackageManager,
    provider: CiProvider,
    address: ProxyAddress,
    audience: str = "countersign",
) -> Snippet:
    """A job that installs with `client`, on an image that has the command `countersign`."""
    text = provider.facts.job.format(command=exec_command(client, address), audience=audience)
    return Snippet("sh" if provider is CiProvider.OTHER else "yaml", text)


def exchange_snippet(
    provider: CiProvider, address: ProxyAddress, audience: str = "countersign"
) -> Snippet:
    """The lines of a job that get an install token into TOKEN, without `countersign`."""
    url = f"{address.server}/api/v1/orgs/{address.org}/install-tokens"
    lines = (
        provider.facts.request_lines.format(audience=audience)
        + f"""\
TOKEN=$(curl -sS --fail-with-body --retry 3 -X POST {url} \\
  -H "x-service-api-key: ${KEY_VARIABLE}" -H "x-service-ci-oidc: ${ID_TOKEN_VARIABLE}" \\
  | jq -r '.token // error(.error)')
unset {KEY_VARIABLE} {ID_TOKEN_VARIABLE}
"""
    )
    if provider.facts.has_masks:
        lines += 'echo "::add-mask::$TOKEN"\n'
    return Snippet("sh", lines)


def client_snippet(client: PackageManager, address: ProxyAddress) -> Snippet:
    """The lines that point `client` at the proxy with the token in TOKEN, and install."""
    lines = [
        f'export {name}="{value}"' for name, value in variables(client, address, _TOKEN).items()
    ]
    if client in {PackageManager.NPM, PackageManager.PNPM, PackageManager.YARN_1}:
        content = npmrc(address, _TOKEN, is_for_yarn_1=client is PackageManager.YARN_1)
        lines += [
            'export NPM_CONFIG_USERCONFIG="$(mktemp)"',
            f'cat > "$NPM_CONFIG_USERCONFIG" <<EOF\n{content}EOF',
        ]
    lines.append(INSTALL_COMMANDS[client])
    return Snippet("sh", "".join(f"{line}\n" for line in lines))


def project_snippet(client: PackageManager, address: ProxyAddress) -> Snippet | None:
    """Lines to add to a project's own file, once; None if the client needs none."""
    if client is not PackageManager.POETRY:
        return None
    return Snippet(
        "toml",
        f"""\
[[tool.poetry.source]]
name = "{USER}"
url = "{address.pypi}"
priority = "primary"
""",
    )
