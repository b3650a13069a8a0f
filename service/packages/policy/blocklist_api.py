"""The operator's endpoints for the blocklist: importing feeds, what is in force, removing one."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any, BinaryIO, Final, Literal, Self

from msgspec import Meta, Struct

from analytics.model.instants import format_ms
from service.core.errors import Invalid
from service.packages.policy.blocklist import (
    FEED_NOT_LISTED,
    NOTHING_TO_IMPORT,
    BlocklistImporter,
    BlocklistResult,
    Changes,
)
from service.packages.policy.blocklist_contents import OSV, FeedState
from service.packages.policy.blocklist_generations import IMPORT_UNDER_WAY
from service.packages.policy.blocklist_loading import IMPORT_OVERTAKEN, ChangedEcosystem
from service.packages.policy.osv_zip import UNUSABLE_ZIP
from service.packages.policy.repository import list_imports, load_feed_states
from service.packages.policy.sbom import BLOCKLIST_EMPTY, SbomComparison, compare_sbom
from service.store.tables import BlocklistImport
from service.web.dependencies import BaseServices
from service.web.models import Answer, Raw, Request, TimestampMs, Upload
from service.web.operator_endpoint import OperatorCall, OperatorResource

IMPORTS_LISTED: Final = 10
MALICIOUS: Final = "MAL-*"
"""The ids of records about malicious releases."""

SENT_ARCHIVE_BYTES_MAX: Final = 2**30
"""Of an archive that is sent; the command on the machine reads longer ones."""

SENT_SBOM_BYTES_MAX: Final = 16 * 2**20
"""Of a bill of materials that is sent; the command on the machine reads longer ones."""


resource = OperatorResource("blocklist", "/blocklist", BaseServices)


class FeedEntry(Answer):
    """What is in force of a feed for one ecosystem."""

    feed: str
    ecosystem: str
    ids: list[str]
    advisories: int
    imported_at: TimestampMs
    modified_at: TimestampMs | None
    is_stale: bool

    @classmethod
    def of(cls, state: FeedState, now: datetime, stale_after_s: float) -> Self:
        """A feed in the API's representation."""
        return cls.from_row(state, is_stale=state.is_stale(now, stale_after_s))


class ImportEntry(Answer):
    """An import of an archive. While it is loading, nothing of it is in force."""

    generation: int
    state: Literal["imported", "loading"]
    imported_at: TimestampMs
    imported_by: str
    feed: str
    file: str
    sha256: str
    ids: list[str]
    records: int
    advisories: int
    withdrawn: int
    unreadable: int

    @classmethod
    def of(cls, entry: BlocklistImport) -> Self:
        """An import in the API's representation."""
        return cls.from_row(
            entry,
            state="imported" if entry.switched_at else "loading",
            imported_at=format_ms(entry.switched_at or entry.started_at),
            file=entry.source,
        )


class BlocklistStatus(Answer):
    """The feeds in force, the import that put them in force, and the last imports."""

    current: ImportEntry | None
    feeds: list[FeedEntry]
    imports: list[ImportEntry]


class ImportQuery(Request):
    """What is imported: the archive's records of a feed, by their ids."""

    file: Annotated[
        str, Meta(max_length=255, description="The name of the archive, which the list shows.")
    ]
    feed: Annotated[str, Meta(description="Whose records they are; those of other feeds stay.")] = (
        OSV
    )
    ids: Annotated[list[str], Meta(description="Globs of ids; default `MAL-*`.")] | None = None
    is_plan: Annotated[bool, Meta(description="Show what would change; change nothing.")] = False
    accept_loss: Annotated[
        bool,
        Meta(description="Import it although more than a tenth of an ecosystem's is removed."),
    ] = False


class UnreadableEntry(Answer):
    """An entry of an archive that cannot be read, and why."""

    name: str
    error: str


