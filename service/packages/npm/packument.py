"""Parses a packument, an npm registry's document on a package.

Only what the proxy changes or decides on is decoded; all other JSON is kept as bytes.
"""

import re
from base64 import b64decode
from collections import Counter
from typing import Final

import msgspec

from service.packages.ecosystem import Provenance
from service.packages.npm.document import VERSIONS_MAX, NpmPackage, PackageVersion, file_name
from service.packages.proxy.documents import (
    DOCUMENT_BYTES_MAX,
    DocumentInvalid,
    EntryDropped,
    decode_untrusted,
    parse_hashes,
    parse_instant,
    refuse_oversized,
)
from service.packages.proxy.origins import Origins, bounded_url

Members = dict[str, msgspec.Raw]

MEMBERS_MAX: Final = 1000
TIME_BYTES_MAX: Final = 8 << 20
TAGS_BYTES_MAX: Final = 1 << 20
VERSION_BYTES_MAX: Final = 2 << 20
"""Of a version's object, whose members the publisher chooses."""

EXTRA_BYTES_MAX: Final = 4 << 20
"""Of all members that the proxy does not read: each copy of 60 MB would stop the event loop for
30 ms. Installs do not need them, and the longest readme that npm keeps has 64 KB."""

TAGS_MAX: Final = 10_000
TAG_CHARS_MAX: Final = 256
TEXT_CHARS_MAX: Final = 4096
_TIME_CHARS_MAX: Final = 40

_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,255}")

_ABBREVIATED: Final[tuple[str, ...]] = (
    "name",
    "version",
    "dependencies",
    "optionalDependencies",
    "devDependencies",
    "bundleDependencies",
    "bundledDependencies",
    "peerDependencies",
    "peerDependenciesMeta",
    "acceptDependencies",
    "bin",
    "directories",
    "engines",
    "cpu",
    "os",
    "libc",
    "funding",
    "hasInstallScript",
    "_hasShrinkwrap",
)
"""Members of a version in the abbreviated form (npm's registry API), except those we write."""

_BAD_VERSION: Final = "version has characters that versions must not have"
_TAG_ALONE: Final = "dist-tag without its version"
_LARGE_MEMBER: Final = "member is too large"
_NEVER_OFFERED: Final = frozenset({_BAD_VERSION, _TAG_ALONE, _LARGE_MEMBER})

_INSTALL_SCRIPTS: Final = ("preinstall", "install", "postinstall")

_MEMBERS: Final = msgspec.json.Decoder(Members)
_ANY: Final = msgspec.json.Decoder(object)


def parse_package(body: bytes, name: str, origins: Origins) -> NpmPackage:
    """The package `name`, from a registry's full document.

    Invalid versions are dropped and counted; the others are kept. Raises DocumentInvalid if the
    document is about another package, or has more than VERSIONS_MAX versions.
    """
    refuse_oversized(body)
    document = _document(body)
    if len(document) > MEMBERS_MAX:
        raise DocumentInvalid("document has too many members")
    # A registry must not answer for one package with another one's files.
    if _text(document.pop("name", None)) != name:
        raise DocumentInvalid("document is of another package")
    versions = _object(document.pop("versions", None))
    if len(versions) > VERSIONS_MAX:
        raise DocumentInvalid("document has too many versions")
    stated = _object(document.pop("time", None), TIME_BYTES_MAX)
    time = _times(stated)
    dropped: Counter[str] = Counter()
    offered: dict[str, PackageVersion] = {}
    for version, raw in versions.items():
        try:
            offered[version] = _parse_version(raw, name, version, time.get(version), origins)
        except EntryDropped as reason:
            dropped[str(reason)] += 1
    tags = _tags(_object(document.pop("dist-tags", None), TAGS_BYTES_MAX), offered, dropped)
    # Files inside the document would reach clients without a decision or a row.
    document.pop("_attachments", None)
    modified = time.get("modified") or _text(document.get("modified"))
    return NpmPackage(
        name=name,
        tags=tags,
        versions=offered,
        modified=modified if modified and len(modified) <= _TIME_CHARS_MAX else None,
        time=msgspec.json.encode(time),
        extra=_members(_small(document, dropped)),
        dropped=dict(dropped),
        is_unpublished="unpublished" in stated,
    )


def listed_files(package: NpmPackage) -> frozenset[str] | None:
    """The names of all tarballs; None if one was dropped that may have been offered before."""
    names = frozenset(file_name(package.name, version) for version in package.versions)
    return names if package.dropped.keys() <= _NEVER_OFFERED else None


def _document(body: bytes) -> Members:
    """The members of the document. Raises DocumentInvalid."""
    try:
        body.decode()  # some parts are kept as undecoded bytes: their encoding is checked here
    except UnicodeDecodeError as error:
        raise DocumentInvalid("document is not JSON") from error
    try:
        return decode_untrusted(_MEMBERS.decode, body)
    except DocumentInvalid:
        repaired = replace_lone_surrogates(body)
        if repaired == body:
            raise
        return decode_untrusted(_MEMBERS.decode, repaired)


def _object(raw: msgspec.Raw | None, bytes_max: int = DOCUMENT_BYTES_MAX) -> Members:
    """The members of `raw`; none if it is absent. Raises DocumentInvalid."""
    if raw is None:
        return {}
    if memoryview(raw).nbytes > bytes_max:
        raise DocumentInvalid("document has a member that is too large")
    return decode_untrusted(_MEMBERS.decode, raw)


