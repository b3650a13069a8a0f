"""When releases were published, as far as the documents tell that the proxy has fetched already."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import TypeVar

from service.packages.ecosystems import Ecosystem
from service.packages.proxy.npm.document import NpmPackage
from service.packages.proxy.pypi.project import PypiProject
from service.packages.proxy.registries import PackageRegistry, Registries
from service.packages.versions import InvalidVersion, Version, parse_version

_Value = TypeVar("_Value")


class PublicationDates:
    """The dates of releases of the public registries. No registry is asked."""

    def __init__(self, pypi: Registries[PypiProject], npm: Registries[NpmPackage]) -> None:
        self._pypi = pypi
        self._npm = npm

    async def of(
        self, ecosystem: Ecosystem, name: str, versions: Collection[Version]
    ) -> dict[Version, datetime]:
        """The dates of those of `versions` that are known; `name` is canonical.

        A release of PyPI is as old as its first file.
        """
        if ecosystem is Ecosystem.PYPI:
            dates = await _read(self._pypi.public, name, _project_dates)
        else:
            dates = await _read(self._npm.public, name, _package_dates)
        found: dict[Version, datetime] = {}
        for text, at in dates:
            try:
                version = parse_version(ecosystem, text)
            except InvalidVersion:
                continue
            if version in versions:
                found[version] = min(at, found.get(version, at))
        return found


def _project_dates(project: PypiProject) -> list[tuple[str, datetime]]:
    return [(file.version, file.published_at) for file in project.files if file.published_at]


def _package_dates(package: NpmPackage) -> list[tuple[str, datetime]]:
    return [
        (listed.version, listed.published_at)
        for listed in package.versions.values()
        if listed.published_at
    ]


async def _read(
    registry: PackageRegistry[_Value] | None,
    name: str,
    function: Callable[[_Value], list[tuple[str, datetime]]],
) -> list[tuple[str, datetime]]:
    """The result of `function` on the package's document; an empty list without one."""
    if registry is None:
        return []
    document = await registry.documents.copy(name)
    return [] if document is None else await registry.documents.read(document, function)
