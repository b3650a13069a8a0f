"""Which file was first served under each name: what a registry offers later must be the same.

Only the operator can accept another one, by the endpoints that are declared here.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, cast

from msgspec import Meta
from sqlalchemy import (
    ColumnElement,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.ecosystems import Ecosystem
from analytics.model.policy_envelopes import ArtifactAccepted
from analytics.model.rows import AuditContext
from service.core.errors import Conflict, NotFound, StoreUnavailable
from service.core.text_rules import is_encodable, printable
from service.packages.proxy.file_keys import FileKey, KnownFile, parse_file_key
from service.packages.refusals import UpstreamFailed
from service.store.organisations import list_orgs
from service.store.store import Store, SyncUnitOfWork, UnitOfWork
from service.store.tables import Artifact
from service.store.transaction import Transaction
from service.web.dependencies import BaseServices
from service.web.models import Answer, Request, TimestampMs
from service.web.operator_endpoint import OperatorCall, OperatorResource, OperatorWriteCall

ARTIFACT_NOT_OFFERED: Final = NotFound.of(
    "no registry offers {value} with this digest: see `countersign artifact list`",
    value="left-pad-1.3.0.tgz",
)
ARTIFACT_AMBIGUOUS: Final = Conflict.of(
    "several registries offer {value} with this digest: name one with --registry",
    value="left-pad-1.3.0.tgz",
)

KEPT: Final = timedelta(days=730)
"""How long a file is remembered after the last install of it."""

ARTIFACTS_MAX: Final = 1_000_000
"""How many files are remembered, some 400 MB; beyond that, each registry has an equal share.

The files of one organisation's own registry must not push out what is known of others' files: one
that is forgotten may be replaced unnoticed.
"""

LISTED_MAX: Final = 1_000

SETTLED: Final = timedelta(minutes=10)
"""How long after a document lacked a file another one must lack it, until it counts as withdrawn:
a network that delivers the registry's documents may have an older one, in which it is not yet."""

ASKED_FOR: Final = timedelta(days=2)
"""For how long a registry is asked for such a package though no client asks."""

_COMMITTED_AFTER: Final = timedelta(minutes=1)
"""A file that was served at an instant is stored by then."""
_SERVED_STEP: Final = timedelta(days=1)

# On the table rather than the mapped class: no objects are needed.
_ARTIFACTS: Final = cast("Table", Artifact.__table__)
_C: Final = _ARTIFACTS.c
_IS_IT: Final = (
    (_C.ecosystem == bindparam("of_ecosystem"))
    & (_C.registry_url == bindparam("of_registry_url"))
    & (_C.package == bindparam("of_package"))
)
_IS_FILE: Final = _IS_IT & (_C.file_name == bindparam("of_file_name"))
# Nodes of an earlier state note the withdrawal alone.
_MISSED_AT: Final = func.coalesce(_C.missed_at, _C.withdrawn_at)
_GONE_AT: Final = case((_C.withdrawn_at.is_not(None), _MISSED_AT))
_KNOWN: Final = (_C.version, _C.digest, _C.sha256, _C.published_at, _GONE_AT)
_FIND: Final = select(*_KNOWN, _C.served_at, _C.offered_digest).where(_IS_FILE)
_LIST: Final = select(_C.file_name, *_KNOWN).where(_IS_IT)
_ADD: Final = insert(_ARTIFACTS)
_UPDATE: Final = (
    update(_ARTIFACTS)
    .where(_IS_FILE)
    .values(
        sha256=bindparam("new_sha256"),
        published_at=bindparam("new_published_at"),
        served_at=bindparam("new_served_at"),
    )
)
_OFFERED: Final = (
    update(_ARTIFACTS)
    .where(_IS_FILE)
    .values(offered_digest=bindparam("new_offered"), offered_at=bindparam("new_offered_at"))
)
_MISSING: Final = select(_C.file_name, _MISSED_AT, _C.withdrawn_at, _C.served_at).where(
    _IS_IT & (_MISSED_AT.is_not(None) | (_C.served_at > bindparam("since")))
)
_MISS: Final = (
    update(_ARTIFACTS)
    .where(_IS_FILE)
    .values(
        missed_at=bindparam("new_missed_at"),
        withdrawn_at=bindparam("new_withdrawn_at"),
        served_at=bindparam("new_served_at"),
    )
)
_MISSED: Final = (
    select(_C.ecosystem, _C.package)
    .where(_C.missed_at.between(bindparam("after"), bindparam("until")), _C.withdrawn_at.is_(None))
    .distinct()
)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_RULE_ID: Final = literal("withdrawn:") + _C.ecosystem + ":" + _C.package + "@" + _C.version
_WITHDRAWN: Final = select(_C.ecosystem, _C.package, _RULE_ID, _C.version, _C.sha256).where(
    _C.withdrawn_at > bindparam("after"), _C.withdrawn_at <= bindparam("until")
)
_NAMED: Final = _WITHDRAWN.where(bindparam("rule_id") == _RULE_ID)
_LAST_ACCEPTED: Final = select(func.max(_C.accepted_at))