def _value(raw: msgspec.Raw | None) -> object:
    """The value of `raw`; None if it is absent, or cannot be decoded."""
    try:
        return None if raw is None else _ANY.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _text(raw: msgspec.Raw | None) -> str | None:
    value = _value(raw)
    return value if isinstance(value, str) else None


def _members(members: Members) -> bytes:
    """`members` as JSON without braces."""
    return msgspec.json.encode(members)[1:-1]


def _small(members: Members, dropped: Counter[str]) -> Members:
    """The first of `members` that have EXTRA_BYTES_MAX together; one that does not fit is left."""
    kept: Members = {}
    size = 0
    for name, raw in members.items():
        length = len(name) + memoryview(raw).nbytes
        if size + length <= EXTRA_BYTES_MAX:
            kept[name] = raw
            size += length
        else:
            dropped[_LARGE_MEMBER] += 1
    return kept


def _times(raw: Members) -> dict[str, str]:
    """The instants in a document's `time`, without the other values of unpublished packages."""
    texts = {name: _text(value) for name, value in raw.items() if len(name) <= TAG_CHARS_MAX}
    return {name: text for name, text in texts.items() if text and len(text) <= _TIME_CHARS_MAX}


def _tags(
    raw: Members, versions: dict[str, PackageVersion], dropped: Counter[str]
) -> dict[str, str]:
    """The dist-tags whose version is offered."""
    if len(raw) > TAGS_MAX:
        raise DocumentInvalid("document has too many dist-tags")
    tags: dict[str, str] = {}
    for tag, value in raw.items():
        version = _text(value)
        if version in versions and len(tag) <= TAG_CHARS_MAX:
            tags[tag] = version
        else:
            dropped[_TAG_ALONE] += 1
    return tags


def _parse_version(
    raw: msgspec.Raw, name: str, version: str, published: str | None, origins: Origins
) -> PackageVersion:
    """One version. Raises EntryDropped."""
    if not _VERSION.fullmatch(version):
        raise EntryDropped(_BAD_VERSION)
    if memoryview(raw).nbytes > VERSION_BYTES_MAX:
        raise EntryDropped("version is too large")
    try:
        members = _MEMBERS.decode(raw)
        dist = _MEMBERS.decode(members.pop("dist", msgspec.Raw(b"null")))
    except (msgspec.DecodeError, RecursionError) as error:
        raise EntryDropped("version is described wrongly") from error
    # Clients believe these members: they must not contradict what the decision is about.
    if _text(members.get("name")) != name or _text(members.get("version")) != version:
        raise EntryDropped("version is described as another one")
    tarball = _text(dist.pop("tarball", None))
    if tarball is None:
        raise EntryDropped("version has no tarball")
    origin, path, _ = origins.locate(tarball, "")
    deprecated = _deprecated(members.pop("deprecated", None))
    if "hasInstallScript" not in members and _runs_scripts(_value(members.get("scripts"))):
        members["hasInstallScript"] = msgspec.Raw(b"true")
    install = {key: members.pop(key) for key in _ABBREVIATED if key in members}
    attestations = _value(dist.get("attestations"))
    provenance = _provenance(_value(members.get("_npmUser")), attestations)
    attested_at = attestations.get("url") if isinstance(attestations, dict) else None
    return PackageVersion(
        version=version,
        origin=origin,
        path=path,
        digests=_digests(_text(dist.get("integrity")), _text(dist.get("shasum"))),
        published_at=parse_instant(published),
        deprecated=deprecated,
        dist=_members(dist),
        install=_members(install),
        extra=_members(members),
        provenance=provenance,
        attestation=bounded_url(attested_at if isinstance(attested_at, str) else None),
    )


def _provenance(publisher: object, attestations: object) -> Provenance:
    """The level that pnpm's `trustPolicy` takes from the same members."""
    if isinstance(publisher, dict) and publisher.get("trustedPublisher"):
        return Provenance.TRUSTED_PUBLISHER
    if isinstance(attestations, dict) and attestations.get("provenance"):
        return Provenance.PROVENANCE
    return Provenance.NONE


def _deprecated(raw: msgspec.Raw | None) -> bool | str:
    """The text of a deprecation, True if it has none, False if the version is not deprecated."""
    value = _value(raw)
    return value[:TEXT_CHARS_MAX] or False if isinstance(value, str) else value is True


def _runs_scripts(scripts: object) -> bool:
    """True if one of `scripts` runs at installation, which full documents do not state."""
    return isinstance(scripts, dict) and any(scripts.get(script) for script in _INSTALL_SCRIPTS)


def _digests(integrity: str | None, shasum: str | None) -> frozenset[str]:
    """Digests as `algorithm:hex`, of Subresource Integrity metadata and of a SHA-1 in hex."""
    hashes = [parse_hashes({"sha1": shasum or ""})]
    for part in (integrity or "")[:TEXT_CHARS_MAX].split():
        algorithm, _, digest = part.partition("?")[0].partition("-")
        try:
            hashes.append(parse_hashes({algorithm: b64decode(digest, validate=True).hex()}))
        except ValueError:
            continue
    return frozenset(f"{name}:{digest}" for known in hashes for name, digest in known.items())


# All escapes are matched in turn, so that the `u` after an escaped backslash begins none.
_ESCAPES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def replace_lone_surrogates(document: bytes) -> bytes:
    """`document` (JSON) with U+FFFD in place of each escape of half a character."""
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match["lone"] else match[0], document)
