"""The errors of taking and restoring a backup."""

from service.core.errors import Conflict, Invalid, Refusal


class BackupExists(Conflict):
    """The name of the backup is taken."""

    text = "{value} is there already: a backup never replaces anything, choose another name"


class BackupInside(Conflict):
    """The backup would contain the data dir, or the other way round."""

    text = "{value} and the data dir lie within each other: choose another place"


class LinksImpossible(Conflict):
    """The place of the backup cannot have hard links to the data dir."""

    text = "{value} cannot hold hard links to the data dir: leave out --link to copy"


class NoRoom(Conflict):
    """The place of the backup has too little free space."""

    text = "{value} has too little free space: {needed} bytes are needed, {free} are free"


class BackupOvertaken(Refusal):
    """The backup took so long that a file was removed before it was copied."""

    status = 503
    is_temporary = True
    text = (
        "segment {value} was retired and removed before it was copied: take the backup again, with"
        " --link, or with a longer COUNTERSIGN_EXPORT_MAX_S"
    )


class NotABackup(Invalid):
    """The folder has no manifest."""

    text = "{value} is no backup: it has no manifest.json"


class BackupDamaged(Conflict):
    """The backup differs from its manifest; the text names the file."""

    text = "the backup is damaged: {value}"


class NewerBackup(Conflict):
    """The format of the backup is newer than this version."""

    text = "the backup was taken by a newer version of Countersign: update this one"


class DatabaseElsewhere(Conflict):
    """The database is outside the data dir, which is restored in one step."""

    text = (
        "COUNTERSIGN_DATABASE_URL names a database outside the data dir: restore without it, then"
        " move countersign.db there"
    )


class DataDirInTheWay(Conflict):
    """The place to restore to is not empty."""

    text = "{value} is not empty: restore elsewhere, or use --force to move it away first"


class DataDirInUse(Conflict):
    """A service uses the data dir that would be moved."""

    text = "{value} is in use: stop the service first"


class DataDirIsMount(Conflict):
    """The data dir is a mount point, which cannot be replaced in one step."""

    text = "{value} is a mount point: set COUNTERSIGN_DATA_DIR to a folder in it"


class BackupOfPostgresql(Conflict):
    """The backup holds a dump of PostgreSQL, and the settings name no such database."""

    text = (
        "the backup is of a PostgreSQL database: set COUNTERSIGN_DATABASE_URL to an empty one"
        " (postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE)"
    )


class BackupOfSqlite(Conflict):
    """The backup holds a SQLite file, and the settings name a PostgreSQL database."""

    text = (
        "the backup is of a SQLite database: restore it without COUNTERSIGN_DATABASE_URL, then run"
        " `countersign migrate`"
    )


class DatabaseInTheWay(Conflict):
    """The PostgreSQL database to restore to is not empty."""

    text = "the database has tables already, such as {value}: restore to an empty one"


class DatabaseInUse(Conflict):
    """A service is connected to the PostgreSQL database to restore to."""

    text = (
        "the database is in use by Countersign ({value} connections): stop the service on all nodes"
        " first, or use --force"
    )


class ObjectDiffers(Conflict):
    """The bucket has another object under the name of a segment."""

    text = (
        "the bucket has another {value} than the backup: restore to an empty prefix"
        " (COUNTERSIGN_SEGMENTS_URL)"
    )


class PrefixInUse(Conflict):
    """The bucket's prefix belongs to an installation, or has segments of one."""

    text = (
        "{value}: restore to another prefix (COUNTERSIGN_SEGMENTS_URL); to replace that"
        " installation, stop it and use --take-over"
    )


class NoVersions(Conflict):
    """Segments are in a folder, or in a bucket that keeps no versions."""

    text = (
        "segments are not in a bucket that keeps versions: turn versioning on, or leave out"
        " --by-version"
    )


class NotASource(Invalid):
    """What was given as the source of a segment is no bucket."""

    text = "{value} {reason}: give the folder of a backup, or s3://bucket/prefix"


class SegmentNotDamaged(Conflict):
    """The file is as the catalog says: its rows are not lost."""

    text = "segment {value} is whole: there is nothing to give up"


class UnknownSegment(Invalid):
    """The catalog has no such segment, or not where it was looked for."""

    text = (
        "{value} is no segment of the catalog here: `countersign audit stats` and `audit check`"
        " name damaged ones"
    )
