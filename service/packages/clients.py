"""How package managers are pointed at the proxy: what each ecosystem declares, and lines to paste.

Only text: the command line sets the variables, and documentation and dashboard show the lines. The
token in a client's settings is the shell variable TOKEN, which the lines of `exchange_snippet` set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from analytics.model.ecosystems import Ecosystem
from service.ci.providers import CiProvider
from service.core.origins import is_loopback

USER: Final = "countersign"
"""The user name when the token is the password. Any works; poetry's source has this name, too."""

KEY_VARIABLE: Final = "COUNTERSIGN_API_KEY"
ID_TOKEN_VARIABLE: Final = "COUNTERSIGN_ID_TOKEN"  # noqa: S105 - a variable's name
_TOKEN: Final = "$TOKEN"  # noqa: S105 - a variable of the shell


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """Where package managers find the proxy of one organisation; `server` is an origin."""

    server: str
    org: str

    def registry(self, ecosystem: Ecosystem) -> str:
        """The proxied registry of the ecosystem, with a slash at its end."""
        return f"{self.server}/proxy/{quote(self.org, safe='')}/{ecosystem}/"

    @property
    def is_plain_loopback(self) -> bool:
        """True for http to this machine, where nothing leaves it unprotected."""
        parts = urlsplit(self.server)
        return parts.scheme == "http" and is_loopback(parts.hostname or "")


@dataclass(frozen=True, slots=True)
class Snippet:
    """Text to paste; `language` is that of its code block."""

    language: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageManager:
    """What there is to know about a package manager.

    `name` is that in addresses, `label` the one for people. `command` is how a job installs: from
    its lock file. `variables` point it at the proxy with a token; some also need the user's
    `npmrc`. `project` are lines to add to a project's own file, once.
    """

    name: str
    label: str
    command: str
    variables: Callable[[ProxyAddress, str], dict[str, str]]
    npmrc: Callable[[ProxyAddress, str], str] | None = None
    project: Callable[[ProxyAddress], Snippet] | None = None


def exec_command(client: PackageManager, address: ProxyAddress) -> str:
    """The job's install command, run by `countersign ci exec`."""
    return f"countersign ci exec --url {address.server} --org {address.org} -- {client.command}"


def job_snippet(
    client: PackageManager,
    provider: CiProvider,
    address: ProxyAddress,
    audience: str = "countersign",
) -> Snippet:
    """A job that installs with `client`, on an image that has the command `countersign`."""
    text = provider.facts.job.format(command=exec_command(client, address), audience=audience)
    return Snippet("sh" if provider is CiProvider.OTHER else "yaml", text)


def laptop_snippet(client: PackageManager, address: ProxyAddress) -> Snippet:
    """How a member installs with `client` on their own machine."""
    return Snippet(
        "sh", f"countersign login {address.server}\ncountersign run -- {client.command}\n"
    )


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
        f'export {name}="{value}"' for name, value in client.variables(address, _TOKEN).items()
    ]
    if client.npmrc is not None:
        lines += [
            'export NPM_CONFIG_USERCONFIG="$(mktemp)"',
            f'cat > "$NPM_CONFIG_USERCONFIG" <<EOF\n{client.npmrc(address, _TOKEN)}EOF',
        ]
    lines.append(client.command)
    return Snippet("sh", "".join(f"{line}\n" for line in lines))
