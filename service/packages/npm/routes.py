"""npm's registry API for one organisation: documents, tarballs, and what else installs need."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Final

from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue

from analytics.model.ecosystems import Ecosystem
from service.core.errors import NotFound
from service.packages.install_tokens.authorization import InstallPrincipal
from service.packages.npm.audit_queries import QUERIES, is_short, public_query
from service.packages.npm.document import (
    NpmPackage,
    PackageVersion,
    file_name,
    find_file,
    releases_of,
    with_known,
    without_folder,
)
from service.packages.npm.ecosystem import NPM
from service.packages.npm.render import (
    ABBREVIATED,
    FULL,
    negotiate,
    render_abbreviated,
    render_full,
    render_manifest,
)
from service.packages.npm.tags import move_tags
from service.packages.policy.evaluation import PackagePolicy
from service.packages.proxy.file_keys import FileKey, KnownFile, parse_file_key
from service.packages.proxy.installs import Installer, OfferedFile, decided, serve_or_withdrawn
from service.packages.proxy.page_cache import RenderedPage, make_page
from service.packages.proxy.registries import PackageRegistry
from service.packages.proxy.services import ProxyServices
from service.packages.refusals import ECOSYSTEM_NOT_SERVED, PACKAGE_FILE_MISSING
from service.store.tables import Organisation
from service.web.dependencies import group_of
from service.web.responses import json_answer

_REGISTRY: Final = "/proxy/<slug>/npm"
_PASSED_ON: Final = "/-/npm/v1/"
QUERY_PATH: Final = f"{_PASSED_ON}security/"
"""Part of the paths of queries, whose bodies may be longer than others."""
_DIGESTS: Final = ("sha512", "sha256", "sha1")
"""Digests by which a file can be verified, the best first; old documents have only `sha1`."""

blueprint = Blueprint("proxy_npm", __name__)


@blueprint.get(f"{_REGISTRY}/-/ping")
async def ping(slug: str) -> ResponseReturnValue:
    """Answer `npm ping`."""
    services = group_of(ProxyServices)
    await services.authorize(request, slug)
    return json_answer({})


@blueprint.get(f"{_REGISTRY}/-/whoami")
async def whoami(slug: str) -> ResponseReturnValue:
    """Name the credential for `npm whoami`: the id of the API key."""
    services = group_of(ProxyServices)
    principal, _ = await services.authorize(request, slug)
    return json_answer({"username": principal.key_id})


@blueprint.get(f"{_REGISTRY}{_PASSED_ON}keys")
async def keys(slug: str) -> ResponseReturnValue:
    """The registry's signing keys, as the upstream publishes them."""
    services = group_of(ProxyServices)
    _, org = await services.authorize(request, slug)
    upstream = _public(services).upstream
    with await upstream.admit(org.id):
        document = await upstream.document("-/npm/v1/keys", FULL)
    return Response(b"" if document is None else document.body, content_type=FULL)


@blueprint.post(f"{_REGISTRY}{QUERY_PATH}<path:query>")
async def security(slug: str, query: str) -> ResponseReturnValue:
    """Pass a query of `npm audit` on, without first-party packages, and the answer back."""
    services = group_of(ProxyServices)
    _, org = await services.authorize(request, slug)
    if query not in QUERIES:
        raise NotFound
    upstream = _public(services).upstream
    asked, coding = await request.body, request.headers.get("content-encoding", "")
    # After the body has arrived, which a client can delay: a name may have become first-party.
    policy = await services.policies.current(org)
    work = (public_query, asked, coding, query, policy.first_party_patterns(Ecosystem.NPM))
    if is_short(asked, coding):
        body = public_query(*work[1:])
    else:
        body = await services.worker.compute(org.id, *work)
    with await upstream.admit(org.id):
        answer = await upstream.post(f"-/npm/v1/security/{query}", body, {"content-type": FULL})
    return Response(answer.body, content_type=FULL)


@blueprint.get(f"{_REGISTRY}/-/package/<path:name>/dist-tags")
async def dist_tags(slug: str, name: str) -> ResponseReturnValue:
    """Answer `npm dist-tag ls`: the versions that tags point at in the document."""
    services = group_of(ProxyServices)
    _, org = await services.authorize(request, slug)
    located = await services.locate(NPM, org, name)
    return json_answer(await located.judge(partial(_tags, located.policy, services.clock())))