class ImportOutcome(Answer):
    """What an import changed; if it is not `is_in_force`, what it would change.

    `generation` is the one in force. `ecosystems` is empty for a file that is in force already.
    """

    generation: int
    feed: str
    sha256: str
    is_unchanged: bool
    is_in_force: bool
    records: int
    advisories: int
    ecosystems: dict[str, ChangedEcosystem]
    withdrawn: int
    other: int
    unreadable: int
    unreadable_records: Annotated[list[UnreadableEntry], Meta(description="The first of them.")]
    seconds: float

    @classmethod
    def of(cls, result: BlocklistResult) -> Self:
        """The outcome of an import in the API's representation."""
        counts = result.counts
        return cls.from_row(
            result,
            records=counts.records,
            advisories=counts.advisories,
            ecosystems={str(ecosystem): each for ecosystem, each in result.changes.items()},
            withdrawn=counts.withdrawn,
            other=counts.other,
            unreadable=counts.unreadable,
            unreadable_records=[
                UnreadableEntry(name=name, error=error) for name, error in counts.examples
            ],
            seconds=round(result.seconds, 2),
        )


class RemovedFeed(Answer):
    """A feed that was removed: how many advisories of each ecosystem."""

    generation: int
    feed: str
    removed: dict[str, int]


class BillOfMaterials(Struct, rename="camel"):
    """A software bill of materials: CycloneDX in JSON. Nested components are compared, too."""

    bom_format: Literal["CycloneDX"]
    components: Annotated[
        list[dict[str, Any]], Meta(description="Each with its package URL in `purl`.")
    ] = []


@resource.get("get_blocklist", returns=BlocklistStatus)
async def status(call: OperatorCall[BaseServices]) -> BlocklistStatus:
    """Show what is in force of each feed, and the last imports."""
    async with call.read() as session:
        feeds = await load_feed_states(session)
        imports = await list_imports(session, IMPORTS_LISTED)
    entries = [ImportEntry.of(entry) for entry in imports]
    age = call.services.clock(), call.services.settings.blocklist_stale_s
    return BlocklistStatus(
        current=next((entry for entry in entries if entry.state == "imported"), None),
        feeds=[FeedEntry.of(state, *age) for state in feeds],
        imports=entries,
    )


@resource.post_in_steps(
    "import_feed",
    "/imports",
    query=ImportQuery,
    body=Upload("application/zip", SENT_ARCHIVE_BYTES_MAX),
    returns=ImportOutcome,
    refuses=[UNUSABLE_ZIP, NOTHING_TO_IMPORT, IMPORT_UNDER_WAY, IMPORT_OVERTAKEN],
)
async def import_(
    call: OperatorCall[BaseServices], query: ImportQuery, archive: BinaryIO
) -> ImportOutcome:
    """Replace a feed's part of the blocklist by an archive, OSV's bulk format (a zip).

    Replaced are the records of the feed with such ids, of the ecosystems that the archive is about.
    All that was in force stays in force until the new list is complete.
    """

    def approve(changes: Changes) -> bool:
        is_loss = any(change.is_loss for change in changes.values())
        return not query.is_plan and (query.accept_loss or not is_loss)

    importer = BlocklistImporter(call.services.store)
    result = await importer.import_file(
        archive, query.file, query.ids or [MALICIOUS], call.by, feed=query.feed, approve=approve
    )
    return ImportOutcome.of(result)


@resource.delete_in_steps(
    "remove_feed",
    "/feeds/<feed>",
    returns=RemovedFeed,
    refuses=[Invalid, FEED_NOT_LISTED, IMPORT_UNDER_WAY, IMPORT_OVERTAKEN],
)
async def remove(call: OperatorCall[BaseServices], feed: str) -> RemovedFeed:
    """Remove all of a feed from the blocklist, such as one that is no longer imported."""
    importer = BlocklistImporter(call.services.store)
    result = await importer.remove_feed(feed, call.by, lambda changes: True)
    removed = {str(ecosystem): change.removed for ecosystem, change in result.changes.items()}
    return RemovedFeed(generation=result.generation, feed=result.feed, removed=removed)


@resource.post_read(
    "compare_bill",
    "/check",
    body=Raw(BillOfMaterials, SENT_SBOM_BYTES_MAX),
    example={"bomFormat": "CycloneDX", "components": [{"purl": "pkg:npm/left-pad@1.3.0"}]},
    returns=SbomComparison,
    refuses=[BLOCKLIST_EMPTY],
)
async def check(call: OperatorCall[BaseServices], content: bytes) -> SbomComparison:
    """Compare a software bill of materials with the blocklist. Nothing is recorded."""
    services = call.services
    compare = partial(compare_sbom, content=content, now=services.clock())
    return await services.store.read_at_once(compare)
