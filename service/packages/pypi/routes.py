"""PyPI's simple repository API for one organisation: pages of projects, files, metadata."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Final

from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue

from analytics.model.ecosystems import Ecosystem
from service.packages.install_tokens.authorization import InstallPrincipal
from service.packages.policy.evaluation import PackagePolicy
from service.packages.proxy.disk_cache import OpenedFile
from service.packages.proxy.file_answer import file_answer
from service.packages.proxy.file_keys import FileKey, KnownFile, parse_file_key
from service.packages.proxy.installs import Installer, OfferedFile, decided, serve_or_withdrawn
from service.packages.proxy.page_cache import RenderedPage, make_page
from service.packages.proxy.registries import PackageRegistry
from service.packages.proxy.services import ProxyServices
from service.packages.pypi.ecosystem import PYPI
from service.packages.pypi.filenames import DistributionKind, parse_filename
from service.packages.pypi.metadata import MetadataUnavailable, extract_metadata
from service.packages.pypi.project import (
    METADATA_SUFFIX,
    ProjectFile,
    PypiProject,
    as_served_before,
    find_file,
    releases_of,
    with_known,
)
from service.packages.pypi.render import PageFormat, negotiate, render_html, render_json
from service.packages.refusals import NO_ACCEPTABLE_FORM, PACKAGE_FILE_MISSING
from service.store.tables import Organisation
from service.web.dependencies import group_of

_INDEX: Final = "/proxy/<slug>/pypi"
_DIGESTS: Final = ("sha256", "sha512")
"""Digests by which a file can be verified, the preferred one first. Others prove nothing today."""

blueprint = Blueprint("proxy_pypi", __name__)


@blueprint.get(f"{_INDEX}/simple", strict_slashes=False)
@blueprint.get(f"{_INDEX}/simple/")
async def root(slug: str) -> ResponseReturnValue:
    """The list of projects, which is empty."""
    services = group_of(ProxyServices)
    await services.authorize(request, slug)
    page_format = _page_format()
    return Response(render_root(page_format), content_type=_content_type(page_format))


@blueprint.get(f"{_INDEX}/simple/<name>", strict_slashes=False)
@blueprint.get(f"{_INDEX}/simple/<name>/")
async def project_page(slug: str, name: str) -> ResponseReturnValue:
    """The files of a project; those that would be refused are marked as yanked."""
    services = group_of(ProxyServices)
    _, org = await services.authorize(request, slug)
    page_format = _page_format()
    located = await services.locate(PYPI, org, name)
    base = services.base(slug, Ecosystem.PYPI)
    render = partial(
        _render, policy=located.policy, base=base, page_format=page_format, now=services.clock()
    )
    return await services.page(located, _content_type(page_format), (base, page_format), render)


@blueprint.get(f"{_INDEX}/files/<origin>/<path:path>")
async def file(slug: str, origin: str, path: str) -> ResponseReturnValue:
    """A file, once its install is recorded, or a redirect to the reason for its refusal."""
    services = group_of(ProxyServices)
    principal, org = await services.authorize(request, slug)
    distribution = parse_filename(path.removesuffix(METADATA_SUFFIX).rpartition("/")[2])
    if distribution is None:
        raise PACKAGE_FILE_MISSING
    names = distribution.project, path.rpartition("/")[2]
    listed = partial(_file, services, org, principal, names[0], origin, path)
    return await decided(partial(serve_or_withdrawn, services, org, principal, PYPI, names, listed))


async def _file(
    services: ProxyServices,
    org: Organisation,
    principal: InstallPrincipal,
    project: str,
    origin: str,
    path: str,
) -> Response:
    wanted = path.removesuffix(METADATA_SUFFIX)
    find = partial(find_file, origin=origin, path=f"/{wanted}")
    located, (listed, is_there) = await services.find(PYPI, org, project, find)
    registry, policy = located.registry, located.policy
    if listed is None:
        raise PACKAGE_FILE_MISSING
    before = await services.artifacts.find(located.artifact(listed.filename))
    is_changed = before is not None and not before.is_same(listed.digests)
    # Lock files have the address of the file that was served before.
    if not (is_there or is_changed):
        raise PACKAGE_FILE_MISSING
    if wanted != path:
        if before is not None and is_changed:
            listed = as_served_before(listed, before)
        return await _metadata(services, org, registry, policy, listed)
    offered = OfferedFile(
        located.artifact(listed.filename),
        listed.release(policy.name),
        _key(listed),
        registry.identity,
        listed.size,
        listed.hashes.get("sha256"),
        partial(registry.admit, listed.origin, listed.path, org.id),
        partial(registry.publisher, org=org.id),
    )
    return located.marked(await Installer(services, org, principal, policy).serve(offered))


async def _metadata(
    services: ProxyServices,
    org: Organisation,
    registry: PackageRegistry[PypiProject],
    policy: PackagePolicy,
    listed: ProjectFile,
) -> Response:
    """The metadata of a wheel: upstream's, or extracted from the wheel. Records no install."""
    digest = (listed.metadata_hashes or {}).get("sha256")
    if digest is not None:
        path = f"{listed.path}{METADATA_SUFFIX}"
        admit = partial(registry.admit, listed.origin, path, org.id)
        key = FileKey("sha256", digest).at(registry.identity)
        return await file_answer(request, services.files, key, None, admit)
    if listed.kind is not DistributionKind.WHEEL:
        raise PACKAGE_FILE_MISSING
    admit = partial(registry.admit, listed.origin, listed.path, org.id)
    opened = await services.files.open(_key(listed).at(registry.identity), listed.size, admit)
    wheel = opened if isinstance(opened, OpenedFile) else await opened.complete()
    try:
        extract = partial(extract_metadata, name=policy.name, version=listed.version)
        metadata = await wheel.compute(extract)
    except MetadataUnavailable as error:
        raise PACKAGE_FILE_MISSING from error
    finally:
        await wheel.close()
    answer = Response(metadata, content_type="application/octet-stream")
    answer.headers["cache-control"] = "private, no-cache"
    return answer


