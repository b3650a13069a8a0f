"""The errors of taking and restoring a backup."""

from typing import Final

from service.core.errors import Conflict, Invalid, Refusal

BACKUP_EXISTS: Final = Conflict.of(
    "{value} is there already: a backup never replaces anything, choose another name"
)
BACKUP_INSIDE: Final = Conflict.of(
    "{value} and the data dir lie within each other: choose another place"
)
LINKS_IMPOSSIBLE: Final = Conflict.of(
    "{value} cannot hold hard links to the data dir: leave out --link to copy"
)
TOO_LITTLE_SPACE: Final = Conflict.of(
    "{value} has too little free space: {needed} bytes are needed, {free} are free"
)


class BackupOvertaken(Refusal):
    """The backup took so long that a file was removed before it was copied."""

    status = 503
    is_temporary = True
    text = (
        "segment {value} was retired and removed before it was copied: take the backup again, with"
        " --link, or with a longer COUNTERSIGN_EXPORT_MAX_S"
    )


NOT_A_BACKUP: Final = Invalid.of("{value} is no backup: it has no manifest.json")


class BackupDamaged(Conflict):
    """The backup differs from its manifest; the text names the file."""

    text = "the backup is damaged: {value}"


NEWER_BACKUP: Final = Conflict.of(
    "the backup was taken by a newer version of Countersign: update this one"
)
DATABASE_ELSEWHERE: Final = Conflict.of(
    "COUNTERSIGN_DATABASE_URL names a database outside the data dir: restore without it, then"
    " move countersign.db there"
)
DATA_DIR_IN_THE_WAY: Final = Conflict.of(
    "{value} is not empty: restore elsewhere, or use --force to move it away first"
)
DATA_DIR_IN_USE: Final = Conflict.of("{value} is in use: stop the service first")
DATA_DIR_IS_MOUNT: Final = Conflict.of(
    "{value} is a mount point: set COUNTERSIGN_DATA_DIR to a folder in it"
)
BACKUP_OF_POSTGRESQL: Final = Conflict.of(
    "the backup is of a PostgreSQL database: set COUNTERSIGN_DATABASE_URL to an empty one"
    " (postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE)"
)
BACKUP_OF_SQLITE: Final = Conflict.of(
    "the backup is of a SQLite database: restore it without COUNTERSIGN_DATABASE_URL, then run"
    " `countersign migrate`"
)
DATABASE_IN_THE_WAY: Final = Conflict.of(
    "the database has tables already, such as {value}: restore to an empty one"
)
DATABASE_IN_USE: Final = Conflict.of(
    "the database is in use by Countersign ({value} connections): stop the service on all nodes"
    " first, or use --force"
)


class ObjectDiffers(Conflict):
    """The bucket has another object under the name of a segment."""

    text = (
        "the bucket has another {value} than the backup: restore to an empty prefix"
        " (COUNTERSIGN_SEGMENTS_URL)"
    )


PREFIX_IN_USE: Final = Conflict.of(
    "{value}: restore to another prefix (COUNTERSIGN_SEGMENTS_URL); to replace that"
    " installation, stop it and use --take-over"
)
NO_VERSIONS: Final = Conflict.of(
    "segments are not in a bucket that keeps versions: turn versioning on, or leave out"
    " --by-version"
)
NOT_A_SOURCE: Final = Invalid.of(
    "{value} {reason}: give the folder of a backup, or s3://bucket/prefix"
)
SEGMENT_NOT_DAMAGED: Final = Conflict.of("segment {value} is whole: there is nothing to give up")
UNKNOWN_SEGMENT: Final = Invalid.of(
    "{value} is no segment of the catalog here: `countersign audit stats` and `audit check`"
    " name damaged ones"
)