@blueprint.get(f"{_REGISTRY}/<path:wanted>")
async def package(slug: str, wanted: str) -> ResponseReturnValue:
    """A document, the object of one version, or a tarball, depending on the path.

    Names may contain a slash, written as such or as `%2f`: `@scope/name`.
    """
    services = group_of(ProxyServices)
    principal, org = await services.authorize(request, slug)
    name, rest = _split(wanted)
    if name == "-":  # npm's endpoints other than packages, such as its search: not served
        raise PACKAGE_FILE_MISSING
    if rest.startswith("-/"):
        file = without_folder(rest.removeprefix("-/"))
        listed = partial(_file, services, org, principal, name, file)
        names = name, file.rpartition("/")[2]
        serve = partial(serve_or_withdrawn, services, org, principal, NPM, names, listed)
        return await decided(serve)
    if "/" in rest:
        raise NotFound
    return await _document(services, org, name, rest or None)


async def _document(
    services: ProxyServices, org: Organisation, name: str, version: str | None
) -> Response:
    located = await services.locate(NPM, org, name)
    form = FULL if version is not None else negotiate(request.headers.get("accept"))
    base = services.base(org.slug, Ecosystem.NPM)
    render = partial(
        _render,
        policy=located.policy,
        base=base,
        form=form,
        version=version,
        now=services.clock(),
    )
    return await services.page(located, form, (base, form, version), render)


async def _file(
    services: ProxyServices, org: Organisation, principal: InstallPrincipal, name: str, file: str
) -> Response:
    """A tarball, once its install is recorded, or a redirect to the reason for its refusal."""
    find = partial(find_file, file=file)
    located, listed = await services.find(NPM, org, name, find)
    registry, policy = located.registry, located.policy
    if listed is None:
        raise PACKAGE_FILE_MISSING
    offered = OfferedFile(
        located.artifact(file_name(policy.name, listed.version)),
        listed.release(policy.name),
        _key(listed),
        registry.identity,
        None,
        _sha256(listed),
        partial(registry.admit, listed.origin, listed.path, org.id),
        partial(registry.publisher, org=org.id),
    )
    return located.marked(await Installer(services, org, principal, policy).serve(offered))


def _public(services: ProxyServices) -> PackageRegistry[NpmPackage]:
    """The public registry. Raises ECOSYSTEM_NOT_SERVED."""
    public = services.of(NPM).public
    if public is None:
        raise ECOSYSTEM_NOT_SERVED(value=Ecosystem.NPM)
    return public


def _split(wanted: str) -> tuple[str, str]:
    """The package's name, and what follows it: a version, a tag, `-/` and a file, or nothing."""
    parts = wanted.split("/")
    length = 2 if wanted.startswith("@") else 1
    return "/".join(parts[:length]), "/".join(parts[length:])


def _render(
    document: NpmPackage,
    known: Mapping[str, KnownFile],
    policy: PackagePolicy,
    base: str,
    form: str,
    version: str | None,
    now: datetime,
) -> RenderedPage:
    """The document, or the object of one version. Raises PACKAGE_FILE_MISSING."""
    document = with_known(document, known)
    marks = _marks(document, policy, now)
    until = policy.next_change_at(
        (listed.published_at for listed in document.versions.values()), now
    )
    if version is not None:
        manifest = render_manifest(document, base, marks, version)
        if manifest is None:
            raise PACKAGE_FILE_MISSING
        return make_page([manifest], until)
    render = render_abbreviated if form == ABBREVIATED else render_full
    return make_page(render(document, base, marks), until)


def _tags(policy: PackagePolicy, now: datetime, document: NpmPackage) -> dict[str, str]:
    return dict(move_tags(document, _marks(document, policy, now)))


def _marks(document: NpmPackage, policy: PackagePolicy, now: datetime) -> dict[str, str]:
    """Why versions are marked as deprecated: those that are refused.

    Also if none is left, unlike on PyPI: clients install a deprecated version if there is no other,
    and pnpm 10, yarn 1 and bun print the reason nowhere else.
    """
    marks = {}
    policy = policy.among(releases_of(document), now)
    for listed in document.versions.values():
        decision = policy.decide(listed.release(document.name), now)
        if decision.is_refused:
            marks[listed.version] = decision.reason
    return marks


def _key(listed: PackageVersion) -> FileKey:
    """The digest to verify the file by. Raises PACKAGE_FILE_MISSING if it has none."""
    for algorithm in _DIGESTS:
        for digest in sorted(listed.digests):
            if digest.startswith(f"{algorithm}:"):
                return parse_file_key(digest)
    raise PACKAGE_FILE_MISSING


def _sha256(listed: PackageVersion) -> str | None:
    digests = (digest.partition(":") for digest in listed.digests)
    return next((value for algorithm, _, value in digests if algorithm == "sha256"), None)
