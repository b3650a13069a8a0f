"""PyPI: its names, versions, documents and clients."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from analytics.model.ecosystems import Ecosystem
from service.packages.ecosystem import EcosystemFacts, InvalidPackageName, Notation
from service.packages.proxy.answers import RegistryDocument
from service.packages.proxy.documents import Codec, DocumentInvalid
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
from service.packages.sigstore_bundles import FORGES, Identity, Statement, attested

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SEPARATORS: Final = re.compile(r"[-_.]+")

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
        encode=encode_project,
        decode=decode_project,
        release=release_project,
        listed=listed_files,
    )


_WORKFLOW: Final = {"GitHub": "workflow", "GitLab": "workflow_filepath"}
"""The member of a publisher that names its own."""


def _publisher(provenance: Any) -> str:  # noqa: ANN401 - any JSON
    """Kind, repository and workflow of PEP 740's first publisher."""
    said = provenance["attestation_bundles"][0]["publisher"]
    # That which is verified, and not one that a registry adds under the other name.
    workflow = said.get(_WORKFLOW.get(said["kind"], "workflow")) or ""
    return f"{said['kind']} {said['repository']} {workflow}".rstrip()


def _bundles(body: bytes) -> tuple[Identity, Iterable[Any]]:
    """PEP 740's first publisher, and its attestations."""
    from pypi_attestations import Provenance

    bundle = Provenance.model_validate_json(body).attestation_bundles[0]
    publisher: Any = bundle.publisher
    forge = FORGES[publisher.kind]
    repository = f"{forge.address}/{publisher.repository}"
    # Of the branch or tag behind it, a publisher says nothing.
    workflow = f"{repository}{forge.workflows}{getattr(publisher, _WORKFLOW[publisher.kind])}@"
    identity = Identity(forge.issuer, repository, workflow)
    return identity, (each.to_bundle() for each in bundle.attestations)


def _subjects(statement: Statement) -> Iterable[str]:
    return [f"sha256:{each.digest['sha256']}" for each in statement.subject]


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
    attested=partial(attested, _bundles, _subjects),
    releases=releases_of,
    address=index_url,
    clients=(PIP, UV, POETRY, PDM),
)
