"""npm: its names, versions, documents and clients."""

import re
from base64 import b64decode
from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import EcosystemFacts, InvalidPackageName, Notation, Release
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
from service.packages.proxy.documents import Codec, decode_untrusted
from service.packages.proxy.origins import Origins
from service.packages.sigstore_bundles import (
    FORGES,
    REPOSITORY,
    Identity,
    Statement,
    attested,
    extension,
)

# Old packages have capitals and the characters that a URL's path need not escape.
_NAME: Final = re.compile(
    r"(?:@[A-Za-z0-9_~!'()*-][\w.~!'()*-]*/[\w~!'()*-]|[A-Za-z0-9~!'()*-])[\w.~!'()*-]*", re.ASCII
)
_SLSA: Final = ("https://slsa.dev/provenance/v1", "https://slsa.dev/provenance/v0.2")
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
        encode=encode_package,
        decode=decode_package,
        release=release_package,
        listed=listed_files,
    )


def _provenance(said: Any) -> Any:  # noqa: ANN401 - any JSON
    """The bundle of the SLSA provenance, beside which there is the registry's own."""
    (bundle,) = (each["bundle"] for each in said["attestations"] if each["predicateType"] in _SLSA)
    return bundle


def _publisher(said: Any) -> str:  # noqa: ANN401 - any JSON
    """The source repository in the certificate: what the provenance says is its author's."""
    from cryptography.x509 import load_der_x509_certificate

    material = _provenance(said)["verificationMaterial"]
    chain = material.get("x509CertificateChain", {}).get("certificates", [])
    raw = (material.get("certificate") or chain[0])["rawBytes"]
    return extension(load_der_x509_certificate(b64decode(raw)), REPOSITORY)


def _bundles(body: bytes) -> tuple[Identity, Iterable[Any]]:
    from sigstore.models import Bundle

    said = decode_untrusted(msgspec.json.decode, body)
    repository, bundle = _publisher(said), Bundle.from_json(msgspec.json.encode(_provenance(said)))
    (forge,) = (each for each in FORGES.values() if repository.startswith(f"{each.address}/"))
    return Identity(forge.issuer, repository, f"{repository}{forge.workflows}"), [bundle]


def _attested_subjects(statement: Statement) -> Iterable[str]:
    if statement.predicate_type not in _SLSA:
        raise ValueError("no provenance of SLSA")
    return [f"{each.name} sha512:{each.digest['sha512']}" for each in statement.subject]


def _subjects(release: Release) -> Iterable[str]:
    url = f"pkg:npm/{release.name.replace('@', '%40')}@{release.version}"
    return [f"{url} {digest}" for digest in release.digests]


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
    attested=partial(attested, _bundles, _attested_subjects),
    subjects=_subjects,
    releases=releases_of,
    address=registry_url,
    clients=(NPM_CLIENT, PNPM, YARN_1, YARN, BUN),
)
