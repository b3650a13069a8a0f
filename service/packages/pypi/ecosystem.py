"""PyPI: its names, versions, documents and clients."""

import re
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final

import msgspec

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import EcosystemFacts, InvalidPackageName, Notation
from service.packages.proxy.answers import RegistryDocument
from service.packages.proxy.documents import Codec, DocumentInvalid, decode_untrusted
from service.packages.proxy.origins import Origins
from service.packages.pypi.clients import PDM, PIP, POETRY, UV, index_url
from service.packages.pypi.filenames import parse_filename
from service.packages.pypi.html import parse_html
from service.packages.pypi.listing import listed_files, parse_json
from service.packages.pypi.project import (
    PypiProject,
    decode_project,
    encode_project,
    is_empty_project,
    release_project,
    releases_of,
)
from service.packages.pypi.versions import parse_pypi_range, parse_pypi_version, pypi_spellings

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SEPARATORS: Final = re.compile(r"[-_.]+")

_ATTESTED_MAX: Final = 8
_SIGSTORE: Final = "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"


class _Subject(msgspec.Struct):
    digest: dict[str, str]


class _Statement(msgspec.Struct):
    """An in-toto statement, as far as it is read."""

    subject: list[_Subject]


_STATEMENT: Final = msgspec.json.Decoder(_Statement)
_SPECIFIER: Final = r"(?:={2,3}|[~!<>]=|[<>])\s*[^\s,;)\\#]+"


def _folded(text: str) -> str:
    """`text` in lower case, with runs of `-`, `_` and `.` as one hyphen (PEP 503)."""
    return _SEPARATORS.sub("-", text).lower()


def _canonical_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidPackageName(
            "a PyPI name has letters, digits and inner '-', '_' and '.' (PEP 508)"
        )
    return _folded(name)


def _names(text: str) -> tuple[str]:
    return (_canonical_name(text),)


def _file(text: str) -> tuple[str, str] | None:
    distribution = parse_filename(text)
    return None if distribution is None else (distribution.project, distribution.version)


def _parse(document: RegistryDocument, name: str, origins: Origins) -> PypiProject:
    media_type = document.content_type.partition(";")[0].strip().lower()
    if media_type.endswith("json"):
        return parse_json(document.body, name, document.url, origins)
    if media_type and "html" not in media_type:
        raise DocumentInvalid("page is neither JSON nor HTML by its content type")
    return parse_html(document.body, name, document.url, origins)


def _path(name: str) -> str:
    return f"{name}/"


def _codec(origins: Origins) -> Codec[PypiProject]:
    return Codec(
        accept="application/vnd.pypi.simple.v1+json, text/html;q=0.5",
        path=_path,
        parse=partial(_parse, origins=origins),
        is_empty=is_empty_project,
        invalid=DocumentInvalid,
        encode=encode_project,
        decode=decode_project,
        release=release_project,
        listed=listed_files,
    )


_FORGES: Final = {
    "GitHub": (
        "https://token.actions.githubusercontent.com",
        "https://github.com",
        "/.github/workflows/",
        "workflow",
    ),
    "GitLab": ("https://gitlab.com", "https://gitlab.com", "//", "workflow_filepath"),
}
"""Issuer, address, the folder of workflows, and the member of a publisher that names its own."""

_BUILD_CONFIG: Final = "1.3.6.1.4.1.57264.1.18"
"""The extension of Fulcio's certificates that names the workflow, and of which ref it is."""

_LONG: Final = 0x81
"""In DER, the length is in one more byte."""


def _publisher(provenance: Any) -> str:  # noqa: ANN401 - any JSON
    """Kind, repository and workflow of PEP 740's first publisher."""
    said = provenance["attestation_bundles"][0]["publisher"]
    # That which is verified, and not one that a registry adds under the other name.
    workflow = said.get("workflow_filepath" if said["kind"] == "GitLab" else "workflow") or ""
    return f"{said['kind']} {said['repository']} {workflow}".rstrip()


