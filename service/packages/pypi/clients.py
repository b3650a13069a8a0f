"""PyPI's package managers.

As observed with pip 23 to 26, uv 0.13, poetry 2.5, pdm 2.29 and pipx 1.18.
"""

from typing import Final

from analytics.model.ecosystems import Ecosystem
from service.packages.clients import USER, PackageManager, ProxyAddress, Snippet


def index_url(address: ProxyAddress) -> str:
    """The index of PyPI's packages."""
    return f"{address.registry(Ecosystem.PYPI)}simple/"


def index_with(address: ProxyAddress, token: str) -> str:
    """The index with `token` as the password in its URL."""
    scheme, _, rest = index_url(address).partition("://")
    return f"{scheme}://{USER}:{token}@{rest}"


def _pip(address: ProxyAddress, token: str) -> dict[str, str]:
    # Without a terminal pip fails with a traceback where it would ask for another password.
    return {"PIP_INDEX_URL": index_with(address, token), "PIP_NO_INPUT": "1"}


def _uv(address: ProxyAddress, token: str) -> dict[str, str]:
    index = index_with(address, token)
    return {
        "UV_DEFAULT_INDEX": index,
        "UV_INDEX_URL": index,  # before 0.4.23
        "UV_INDEX_COUNTERSIGN_USERNAME": USER,
        "UV_INDEX_COUNTERSIGN_PASSWORD": token,
    }


def _poetry(_address: ProxyAddress, token: str) -> dict[str, str]:
    return {
        "POETRY_HTTP_BASIC_COUNTERSIGN_USERNAME": USER,
        "POETRY_HTTP_BASIC_COUNTERSIGN_PASSWORD": token,
    }


def _poetry_source(address: ProxyAddress) -> Snippet:
    return Snippet(
        "toml",
        f"""\
[[tool.poetry.source]]
name = "{USER}"
url = "{index_url(address)}"
priority = "primary"
""",
    )


def _pdm(address: ProxyAddress, token: str) -> dict[str, str]:
    return {
        # Without the token: pdm writes this address into its lock file.
        "PDM_PYPI_URL": index_url(address),
        "PDM_PYPI_USERNAME": USER,
        "PDM_PYPI_PASSWORD": token,
    }


PIP: Final = PackageManager(
    name="pip", label="pip", command="pip install -r requirements.txt", variables=_pip
)
UV: Final = PackageManager(name="uv", label="uv", command="uv sync", variables=_uv)
POETRY: Final = PackageManager(
    name="poetry",
    label="Poetry",
    command="poetry install",
    variables=_poetry,
    project=_poetry_source,
)
PDM: Final = PackageManager(name="pdm", label="pdm", command="pdm sync", variables=_pdm)
