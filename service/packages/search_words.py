"""Packages in the search of the audit log, as people paste them: pins, lock files, addresses."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import unquote

from analytics.model.ecosystems import Ecosystem
from analytics.model.filters import InvalidQuery, literal
from service.audit.readings import VERSION, FilterValues, Reading, Searcher, distinct
from service.packages.ecosystem import InvalidPackageName, InvalidRange, InvalidVersion
from service.packages.ecosystems import ECOSYSTEMS
from service.packages.names import NAME_MAX
from service.packages.versions import VERSION_MAX, VersionRange, find_version, parse_range

TEXT_MAX: Final = 2 * (NAME_MAX + VERSION_MAX)
"""Characters of a text that is read; longer ones name no package."""

READINGS_MAX: Final = 16
"""Each may cost queries."""

_ALL: Final = tuple(Ecosystem)
_BY_NAME: Final = {
    name: ecosystem
    for ecosystem, facts in ECOSYSTEMS.items()
    for name in (ecosystem, facts.label.lower(), *facts.notation.aliases)
}
_NAMES: Final = "|".join(map(re.escape, _BY_NAME))
_BY_COMMAND: Final = {
    client.command.partition(" ")[0]: ecosystem
    for ecosystem, facts in ECOSYSTEMS.items()
    for client in facts.clients
}
_COMMAND: Final = re.compile(
    rf"(?:\$\s+)?(?:sudo\s+)?(?:python[0-9.]*\s+-m\s+)?(?P<command>{'|'.join(_BY_COMMAND)})[0-9.]*"
    r"(?:\s+pip)?(?:\s+global)?\s+(?:install|i|add|why|show|view|info|download)(?:\s+-\S+)*\s+"
    r"(?P<rest>[^-\s].*)"
)
_PURL: Final = re.compile(r"pkg:/*(?P<type>[A-Za-z][\w.+-]*)/+(?P<rest>.+)", re.IGNORECASE)
_URL: Final = re.compile(r"(?:https?|git\+https?)://(?:[^/@\s]*@)?(?P<rest>[^\s?#]+)\S*")
_PREFIXED: Final = re.compile(rf"(?P<ecosystem>{_NAMES})\s*[/:]\s*(?P<rest>\S.*)", re.IGNORECASE)
_SUFFIXED: Final = re.compile(rf"(?P<rest>\S.*?)\s*\((?P<ecosystem>{_NAMES})\)?", re.IGNORECASE)
_QUOTE: Final = "[\"']"
_BOUND: Final = r"[<>]=?\s*v?[0-9][\w.+!-]*"
_NAME: Final = r"@?[\w.~-]+(?:/[\w.~-]+)?"
_PAIR: Final = re.compile(
    rf"(?:{_QUOTE}?name{_QUOTE}?\s*[:=]\s*)?(?P<quote>{_QUOTE})?(?:node_modules/)?(?P<name>{_NAME})"
    rf"(?P=quote)(?:\s*[:=]\s*|\s*,?\s*{_QUOTE}?version{_QUOTE}?\s*[:=]\s*){_QUOTE}?"
    rf"(?P<version>[\^~<>=v]*\s*[0-9][^\s\"',]*){_QUOTE}?\s*,?"
)
_LINE: Final = re.compile(
    rf"(?P<name>{_NAME})\s*[:=]\s*{_QUOTE}?(?P<version>[\^~<>=v]*[0-9][^\s\"',(]*){_QUOTE}?,?"
    r"(?:\([^)]*\))*"
)
_NAMED: Final = re.compile(rf"{_QUOTE}?name{_QUOTE}?\s*[:=]\s*{_QUOTE}(?P<name>{_NAME}){_QUOTE}?,?")
_MODULE: Final = re.compile(rf"(?:\S*/)?node_modules/(?P<name>{_NAME})/?")
_AT: Final = re.compile(
    r"/?(?P<name>@?[^@\s]+)@(?:npm:)?(?P<version>[^@\s:(]+(?:\s*[|<>=]+[^@:(]+)?)(?:\([^\s]*\))*:?"
)
_OLD_LOCK: Final = re.compile(rf"/(?P<name>{_NAME})/(?P<version>[0-9][^\s/_:]*)(?:_\S*)?:?")
_TWO_WORDS: Final = re.compile(
    rf"(?P<name>{_NAME})(?:\s+version)?\s+\(?(?P<version>[v=^~]?[0-9][\w.+!-]*)\)?",
    re.IGNORECASE,
)
_BOUNDS: Final = re.compile(
    rf"(?P<name>{_NAME})(?:\[[^\]]*\])?\s*(?P<version>{_BOUND}(?:[\s,]+{_BOUND})*)"
)
_TAIL: Final = re.compile(
    r"\s*;\s*\(?(?:python_|sys_|platform_|os_name|implementation_|extra\b).*|\s+#.*"
    r"|(?:\s+--[a-z]\S*)+(?:\s*\\)?$|\s*\\$"
)
"""What may follow a requirement, and says nothing about the package (PEP 508, pip)."""

_JOINED: Final = re.compile(rf"(?P<name>{_NAME}?)-v?(?P<version>[0-9]+\.[0-9][\w.+]*(?:-[\w.]+)?)")
_TAGS: Final = frozenset({"latest", "*"})


class _NamedPackage(NamedTuple):
    """A package that a text names: of one ecosystem, or of any."""

    ecosystem: Ecosystem | None
    name: str
    version: str | None = None


async def read_package(_: Searcher, text: str) -> Sequence[Reading]:
    """The packages that `text` may name. Raises InvalidQuery."""
    return package_readings(text)


def package_readings(text: str) -> list[Reading]:
    """The packages that `text` may name, the likeliest first. Raises InvalidQuery."""
    is_url = text[:4].lower() == "pkg:"
    if len(text) > TEXT_MAX:
        readings = []
    else:
        text = " ".join(text.split())  # several patterns try each way to divide a run of spaces
        text = text if "://" in text else _TAIL.sub("", text)
        readings = [reading for named in _named(text, None) for reading in _spelled(named)]
    if is_url and not readings:
        raise InvalidQuery("the name in this package URL is not valid", field="q")
    if any(facts.notation.file(text) for facts in ECOSYSTEMS.values()):
        # The last: the file of a scoped package does not tell its scope.
        readings.append(Reading({"file_name": (literal(text),)}))
    return distinct(readings)[:READINGS_MAX]


def _named(text: str, ecosystem: Ecosystem | None) -> Iterator[_NamedPackage]:
    """What the forms that `text` has name. A form that is told by its marks is the only one."""
    if text[:4].lower() == "pkg:":
        yield _package_url(text)
    elif match := _URL.fullmatch(text):
        yield from _address(match["rest"])
    elif match := _COMMAND.fullmatch(text):
        yield from _named(match["rest"], _BY_COMMAND[match["command"]])
    elif match := _PREFIXED.fullmatch(text) or _SUFFIXED.fullmatch(text):
        yield from _named(match["rest"], _BY_NAME[match["ecosystem"].lower()])
    elif match := _first(text, (_PAIR, _MODULE, _NAMED, _OLD_LOCK)):
        yield _of(match, ecosystem)
    elif pinned := _requirement(text):
        yield pinned
    elif match := _first(text, (_AT, _BOUNDS, _TWO_WORDS, _LINE)):
        yield _of(match, ecosystem)
    elif not any(map(str.isspace, text)):
        yield from _one_word(text, ecosystem)


def _first(text: str, patterns: Iterable[re.Pattern[str]]) -> re.Match[str] | None:
    return next((match for pattern in patterns if (match := pattern.fullmatch(text))), None)


def _of(match: re.Match[str], ecosystem: Ecosystem | None) -> _NamedPackage:
    groups = match.groupdict()
    return _NamedPackage(
        ecosystem, groups["name"], groups.get("version") or groups.get("file_version")
    )


def _package_url(text: str) -> _NamedPackage:
    """`pkg:npm/%40scope/name@1.0`, see github.com/package-url/purl-spec. Raises InvalidQuery."""
    match = _PURL.fullmatch(text)
    if match is None or match["type"].lower() not in set(Ecosystem):
        known = ", ".join(f"pkg:{name}/<name>" for name in sorted(Ecosystem))
        raise InvalidQuery(
            f"a package URL must be one of {known}, with @<version> if wanted", field="q"
        )
    path = match["rest"].partition("#")[0].partition("?")[0]
    name, at, version = path.rpartition("@")
    if not at or not name or "/" in version:  # as in the `@` of a scope that is not escaped
        name, version = path, ""
    parts = [unquote(part) for part in name.split("/") if part]
    return _NamedPackage(
        Ecosystem(match["type"].lower()), "/".join(parts), unquote(version) or None
    )


def _address(address: str) -> Iterator[_NamedPackage]:
    """The package of a page or a file of a registry."""
    address = unquote(address)
    for ecosystem, facts in ECOSYSTEMS.items():
        if match := facts.notation.page.fullmatch(address):
            yield _of(match, ecosystem)
            return
    for ecosystem, facts in ECOSYSTEMS.items():
        if release := facts.notation.file(address.rstrip("/").rpartition("/")[2]):
            yield _NamedPackage(ecosystem, *release)


def _requirement(text: str) -> _NamedPackage | None:
    for ecosystem, facts in ECOSYSTEMS.items():
        pattern = facts.notation.requirement
        if pattern is not None and (match := pattern.fullmatch(text)):
            return _of(match, ecosystem)
    return None


def _one_word(text: str, ecosystem: Ecosystem | None) -> Iterator[_NamedPackage]:
    """A file, or a name alone. A release may be in a name: then that comes second."""
    files = [
        _NamedPackage(each, *release)
        for each, facts in ECOSYSTEMS.items()
        if ecosystem in {None, each} and (release := facts.notation.file(text))
    ]
    yield from files
    if files:
        return
    yield _NamedPackage(ecosystem, text)
    if match := _JOINED.fullmatch(text):
        yield _of(match, ecosystem)
    scope, slash, name = text.partition("/")
    if slash and scope and not scope.startswith("@") and "/" not in name:
        yield _NamedPackage(Ecosystem.NPM, f"@{text}")


def _spelled(named: _NamedPackage) -> Iterator[Reading]:
    """The readings of a package: the spellings of its name, and of its version with each."""
    names: dict[str, set[Ecosystem]] = {}
    for ecosystem in _ALL if named.ecosystem is None else (named.ecosystem,):
        try:
            spellings = [*ECOSYSTEMS[ecosystem].notation.names(named.name)]
        except InvalidPackageName:
            continue
        for name in spellings:
            names.setdefault(name, set()).add(ecosystem)
    if names and named.ecosystem is None:
        # First in any row, exactly as it was typed.
        names = {named.name: {*_ALL}} | {n: each for n, each in names.items() if n != named.name}
    for name, ecosystems in names.items():
        for where in _rows_of(ecosystems):
            for version, includes in _versions(ecosystems, named.version):
                of_version = {} if version is None else {VERSION: (literal(version),)}
                yield Reading(where | {"package": (literal(name),)} | of_version, includes)


def _rows_of(ecosystems: Collection[Ecosystem]) -> Iterator[dict[str, FilterValues]]:
    """The filters on the ecosystem: first those rows, then those that do not tell theirs."""
    if len(ecosystems) == len(_ALL):
        yield {}
        return
    yield {"ecosystem": tuple(str(each) for each in _ALL if each in ecosystems)}
    yield {"ecosystem": tuple(f"!{other}" for other in _ALL if other not in ecosystems)}


def _versions(
    ecosystems: Collection[Ecosystem], text: str | None
) -> list[tuple[str | None, Callable[[str, str], bool] | None]]:
    """The spellings of a version; after them, the ranges that the text is in an ecosystem."""
    if text is None or text in _TAGS:
        return [(None, None)]
    plain = text.strip().lstrip("= ") if "," not in text else text.strip()
    spellings: list[str] = []
    ranges: list[tuple[str | None, Callable[[str, str], bool] | None]] = []
    for ecosystem in filter(ecosystems.__contains__, _ALL):
        try:
            spellings += ECOSYSTEMS[ecosystem].notation.versions(plain)
        except InvalidVersion:
            try:
                found = parse_range(ecosystem, text.strip())
            except InvalidRange:
                continue
            ranges.append((plain, partial(_is_in, ecosystem, found)))
    exact = [(spelling, None) for spelling in dict.fromkeys(spellings)]
    return [*exact, *ranges] or [(plain, None)]


def _is_in(ecosystem: Ecosystem, found: VersionRange, _: str, text: str) -> bool:
    version = find_version(ecosystem, text)
    return version is not None and found.contains(version)
