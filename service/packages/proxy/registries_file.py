"""The registries file: where the first-party packages of organisations come from.

Each table `[registries.NAME]` has `ecosystem`, `url`, which may carry Basic credentials,
`file_origins` and `orgs`, the organisations whose policies may name it. An organisation that is not
listed gets nothing from it.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from analytics.model.ecosystems import Ecosystem
from service.core.origins import InvalidOrigin, Registry, parse_origin, parse_registry
from service.core.settings import InvalidSetting

_SETTING: Final = "COUNTERSIGN_PROXY_REGISTRIES_FILE"


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ecosystem: Ecosystem
    url: str
    orgs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    file_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FirstPartyRegistry:
    """A registry for first-party packages, and the slugs of the organisations that may use it."""

    ecosystem: Ecosystem
    registry: Registry
    orgs: frozenset[str]


class _RegistryFault(Exception):
    """What is wrong with a table; the text begins with the key's name."""


def load_registries(path: Path | None) -> dict[str, FirstPartyRegistry]:
    """The registries in the file at `path`, by name; none without a file.

    Raises InvalidSetting, which names the key and never shows a URL: it may hold credentials.
    """
    if path is None:
        return {}
    try:
        tables = _tables(path.read_text(encoding="utf-8"))
        return {name: _registry(name, table) for name, table in tables.items()}
    except OSError as error:
        raise InvalidSetting(f"{_SETTING} {path}: {error.strerror}") from error
    # Without the cause below: its text may repeat a URL with credentials.
    except _RegistryFault as fault:
        raise InvalidSetting(f"{_SETTING} {path}: {fault}") from None
    except UnicodeDecodeError:
        raise InvalidSetting(f"{_SETTING} {path}: not UTF-8") from None


def _tables(text: str) -> dict[str, object]:
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _RegistryFault(f"not TOML: {error}") from error
    registries = content.pop("registries", {})
    if content:
        raise _RegistryFault(f"unknown table {next(iter(content))}: each is [registries.NAME]")
    if not isinstance(registries, dict):
        raise _RegistryFault("registries: is not a table")
    return registries


def _registry(name: str, table: object) -> FirstPartyRegistry:
    place = f"registries.{name}"
    try:
        parsed = msgspec.convert(table, _Table)
    except msgspec.ValidationError as error:
        text, _, key = str(error).partition(" - at `$")
        raise _RegistryFault(f"{place}{key.rstrip('`')}: {text}") from None
    for number, origin in enumerate(parsed.file_origins):
        try:
            parse_origin(origin)
        except InvalidOrigin as error:
            raise _RegistryFault(f"{place}.file_origins[{number}] {error}") from None
    try:
        registry = parse_registry(parsed.url, parsed.file_origins)
    except InvalidOrigin as error:
        raise _RegistryFault(f"{place}.url {error}") from None
    return FirstPartyRegistry(parsed.ecosystem, registry, frozenset(parsed.orgs))
