"""The ecosystems, each with what its package declares."""

from collections.abc import Mapping
from typing import Any, Final

from analytics.model.ecosystems import Ecosystem
from service.packages.clients import PackageManager, ProxyAddress
from service.packages.ecosystem import EcosystemFacts
from service.packages.npm.ecosystem import NPM
from service.packages.pypi.ecosystem import PYPI

ECOSYSTEMS: Final[Mapping[Ecosystem, EcosystemFacts[Any]]] = {
    facts.ecosystem: facts for facts in (PYPI, NPM)
}

CLIENTS: Final[Mapping[str, PackageManager]] = {
    client.name: client for facts in ECOSYSTEMS.values() for client in facts.clients
}
"""The package managers of all ecosystems, by name."""


def all_variables(address: ProxyAddress, token: str) -> dict[str, str]:
    """The variables of all package managers."""
    return {
        name: value
        for client in CLIENTS.values()
        for name, value in client.variables(address, token).items()
    }
