"""npm: its names, versions, documents and clients."""

import re
from base64 import b64decode
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import EcosystemFacts, InvalidPackageName, Notation
from service.packages.npm.clients import BUN, NPM_CLIENT, PNPM, YARN, YARN_1, registry_url
from service.packages.npm.document import (
    NpmPackage,
    decode_package,
    encode_package,
    is_empty_package,
    release_package,
    releases_of,
)
from service.packages.npm.packument import listed_files, parse_package
from service.packages.npm.versions import npm_spellings, parse_npm_range, parse_npm_version
from service.packages.proxy.answers import RegistryDocument
from service.packages.proxy.documents import Codec, DocumentInvalid, decode_untrusted
from service.packages.proxy.origins import Origins

# Old packages have capitals and the characters that a URL's path need not escape.
_NAME: Final = re.compile(
    r"(?:@[A-Za-z0-9_~!'()*-][\w.~!'()*-]*/[\w~!'()*-]|[A-Za-z0-9~!'()*-])[\w.~!'()*-]*", re.ASCII
)
_SLSA: Final = "https://slsa.dev/provenance/v1"
_RESERVED: Final = frozenset({"node_modules", "favicon.ico"})


def _canonical_name(name: str) -> str:
    """`name` unchanged: names are case-sensitive."""
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        raise InvalidPackageName("an npm name is such as left-pad or @scope/left-pad")
    return name


def _names(text: str) -> tuple[str, str]:
    """Exactly this name, and the one in lower case: only old packages have capitals."""
    name = _canonical_name(text)
    return name, name.lower()


_FILE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9~][\w.~-]*?)-(?P<version>[0-9]+\.[0-9]+\.[^/]+)\.tgz"
)


def _file(text: str) -> tuple[str, str] | None:
    """Files of scoped packages do not tell their scope."""
    match = _FILE.fullmatch(text)
    return None if match is None else (match["name"], match["version"])


def _parse(document: RegistryDocument, name: str, origins: Origins) -> NpmPackage:
    return parse_package(document.body, name, origins)


def _codec(origins: Origins) -> Codec[NpmPackage]:
    return Codec(
        accept="application/json",
        path=partial(quote, safe="@"),
        parse=partial(_parse, origins=origins),
        is_empty=is_empty_package,
        invalid=DocumentInvalid,
        encode=encode_package,
        decode=decode_package,
        release=release_package,
        listed=listed_files,
    )


def _publisher(attested: Any) -> str:  # noqa: ANN401 - any JSON
    """The source repository in the SLSA provenance."""
    (bundle,) = [
        each["bundle"] for each in attested["attestations"] if each["predicateType"] == _SLSA
    ]
    payload = b64decode(bundle["dsseEnvelope"]["payload"])
    statement: Any = decode_untrusted(msgspec.json.decode, payload)
    said = statement["predicate"]["buildDefinition"]["externalParameters"]["workflow"]
    return str(said["repository"])


NPM: Final = EcosystemFacts(
    ecosystem=Ecosystem.NPM,
    label="npm",
    osv_name="npm",
    canonical_name=_canonical_name,
    piece=re.compile(r"[\w.~!'()@/-]*", re.ASCII),
    folded=str,
    parse_version=parse_npm_version,
    parse_range=parse_npm_range,
    specifier=re.compile(r"(?P<name>@?[^@]+)@(?P<version>.+)"),
    example="left-pad@1.3.0",
    notation=Notation(
        names=_names,
        versions=npm_spellings,
        page=re.compile(
            r"(?:(?:www\.)?npmjs\.(?:com|org)/package|registry\.(?:npmjs\.org|yarnpkg\.com))/"
            r"(?P<name>(?:@[^/@]+/)?[^/@]+)"
            r"(?:(?:/v/|@|/)(?P<version>[0-9][^/]*)|/-/.*?-(?P<file_version>[0-9]+\..+)\.tgz)?/?"
        ),
        file=_file,
    ),
    codec=_codec,
    publisher=_publisher,
    releases=releases_of,
    address=registry_url,
    clients=(NPM_CLIENT, PNPM, YARN_1, YARN, BUN),
)
