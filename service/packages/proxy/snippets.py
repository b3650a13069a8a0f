"""Snippets to paste for installs through the proxy, for each package manager and CI provider.

Only text, for both the documentation and the dashboard. The token in a client's settings is the
shell variable TOKEN, which the lines of `exchange_snippet` set.
"""

from dataclasses import dataclass
from typing import Final

from service.ci.providers import CiProvider
from service.packages.proxy.clients import USER, Client, ProxyAddress, npmrc, variables

KEY_VARIABLE: Final = "COUNTERSIGN_API_KEY"
ID_TOKEN_VARIABLE: Final = "COUNTERSIGN_ID_TOKEN"  # noqa: S105 - a variable's name
_TOKEN: Final = "$TOKEN"  # noqa: S105 - a variable of the shell


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text to paste; `language` is that of its code block."""

    language: str
    text: str


INSTALL_COMMANDS: Final[dict[Client, str]] = {
    Client.PIP: "pip install -r requirements.txt",
    Client.UV: "uv sync",
    Client.POETRY: "poetry install",
    Client.PDM: "pdm sync",
    Client.NPM: "npm ci",
    Client.PNPM: "pnpm install --frozen-lockfile",
    Client.YARN_1: "yarn install --frozen-lockfile",
    Client.YARN: "yarn install --immutable",
    Client.BUN: "bun install --frozen-lockfile",
}
"""How a job installs with each client: from its lock file."""


def exec_command(client: Client, address: ProxyAddress) -> str:
    """The job's install command, run by `countersign ci exec`."""
    return (
        f"countersign ci exec --url {address.server} --org {address.org}"
        f" -- {INSTALL_COMMANDS[client]}"
    )


def job_snippet(
    client: Client, provider: CiProvider, address: ProxyAddress, audience: str = "countersign"
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


def client_snippet(client: Client, address: ProxyAddress) -> Snippet:
    """The lines that point `client` at the proxy with the token in TOKEN, and install."""
    lines = [
        f'export {name}="{value}"' for name, value in variables(client, address, _TOKEN).items()
    ]
    if client in {Client.NPM, Client.PNPM, Client.YARN_1}:
        content = npmrc(address, _TOKEN, is_for_yarn_1=client is Client.YARN_1)
        lines += [
            'export NPM_CONFIG_USERCONFIG="$(mktemp)"',
            f'cat > "$NPM_CONFIG_USERCONFIG" <<EOF\n{content}EOF',
        ]
    lines.append(INSTALL_COMMANDS[client])
    return Snippet("sh", "".join(f"{line}\n" for line in lines))


def project_snippet(client: Client, address: ProxyAddress) -> Snippet | None:
    """Lines to add to a project's own file, once; None if the client needs none."""
    if client is not Client.POETRY:
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