def _render(
    project: PypiProject,
    known: Mapping[str, KnownFile],
    policy: PackagePolicy,
    base: str,
    page_format: PageFormat,
    now: datetime,
) -> RenderedPage:
    project = with_known(project, known)
    render = render_json if page_format.is_json else render_html
    until = policy.next_change_at((listed.published_at for listed in project.files), now)
    return make_page(render(project, base, _marks(project, policy, now)), until)


def _marks(project: PypiProject, policy: PackagePolicy, now: datetime) -> dict[str, str]:
    """Why files are marked as yanked, by file name: those that are refused, if others are left.

    Clients that find only yanked files say that there is no version, and request none. Unmarked,
    one is requested: its refusal is recorded and gives the reason.
    """
    marks = {}
    is_any_left = False
    policy = policy.among(releases_of(project), now)
    for listed in project.files:
        decision = policy.decide(listed.release(project.name), now)
        if decision.is_refused:
            marks[listed.filename] = decision.reason
        elif listed.yanked is False:
            is_any_left = True
    return marks if is_any_left else {}


def _key(listed: ProjectFile) -> FileKey:
    """The digest to verify the file by. Raises PACKAGE_FILE_MISSING if it has none."""
    for algorithm in _DIGESTS:
        if algorithm in listed.hashes:
            return parse_file_key(f"{algorithm}:{listed.hashes[algorithm]}")
    raise PACKAGE_FILE_MISSING


def _page_format() -> PageFormat:
    page_format = negotiate(request.headers.get("accept"))
    if page_format is None:
        raise NO_ACCEPTABLE_FORM
    return page_format


def _content_type(page_format: PageFormat) -> str:
    return page_format.value if page_format.is_json else f"{page_format.value}; charset=utf-8"


_JSON: Final = b'{"meta":{"api-version":"1.0"},"projects":[]}'
_HTML: Final = (
    b'<!DOCTYPE html>\n<html>\n<head>\n<meta name="pypi:repository-version" content="1.0">\n'
    b"<title>Simple index</title>\n</head>\n<body>\n"
    b"<p>This index has no list of projects. Request a project by its name.</p>\n"
    b"</body>\n</html>\n"
)


def render_root(page_format: PageFormat) -> bytes:
    """A valid list without projects."""
    return _JSON if page_format.is_json else _HTML
