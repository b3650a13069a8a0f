"""npm's registry API for one organisation: documents, tarballs, and what installs need beside."""

from datetime import datetime
from functools import partial
from typing import Final

from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue

from service.errors import EcosystemNotServed, PackageFileMissing
from service.packages.ecosystems import Ecosystem
from service.packages.names import InvalidPackageName, canonical_name
from service.packages.release import Release
from service.policy.evaluation import PackagePolicy
from service.proxy.file_answer import file_answer
from service.proxy.file_keys import FileKey, parse_file_key
from service.proxy.installs import refuse_or_record
from service.proxy.npm.document import Package, PackageVersion, find_file
from service.proxy.npm.render import (
    ABBREVIATED,
    FULL,
    negotiate,
    render_abbreviated,
    render_full,
    render_manifest,
)
from service.proxy.page_cache import page_answer
from service.proxy.services import ProxyServices, package_registry
from service.store.tables import Organisation
from service.web.dependencies import receives
from service.web.responses import json_answer

_REGISTRY: Final = "/proxy/<slug>/npm"
_PASSED_ON: Final = "/-/npm/v1/"
_QUERY_BYTES_MAX: Final = 2**20
_QUERY_HEADERS: Final = ("content-type", "content-encoding")
_DIGESTS: Final = ("sha512", "sha256", "sha1")
"""Digests that a file can be verified by, the best one first; old documents have `sha1` alone."""

blueprint = Blueprint("proxy_npm", __name__)


@blueprint.get(f"{_REGISTRY}/-/ping")
@receives(ProxyServices)
async def ping(services: ProxyServices, slug: str) -> ResponseReturnValue:
    """Answer `npm ping`."""
    await services.authorize(request, slug)
    return json_answer({})


@blueprint.get(f"{_REGISTRY}/-/whoami")
@receives(ProxyServices)
async def whoami(services: ProxyServices, slug: str) -> ResponseReturnValue:
    """Name the credential for `npm whoami`: the id of the API key."""
    principal, _ = await services.authorize(request, slug)
    return json_answer({"username": principal.key_id})


@blueprint.get(f"{_REGISTRY}{_PASSED_ON}keys")
@receives(ProxyServices)
async def keys(services: ProxyServices, slug: str) -> ResponseReturnValue:
    """The registry's signing keys, as the upstream has them."""
    await services.authorize(request, slug)
    if services.npm is None:
        raise EcosystemNotServed(value=Ecosystem.NPM)
    document = await services.npm.upstream.document("-/npm/v1/keys", FULL)
    return Response(b"" if document is None else document.body, content_type=FULL)


@blueprint.post(f"{_REGISTRY}{_PASSED_ON}security/<path:query>")
@receives(ProxyServices)
async def security(services: ProxyServices, slug: str, query: str) -> ResponseReturnValue:
    """Pass a query of `npm audit` on to the upstream, and its answer back."""
    await services.authorize(request, slug)
    if services.npm is None or query not in {"advisories/bulk", "audits", "audits/quick"}:
        raise EcosystemNotServed(value=Ecosystem.NPM)
    body = await request.body
    headers = {name: request.headers[name] for name in _QUERY_HEADERS if name in request.headers}
    answer = await services.npm.upstream.post(f"-/npm/v1/security/{query}", body, headers)
    return Response(answer.body, content_type=FULL)


@blueprint.get(f"{_REGISTRY}/<path:wanted>")
@receives(ProxyServices)
async def package(services: ProxyServices, slug: str, wanted: str) -> ResponseReturnValue:
    """A document, the object of one version, or a tarball, told apart by the path.

    Names may hold a slash, written as such or as `%2f`: `@scope/name`.
    """
    name, rest = _split(wanted)
    if rest.startswith("-/"):
        return await _file(services, slug, name, rest.removeprefix("-/"))
    _, org = await services.authorize(request, slug)
    return await _document(services, org, await _policy(services, org, name), rest or None)


async def _document(
    services: ProxyServices, org: Organisation, policy: PackagePolicy, version: str | None
) -> Response:
    registry = package_registry(services, policy)
    document = await registry.documents.get(policy.name)
    form = FULL if version is not None else negotiate(request.headers.get("accept"))
    base = services.base(org.slug, Ecosystem.NPM)
    url = registry.upstream.registry.url
    page = await services.pages.get(
        (url, policy.name, document.version, policy.version, base, form, version),
        len(document.value.versions),
        partial(_render, document.value, policy, base, form, version, services.clock()),
    )
    return page_answer(request, page, form)


async def _file(services: ProxyServices, slug: str, name: str, file: str) -> Response:
    """A tarball, once its install is recorded, or a redirect to why it is refused."""
    principal, org = await services.authorize(request, slug)
    policy = await _policy(services, org, name)
    registry = package_registry(services, policy)
    listed = find_file((await registry.documents.get(policy.name)).value, file)
    if listed is None:
        raise PackageFileMissing
    key = _key(listed)
    release = _release(policy, listed)
    refusal = await refuse_or_record(services, org, principal, policy, release, str(key))
    if refusal is not None:
        return refusal
    fetch = partial(registry.upstream.file, registry.file_url(listed.origin, listed.path))
    return await file_answer(request, services.files, key, None, fetch)


async def _policy(services: ProxyServices, org: Organisation, name: str) -> PackagePolicy:
    try:
        canonical = canonical_name(Ecosystem.NPM, name)
    except InvalidPackageName as error:
        raise PackageFileMissing from error
    return await services.policies.of(org, Ecosystem.NPM, canonical)


def _split(wanted: str) -> tuple[str, str]:
    """The package's name, and what follows it: a version, a tag, `-/` and a file, or nothing."""
    parts = wanted.split("/")
    length = 2 if wanted.startswith("@") else 1
    return "/".join(parts[:length]), "/".join(parts[length:])


def _render(
    document: Package,
    policy: PackagePolicy,
    base: str,
    form: str,
    version: str | None,
    now: datetime,
) -> tuple[bytes, datetime | None]:
    """The document, or the object of one version, and until when it is true."""
    marks = {}
    for listed in document.versions.values():
        decision = policy.decide(_release(policy, listed), now)
        if decision.is_refused:
            marks[listed.version] = decision.reason
    until = policy.next_change_at(
        (listed.published_at for listed in document.versions.values()), now
    )
    if version is not None:
        manifest = render_manifest(document, base, marks, version)
        if manifest is None:
            raise PackageFileMissing
        return manifest, until
    render = render_abbreviated if form == ABBREVIATED else render_full
    return render(document, base, marks), until


def _release(policy: PackagePolicy, listed: PackageVersion) -> Release:
    return Release(Ecosystem.NPM, policy.name, listed.version, listed.published_at, listed.digests)


def _key(listed: PackageVersion) -> FileKey:
    """The digest to verify the file by. Raises PackageFileMissing: without it nothing is served."""
    for algorithm in _DIGESTS:
        for digest in sorted(listed.digests):
            if digest.startswith(f"{algorithm}:"):
                return parse_file_key(digest)
    raise PackageFileMissing