def _attested(body: bytes) -> list[str]:
    """The files of which PEP 740's first publisher is proved; none without the extra `sigstore`.

    Of each attestation certificate, signature, entry in the log and identity are verified, offline.
    """
    try:
        # Half a second and 30 MB, so only the process that parses attestations imports it.
        from pypi_attestations import Provenance
    except ImportError:
        return []
    try:
        bundle = Provenance.model_validate_json(body).attestation_bundles[0]
        policy = _Identity(bundle.publisher)
        attested = bundle.attestations[:_ATTESTED_MAX]
        statements = [_verifier().verify_dsse(each.to_bundle(), policy)[1] for each in attested]
        said = [decode_untrusted(_STATEMENT.decode, each) for each in statements]
        return [f"sha256:{each.digest['sha256']}" for one in said for each in one.subject]
    except Exception:  # hostile JSON in libraries of others: nothing is proved
        return []


class _Identity:
    """A policy of sigstore: whose certificate it must be.

    That of pypi-attestations cannot be had without a trusted root of the home directory.
    """

    def __init__(self, publisher: Any) -> None:  # noqa: ANN401 - of the extra
        """Raises KeyError unless it is a publisher of GitHub or GitLab."""
        self._issuer, host, folder, member = _FORGES[publisher.kind]
        self._repository = f"{host}/{publisher.repository}"
        # Of the branch or tag behind it, a publisher says nothing.
        self._workflow = f"{self._repository}{folder}{getattr(publisher, member)}@"

    def verify(self, certificate: Any) -> None:  # noqa: ANN401 - of the extra
        """Raise an error if it is another's."""
        from cryptography.x509 import ObjectIdentifier
        from sigstore.verify.policy import AllOf, OIDCIssuerV2, OIDCSourceRepositoryURI

        AllOf([OIDCIssuerV2(self._issuer), OIDCSourceRepositoryURI(self._repository)]).verify(
            certificate
        )
        extension = certificate.extensions.get_extension_for_oid(ObjectIdentifier(_BUILD_CONFIG))
        encoded = extension.value.public_bytes()  # a UTF8String in DER
        if not encoded[3 if encoded[1] == _LONG else 2 :].startswith(self._workflow.encode()):
            raise ValueError("another workflow")


@cache
def _verifier() -> Any:  # noqa: ANN401 - of the extra
    """With the trusted root that the package has; not the one that any program may update."""
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    root = files("sigstore._store") / _SIGSTORE / "trusted_root.json"
    return Verifier(trusted_root=TrustedRoot.from_file(str(root)))


PYPI: Final = EcosystemFacts(
    ecosystem=Ecosystem.PYPI,
    label="PyPI",
    osv_name="pypi",
    canonical_name=_canonical_name,
    piece=re.compile(r"[A-Za-z0-9._-]*"),
    folded=_folded,
    parse_version=parse_pypi_version,
    parse_range=parse_pypi_range,
    specifier=re.compile(r"(?P<name>[^\[=@\s]+)\s*(?:\[[^\]]*\]\s*)?={2,3}\s*(?P<version>.+)"),
    example="requests==2.32.3",
    notation=Notation(
        names=_names,
        versions=pypi_spellings,
        page=re.compile(
            r"(?:test\.)?pypi\.(?:python\.)?org/(?:project|simple|pypi)/(?P<name>[^/]+)"
            r"(?:/(?P<version>[0-9v][^/]*))?(?:/json)?/?"
        ),
        file=_file,
        requirement=re.compile(
            r"(?P<name>[A-Za-z0-9._-]+)\s*(?:\[[^\]]*\]\s*)?(?:\(\s*)?"
            rf"(?P<version>(?=[=~!]){_SPECIFIER}(?:\s*,\s*{_SPECIFIER})*)\s*\)?,?"
        ),
        aliases=("pip",),
    ),
    codec=_codec,
    publisher=_publisher,
    attested=_attested,
    releases=releases_of,
    address=index_url,
    clients=(PIP, UV, POETRY, PDM),
)
