"""npm's package managers.

As observed with npm 11 and 12, pnpm 10 and 12, yarn 1.22, yarn 4.18, bun 1.4 and corepack 0.36.
"""

from functools import partial
from typing import Final
from urllib.parse import urlsplit

from analytics.model.ecosystems import Ecosystem
from service.packages.clients import PackageManager, ProxyAddress


def registry_url(address: ProxyAddress) -> str:
    """The npm registry."""
    return address.registry(Ecosystem.NPM)


def npmrc(address: ProxyAddress, token: str, *, is_for_yarn_1: bool) -> str:
    """A user's `.npmrc` that points npm, pnpm and yarn 1 at the proxy.

    A file, because shells drop variables with names such as `npm_config_//host/:_authToken`. yarn 1
    sends a token for packages without a scope only with `always-auth`, of which npm 11 warns.
    """
    registry = registry_url(address).partition(":")[2]
    lines = [f"registry={registry_url(address)}", f"{registry}:_authToken={token}"]
    if is_for_yarn_1:
        lines.append(f"{registry}:always-auth=true")
    return "".join(f"{line}\n" for line in lines)


# Above a project's own .npmrc, which is above the user's. pnpm 11 and later read theirs alone.
def _npm(address: ProxyAddress, _token: str) -> dict[str, str]:
    return {"npm_config_registry": registry_url(address)}


def _pnpm(address: ProxyAddress, token: str) -> dict[str, str]:
    return {"pnpm_config_registry": registry_url(address)} | _corepack(address, token)


def _yarn_1(address: ProxyAddress, token: str) -> dict[str, str]:
    return _npm(address, token) | _corepack(address, token)


def _yarn(address: ProxyAddress, token: str) -> dict[str, str]:
    of_plain = {"YARN_UNSAFE_HTTP_WHITELIST": urlsplit(address.server).hostname or ""}
    return {
        "YARN_NPM_REGISTRY_SERVER": registry_url(address).rstrip("/"),
        "YARN_NPM_AUTH_TOKEN": token,
        "YARN_NPM_ALWAYS_AUTH": "true",
        **(of_plain if address.is_plain_loopback else {}),
        **_corepack(address, token),
    }


def _bun(address: ProxyAddress, token: str) -> dict[str, str]:
    return {"BUN_CONFIG_REGISTRY": registry_url(address), "BUN_CONFIG_TOKEN": token}


def _corepack(address: ProxyAddress, token: str) -> dict[str, str]:
    """Corepack downloads pnpm and yarn themselves, on machines that have no copy of their own."""
    return {
        "COREPACK_NPM_REGISTRY": registry_url(address).rstrip("/"),
        "COREPACK_NPM_TOKEN": token,
    }


NPM_CLIENT: Final = PackageManager(
    name="npm",
    label="npm",
    command="npm ci",
    variables=_npm,
    npmrc=partial(npmrc, is_for_yarn_1=False),
)
PNPM: Final = PackageManager(
    name="pnpm",
    label="pnpm",
    command="pnpm install --frozen-lockfile",
    variables=_pnpm,
    npmrc=partial(npmrc, is_for_yarn_1=False),
)
YARN_1: Final = PackageManager(
    name="yarn-1",
    label="Yarn 1",
    command="yarn install --frozen-lockfile",
    variables=_yarn_1,
    npmrc=partial(npmrc, is_for_yarn_1=True),
)
YARN: Final = PackageManager(
    name="yarn", label="Yarn 4", command="yarn install --immutable", variables=_yarn
)
BUN: Final = PackageManager(
    name="bun", label="bun", command="bun install --frozen-lockfile", variables=_bun
)
