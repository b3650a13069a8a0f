"""The files that the demo's jobs ask the install proxy for, and with which package managers."""

import hashlib
from functools import lru_cache
from typing import Final

from analytics.model.rows import FileColumns
from service.demo.profile import EcosystemName

_CLIENTS: Final[dict[EcosystemName, str]] = {"npm": "npm/11.19.1", "pypi": "uv/0.13.9"}


@lru_cache(maxsize=10_000)
def file_of(ecosystem: EcosystemName, package: str, version: str) -> FileColumns:
    """The file of a release: its name by the registry's convention, with a made-up digest."""
    if ecosystem == "npm":
        name = f"{package.rpartition('/')[2]}-{version}.tgz"
    else:
        name = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    digest = hashlib.sha256(f"{ecosystem}/{package}/{version}".encode()).hexdigest()
    return FileColumns(name, digest, _CLIENTS[ecosystem])
