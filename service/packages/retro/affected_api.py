"""The endpoint for past installs that an advisory or a deny rule would have blocked."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from analytics.export.wire import json_objects
from analytics.model.ecosystems import Ecosystem
from analytics.model.policy_envelopes import InstallsMatched
from service.access.roles import Capability
from service.audit.refusals import QUERY_REFUSALS
from service.audit.row_models import AuditEntry
from service.audit.services import AuditServices
from service.audit.tenant_log import open_log
from service.core.errors import NOT_STORABLE_TEXT
from service.core.threads import in_thread
from service.packages.policy.blocklist_contents import own_id
from service.packages.policy.evaluation import CompiledPolicy
from service.packages.policy.model import InstallPolicy
from service.packages.policy.repository import find_in_force, list_advisories_named
from service.packages.proxy.artifacts import load_withdrawn
from service.packages.proxy.services import ProxyServices
from service.packages.retro.affected import (
    Book,
    InstalledFile,
    Package,
    Suspects,
    advisory_book,
    count_affected,
    find_affected,
    newest_affected,
    rule_book,
    withdrawn_book,
)
from service.packages.retro.matcher import load_deny_rules
from service.web.dependencies import group_of
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer

ROWS_MAX: Final = 100

resource = Resource("affected", "/affected", Tag.POLICY, AuditServices)


class AffectedFile(Struct, kw_only=True):
    """A file that was installed, and whether the proxy has it still."""

    ecosystem: str
    package: str
    version: str | None
    sha256: str | None
    is_cached: bool


class AffectedInstalls(Answer):
    """Installs that a rule would have blocked: in all, their files, and the newest rows.

    If not `is_in_force`, no advisory, deny rule or withdrawn release has this id now.
    """

    org: str
    is_in_force: bool
    affected: list[InstallsMatched]
    files: Annotated[list[AffectedFile], Meta(max_length=ROWS_MAX)]
    entries: Annotated[list[AuditEntry], Meta(max_length=ROWS_MAX)]


@resource.get(
    "find_affected_installs",
    "/<path:rule_id>",
    needs=Capability.AUDIT_READ,
    returns=AffectedInstalls,
    refuses=QUERY_REFUSALS,
)
async def show(call: Call[AuditServices], rule_id: str) -> AffectedInstalls:
    """Find the installs that an advisory (by id or alias) or a deny rule would have blocked.

    Or of a withdrawn release, `withdrawn:npm:left-pad@1.0.0`. They are looked up now.
    """
    if "\0" in rule_id:  # SQLite would find no such id, and PostgreSQL refuses it
        raise NOT_STORABLE_TEXT
    store, org = call.services.store, call.org
    in_force = await store.read_at_once(lambda transaction: find_in_force(transaction, org.id))
    async with call.read() as session:
        stored = await list_advisories_named(session, [rule_id], 10_000)
    deny = await load_deny_rules(store, org.id, in_force.revision)
    rules = tuple(rule for rule in deny if rule.rule_id == rule_id)
    policy = CompiledPolicy(InstallPolicy(deny=rules))
    load_named = partial(load_withdrawn, until=call.services.clock(), rule_id=rule_id)
    withdrawn = await store.read_at_once(load_named)

    async def load(packages: Sequence[Package]) -> tuple[Book, Book]:
        own = {p: [(own_id(id_), spec) for id_, spec in stored.get(p, ())] for p in packages}
        advised, ruled = await in_thread(lambda: (advisory_book(own), rule_book(rules, packages)))
        books = advised, ruled, withdrawn_book(withdrawn)
        return {p: [each for book in books for each in book.get(p, ())] for p in packages}, {}

    known = stored.keys() | withdrawn.keys()
    named = (lambda p: p in known or bool(policy.on(*p).deny)) if rules else known
    log = await open_log(store, call.services.lake, org, call.services.clock())
    found = await find_affected(log, Suspects(named, load))
    rows = json_objects(await newest_affected(log, found, ROWS_MAX), org.id) if found else ()
    return AffectedInstalls(
        org=org.slug,
        # Not of withdrawn releases that only others installed: it would tell that they did.
        is_in_force=bool(stored or rules or found),
        affected=count_affected(found, in_force),
        files=[await _file(org.slug, file) for file in found[:ROWS_MAX]],
        entries=[msgspec.json.decode(row, type=AuditEntry) for row in rows],
    )


async def _file(slug: str, found: InstalledFile) -> AffectedFile:
    ecosystem, name, version, sha256, *_ = found.values()
    proxy, is_cached = group_of(ProxyServices), False
    for registry in proxy.registries[Ecosystem(ecosystem)].all():
        known = await proxy.artifacts.of_package(ecosystem, registry.artifacts_url, name)
        for file in known.values() if slug in (registry.orgs or {slug}) else ():
            if file.version == version and (file.sha256 or sha256) == (sha256 or file.sha256):
                is_cached |= await proxy.files.has(file.key.at(registry.identity))
    return AffectedFile(
        ecosystem=ecosystem, package=name, version=version, sha256=sha256, is_cached=is_cached
    )