class ArtifactName(NamedTuple):
    """The name of a file in a registry, whose URL has no credentials."""

    ecosystem: Ecosystem
    registry_url: str
    package: str
    file_name: str

    @property
    def bound(self) -> dict[str, str]:
        """The parameters of the statements."""
        return {f"of_{name}": str(value) for name, value in self._asdict().items()}


_Missing = Sequence[Sequence[Any]]
"""Names of files, since when documents lack them, since when they count as withdrawn, and when they
were served."""


class WithdrawnFile(NamedTuple):
    """A file that its registry lists no more. Its release has an id as an advisory or a rule."""

    rule_id: str
    version: str
    sha256: str | None


class Artifacts:
    """The files that were served before, in any process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, name: ArtifactName) -> KnownFile | None:
        """The file that was first served under `name`, as of now or later."""
        return await self._store.cached_at_once(
            ("artifact", name), partial(find_artifact, name=name)
        )

    async def of_package(
        self, ecosystem: Ecosystem, registry_url: str, package: str
    ) -> Mapping[str, KnownFile]:
        """The files of a package that were served before, by name."""
        bound = ArtifactName(ecosystem, registry_url, package, "").bound

        def load(transaction: Transaction) -> dict[str, KnownFile]:
            return {name: _known(*rest) for name, *rest in transaction.rows(_LIST, bound)}

        return await self._store.read_at_once(load)

    async def compare(
        self,
        ecosystem: Ecosystem,
        registry_url: str,
        package: str,
        listing: Callable[[], Awaitable[Collection[str] | None]] | None,
        since: datetime | None,
        is_certain: bool = True,
    ) -> None:
        """Note which files of a package its registry lists no more, and which it lists again.

        `listing` reads the names of all files that are listed; None if others may be, too. Without
        it, none is. `since` is when the document was compared last: files that were served before
        are known to be in it, unless they are missed. Unless it `is_certain`, what is missed does
        not count as withdrawn yet. Raises UpstreamFailed if it cannot be noted.
        """
        after = _EPOCH if since is None else since - _COMMITTED_AFTER
        bound = ArtifactName(ecosystem, registry_url, package, "").bound

        def load(transaction: Transaction) -> _Missing:
            return transaction.rows(_MISSING, bound | {"since": after})

        def note(work: SyncUnitOfWork) -> None:
            # Read again: another process may have seen files listed meanwhile.
            changes = _changes(load(work.transaction), listed or (), work.now, is_certain)
            work.transaction.run(_MISS, [bound | change for change in changes])

        try:
            files = await self._store.read_at_once(load)
            listed = await listing() if files and listing else frozenset[str]()
            now = self._store.clock()
            if listed is not None and _changes(files, listed, now, is_certain):
                await self._store.write_at_once(note, changes_rights=False)
        except StoreUnavailable as error:
            raise UpstreamFailed("what it withdrew cannot be noted") from error

    async def missed(self) -> Sequence[Sequence[str]]:
        """Packages to ask registries for again, as a document lacked files: ecosystem and name."""
        until = self._store.clock() - SETTLED
        bounds = {"after": until - ASKED_FOR, "until": until}
        return await self._store.read_at_once(lambda read: read.rows(_MISSED, bounds))

    async def last_accepted_at(self) -> datetime | None:
        """When the operator last accepted another file: pages from before are out of date."""

        def load(transaction: Transaction) -> datetime | None:
            ((instant,),) = transaction.rows(_LAST_ACCEPTED, {})
            return cast("datetime | None", instant)

        return await self._store.cached_at_once("artifacts accepted", load)


def find_artifact(transaction: Transaction, name: ArtifactName) -> KnownFile | None:
    """The file that was first served under `name`."""
    for *known, _, _ in transaction.rows(_FIND, name.bound):
        return _known(*known)
    return None


def keep_artifact(
    transaction: Transaction,
    name: ArtifactName,
    file: KnownFile,
    now: datetime,
    *,
    is_offered: bool,
) -> None:
    """Remember that `file` is served under `name`, under which no other one was served before.

    If it `is_offered` by the registry, no other one is: there is none to accept any more.
    """
    for *known, served_at, other in transaction.rows(_FIND, name.bound):
        if is_offered and other is not None:
            nothing = {"new_offered": None, "new_offered_at": None}
            transaction.run(_OFFERED, [name.bound | nothing])
        before = _known(*known)
        later = {
            "new_sha256": before.sha256 or file.sha256,
            "new_published_at": before.published_at or file.published_at,
            "new_served_at": now,
        }
        has_more = (later["new_sha256"], later["new_published_at"]) != (
            before.sha256,
            before.published_at,
        )
        if has_more or now - served_at >= _SERVED_STEP:
            transaction.run(_UPDATE, [name.bound | later])
        return
    added = {
        "version": file.version,
        "digest": file.key.digest,
        "sha256": file.sha256,
        "published_at": file.published_at,
        "served_at": now,
    }
    unset = ("offered_digest", "offered_at", "accepted_at", "missed_at", "withdrawn_at")
    transaction.run(_ADD, [{**name._asdict(), **added, **dict.fromkeys(unset)}])


def keep_offered(
    transaction: Transaction, name: ArtifactName, offered: FileKey, now: datetime
) -> None:
    """Note which other file the registry offers under `name`."""
    changed = {"new_offered": offered.digest, "new_offered_at": now}
    transaction.run(_OFFERED, [name.bound | changed])


def load_withdrawn(
    transaction: Transaction,
    until: datetime,
    after: datetime | None = None,
    rule_id: str | None = None,
) -> dict[tuple[Ecosystem, str], list[WithdrawnFile]]:
    """The files that count as withdrawn since an instant in this time, by package.

    With a `rule_id` those of this release alone.
    """
    withdrawn: dict[tuple[Ecosystem, str], list[WithdrawnFile]] = {}
    bounds = {"after": after or _EPOCH, "until": until, "rule_id": rule_id}
    statement = _NAMED if rule_id else _WITHDRAWN
    for ecosystem, package, *file in transaction.rows(statement, bounds):
        withdrawn.setdefault((Ecosystem(ecosystem), package), []).append(WithdrawnFile(*file))
    return withdrawn


def _changes(
    files: _Missing, listed: Collection[str], now: datetime, is_certain: bool
) -> list[dict[str, Any]]:
    """What is to be noted of `files`, as a document of now has those that are `listed`.

    One that is listed again counts as served now: a node that has another document, in which it is
    not, compares that with it when the registry confirms it.
    """
    changes = []
    for name, missed_at, withdrawn_at, served_at in files:
        missed, withdrawn = None, None
        if name not in listed:
            missed = missed_at or now
            is_settled = is_certain and now - missed >= SETTLED
            withdrawn = withdrawn_at or (now if is_settled else None)
        if (missed, withdrawn) != (missed_at, withdrawn_at):
            noted = {"new_missed_at": missed, "new_withdrawn_at": withdrawn}
            noted["new_served_at"] = served_at if missed else now
            changes.append({"of_file_name": name, **noted})
    return changes


async def delete_expired_artifacts(store: Store) -> None:
    """Delete files without an install for KEPT, and beyond ARTIFACTS_MAX as said there."""
    async with store.read() as session:  # no write lock while there is nothing to delete
        surplus = await _surplus(session)
        is_old = or_(_C.served_at <= store.clock() - KEPT, *surplus)
        if await session.scalar(select(_C.file_name).where(is_old).limit(1)) is None:
            return
    async with store.write() as work:
        await work.session.execute(delete(_ARTIFACTS).where(is_old))


async def _surplus(session: AsyncSession) -> list[ColumnElement[bool]]:
    """What is beyond ARTIFACTS_MAX: the oldest files of each registry that is over its share."""
    counted = select(_C.registry_url, func.count()).group_by(_C.registry_url)
    counts: dict[str, int] = {row[0]: row[1] for row in await session.execute(counted)}
    share = _equal_share(counts.values(), ARTIFACTS_MAX)
    surplus: list[ColumnElement[bool]] = []
    for url in (url for url, count in counts.items() if count > share):
        of_it = select(_C.served_at).where(_C.registry_url == url)
        last = await session.scalar(of_it.order_by(_C.served_at.desc()).offset(share).limit(1))
        if last is not None:  # else others were deleted meanwhile
            surplus.append((_C.registry_url == url) & (_C.served_at <= last))
    return surplus


def _equal_share(counts: Collection[int], total: int) -> int:
    """How many each may keep so that all keep `total`; who has fewer leaves the rest to others."""
    left = total
    for number, count in enumerate(sorted(counts)):
        share = left // (len(counts) - number)
        if count > share:
            return share
        left -= count
    return total


async def list_changed(session: AsyncSession) -> Sequence[Artifact]:
    """The files under whose names a registry offers others, the latest offer first."""
    changed = select(Artifact).where(Artifact.offered_digest.is_not(None))
    latest = changed.order_by(Artifact.offered_at.desc()).limit(LISTED_MAX)
    return (await session.scalars(latest)).all()


async def accept_artifact(
    work: UnitOfWork, file_name: str, digest: str, registry_url: str | None, by: AuditContext
) -> Artifact:
    """Take the file with `digest` for the one of this name from now on.

    It must be the one that the registry offered last: a digest is named, so that what was looked at
    is what is accepted. Every organisation gets the row: its installs get another file. Raises
    ARTIFACT_NOT_OFFERED and ARTIFACT_AMBIGUOUS.
    """
    if not all(map(is_encodable, (file_name, digest, registry_url or ""))):
        raise ARTIFACT_NOT_OFFERED(value=printable(file_name))
    offered = select(Artifact).where(
        Artifact.file_name == file_name, Artifact.offered_digest == digest
    )
    if registry_url is not None:
        offered = offered.where(Artifact.registry_url == registry_url)
    found = (await work.session.scalars(offered.limit(2))).all()
    if not found:
        raise ARTIFACT_NOT_OFFERED(value=file_name)
    if len(found) > 1:
        raise ARTIFACT_AMBIGUOUS(value=file_name)
    (artifact,) = found
    accepted = ArtifactAccepted(
        ecosystem=artifact.ecosystem,
        registry=artifact.registry_url,
        package=artifact.package,
        version=artifact.version,
        file_name=artifact.file_name,
        digest_before=artifact.digest,
        digest_now=digest,
    )
    key = parse_file_key(digest)
    artifact.digest = digest
    artifact.sha256 = key.hex if key.algorithm == "sha256" else None
    artifact.published_at = None
    artifact.offered_digest = artifact.offered_at = None
    artifact.accepted_at = work.now
    for org in await list_orgs(work.session):
        work.record(org.id, accepted, by)
    return artifact


resource = OperatorResource("artifacts", "/artifacts", BaseServices)


class ArtifactEntry(Answer):
    """A file that was served, and the other one that its registry offers under its name."""

    ecosystem: str
    registry: str
    package: str
    version: str
    file_name: str
    digest: str
    offered_digest: str | None
    offered_at: TimestampMs | None
    accepted_at: TimestampMs | None


def _entry(artifact: Artifact) -> ArtifactEntry:
    return ArtifactEntry.from_row(artifact, registry=artifact.registry_url)


class ArtifactList(Answer):
    """Files that changed at their registry, the latest offer first."""

    artifacts: list[ArtifactEntry]


class AcceptedFile(Request):
    """The file to take from now on."""

    file_name: str
    digest: Annotated[str, Meta(description="The `offered_digest`: what was looked at.")]
    registry: (
        Annotated[str, Meta(description="The registry's URL, if several have a file of this name.")]
        | None
    ) = None


@resource.get("list_changed_artifacts", returns=ArtifactList)
async def list_(call: OperatorCall[BaseServices]) -> ArtifactList:
    """List files that are refused because their registry served others under their names."""
    async with call.read() as session:
        changed = await list_changed(session)
    return ArtifactList(artifacts=list(map(_entry, changed)))


@resource.post(
    "accept_artifact",
    "/accept",
    body=AcceptedFile,
    example={"file_name": "left-pad-1.3.0.tgz", "digest": "sha256:5f1b0c"},
    returns=ArtifactEntry,
    refuses=[ARTIFACT_NOT_OFFERED, ARTIFACT_AMBIGUOUS],
)
async def accept(call: OperatorWriteCall[BaseServices], body: AcceptedFile) -> ArtifactEntry:
    """Take the file that a registry offers now, in every organisation."""
    return _entry(
        await accept_artifact(call.work, body.file_name, body.digest, body.registry, call.by)
    )


def _known(
    version: str,
    digest: str,
    sha256: str | None,
    published_at: datetime | None,
    withdrawn_at: datetime | None,
) -> KnownFile:
    return KnownFile(version, parse_file_key(digest), sha256, published_at, withdrawn_at)
