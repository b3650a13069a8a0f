"""What taking a backup, or putting one back, can be refused for."""

from service.errors import Conflict, Invalid, Refusal


class BackupExists(Conflict):
    """The name a backup would get is taken."""

    text = "{value} is there already: a backup never replaces anything, choose another name"


class BackupInside(Conflict):
    """A backup would lie within what it is of, or the other way round."""

    text = "{value} and the data dir lie within each other: choose another place"


class LinksImpossible(Conflict):
    """The backup's place cannot share files with the data dir."""

    text = "{value} cannot hold hard links to the data dir: leave out --link to copy"


class NoRoom(Conflict):
    """The place a backup would go to is too small for it."""

    text = "{value} has not the room: {needed} bytes are needed, {free} are free"


class BackupOvertaken(Refusal):
    """The backup took so long that a file it was to copy has been removed."""

    status = 503
    text = (
        "segment {value} was retired and removed before it was copied: take the backup again, with"
        " --link, or with a longer COUNTERSIGN_EXPORT_MAX_S"
    )


class NotABackup(Invalid):
    """The folder has no manifest."""

    text = "{value} is no backup: it has no manifest.json"


class BackupDamaged(Conflict):
    """A backup that is not what it was when it was taken; the text names the file."""

    text = "the backup is damaged: {value}"


class NewerBackup(Conflict):
    """The backup has a form that this version does not know."""

    text = "the backup was taken by a newer version of Countersign: update this one"


class DatabaseElsewhere(Conflict):
    """What is put back in one step must lie in one place."""

    text = (
        "COUNTERSIGN_DATABASE_URL names a database outside the data dir: restore without it, then"
        " move countersign.db there"
    )


class DataDirInTheWay(Conflict):
    """There is something where the backup would be put back."""

    text = "{value} is not empty: restore elsewhere, or --force to move it aside first"


class DataDirInUse(Conflict):
    """A service works on what would be moved aside."""

    text = "{value} is in use: stop the service first"


class DataDirIsMount(Conflict):
    """A mount point cannot be replaced in one step."""

    text = "{value} is a mount point: set COUNTERSIGN_DATA_DIR to a folder in it"
