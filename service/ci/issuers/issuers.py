"""The issuers file: the CI identity providers and which of them are accepted."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from service.ci.issuers.run_links import run_url_fault
from service.ci.issuers.urls import issuer_url_fault, key_url_fault
from service.ci.providers import CI_LABELS
from service.core.settings import InvalidSetting

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "Ed25519"
]
ClaimName = Annotated[str, msgspec.Meta(min_length=1)]


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One CI identity provider and how its tokens are read.

    `name` is the name of its table in the issuers file. Claim names are None if the provider's
    tokens lack such a claim.
    """

    name: str
    url: str
    provider: str
    accepted: bool
    algorithms: Annotated[tuple[Algorithm, ...], msgspec.Meta(min_length=1)]
    requires_repository_id: bool
    repository_id_claim: ClaimName
    event_name_claim: ClaimName | None = None
    run_id_claim: ClaimName | None = None
    token_id_claim: ClaimName = "jti"  # noqa: S105 - a claim's name
    owner_claim: ClaimName | None = None
    jwks_uri: str | None = None
    run_url: str | None = None


Issuers = Mapping[str, Issuer]
"""The accepted issuers by URL."""

_KEYS: Final = {field.name: field for field in msgspec.structs.fields(Issuer)}
_SYNTAX_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_FIELD_PLACE: Final = re.compile(r" - at `\$\.(\w+).*`$")


class _IssuerFault(Exception):
    """A fault in the file, located by a table and optionally a key in it, or by a line."""

    def __init__(
        self,
        text: str,
        *,
        table: str | None = None,
        key: str | None = None,
        line: int | None = None,
    ) -> None:
        self.table, self.key, self.line = table, key, line
        names = [_toml_key(name) for name in (table, key) if name is not None]
        place = f"{'.'.join(names)}: " if names else ""
        super().__init__(place + " ".join(text.split()))


def load_issuers(path: Path) -> Issuers:
    """The accepted issuers in the file at `path`.

    Raises InvalidSetting with the faulty line, even for faults in issuers that are not accepted.
    """
    text = ""
    try:
        text = _decoded(path.read_bytes())
        issuers = _issuers(_tables(text))
    except OSError as error:
        raise InvalidSetting(f"COUNTERSIGN_ISSUERS_FILE {path}: {error.strerror}") from error
    except _IssuerFault as fault:
        line = line_of(text, fault.table, fault.key) if fault.table is not None else fault.line
        place = f"{path}, line {line}" if line is not None else f"{path}"
        raise InvalidSetting(f"COUNTERSIGN_ISSUERS_FILE {place}: {fault}") from fault
    return {issuer.url: issuer for issuer in issuers if issuer.accepted}


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _IssuerFault("not UTF-8", line=raw.count(b"\n", 0, error.start) + 1) from error


def _tables(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _SYNTAX_PLACE.search(str(error))
        at_end = text.rstrip("\n").count("\n") + 1
        line = int(place[1]) if place and place[1] else at_end
        raise _IssuerFault(_SYNTAX_PLACE.sub("", str(error)), line=line) from error
    except ValueError as error:  # raised by int(), whose digits Python limits
        raise _IssuerFault("an integer is too long") from error
    except RecursionError as error:
        raise _IssuerFault("nested too deeply") from error


def _issuers(tables: Mapping[str, Any]) -> list[Issuer]:
    if not tables:
        raise _IssuerFault("no issuer in it: at least one table is needed")
    names: dict[str, str] = {}
    issuers = [_issuer(name, table) for name, table in tables.items()]
    for issuer in issuers:
        if (first := names.setdefault(issuer.url, issuer.name)) != issuer.name:
            raise _IssuerFault(
                f"is the same as that of {_toml_key(first)}", table=issuer.name, key="url"
            )
    return issuers


def _issuer(name: str, table: object) -> Issuer:
    if not isinstance(table, dict):
        raise _IssuerFault("is not a table", table=name)
    for key in table:
        if key not in _KEYS or key == "name":
            raise _IssuerFault("unknown key", table=name, key=key)
    for key, field in _KEYS.items():
        if field.required and key not in table and key != "name":
            raise _IssuerFault("missing", table=name, key=key)
    try:
        issuer = msgspec.convert(table | {"name": name}, Issuer)
    except msgspec.ValidationError as error:
        raise _type_fault(name, str(error)) from error
    _check(issuer)
    return issuer


def _type_fault(name: str, text: str) -> _IssuerFault:
    """Msgspec's `… - at `$.key[0]`` error as a fault at the table's key, with valid choices."""
    place = _FIELD_PLACE.search(text)
    key = place[1] if place else None
    message = _FIELD_PLACE.sub("", text)
    if message.startswith("Invalid enum value"):
        message += f", must be one of {', '.join(get_args(Algorithm))}"
    return _IssuerFault(message, table=name, key=key)


def _check(issuer: Issuer) -> None:
    """Check what the types cannot express."""
    if issuer.provider not in CI_LABELS:
        known = ", ".join(CI_LABELS)
        text = f"Invalid enum value {issuer.provider!r}, must be one of {known}"
        raise _IssuerFault(text, table=issuer.name, key="provider")
    if fault := issuer_url_fault(issuer.url):
        raise _IssuerFault(fault, table=issuer.name, key="url")
    if issuer.jwks_uri is not None and (fault := key_url_fault(issuer.jwks_uri)):
        raise _IssuerFault(fault, table=issuer.name, key="jwks_uri")
    if issuer.run_url is not None and (fault := run_url_fault(issuer.run_url)):
        raise _IssuerFault(fault, table=issuer.name, key="run_url")
    if len(set(issuer.algorithms)) < len(issuer.algorithms):
        raise _IssuerFault("an algorithm is named twice", table=issuer.name, key="algorithms")


def _toml_key(name: str) -> str:
    """`name` as a TOML key: in quotes unless it can be a bare key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def line_of(text: str, table: str, key: str | None = None) -> int | None:
    """The 1-based line of `key` in `[table]`, else that of the table, else None.

    A text search for the usual spellings, not a parser: other spellings yield None.
    """
    header = re.compile(rf"\s*\[\s*{_spelling(table)}\s*\]")
    inline = re.compile(rf"\s*{_spelling(table)}\s*[=.]")
    member = None if key is None else re.compile(rf"\s*{_spelling(key)}\s*=")
    line_number, is_top = None, True
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("["):
            if line_number is not None:
                break
            is_top = False
        if line_number is None:
            line_number = number if header.match(line) or (is_top and inline.match(line)) else None
        elif member is not None and member.match(line):
            return number
    return line_number


def _spelling(name: str) -> str:
    return rf"""["']?{re.escape(name)}["']?"""
