"""The errors of copying a database to another one."""

from service.core.errors import Conflict, Invalid


class NotFromSqlite(Invalid):
    """The source is no SQLite database in a file."""

    text = "--from must name a SQLite database: sqlite:///PATH (an absolute path has four slashes)"


class NotToPostgresql(Invalid):
    """The target is no PostgreSQL database."""

    text = (
        "--to, or COUNTERSIGN_DATABASE_URL, must name an empty PostgreSQL database:"
        " postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE"
    )


class NoSource(Conflict):
    """The file of the source is not there."""

    text = "no database in {value}"


class SourceInUse(Conflict):
    """A service uses the source: it would go on writing to it."""

    text = "{value} is in use: stop the service first"


class TargetNotEmpty(Conflict):
    """The target holds data that this copy did not put there."""

    text = "the target holds tables already, such as {value}: name an empty database"


class OtherVersionBegan(Conflict):
    """The copy was begun by another version, with other tables."""

    text = (
        "the copy was begun by another version of Countersign: drop the target database, create it"
        " again, and copy from the start"
    )


class SourceChanged(Conflict):
    """The source was changed after an earlier run that was interrupted."""

    text = (
        "the first {rows} rows of table {table} are not those that an earlier run has copied: the"
        " source was used after it, or the target was changed. Drop the target database, create it"
        " again, and copy from the start"
    )


class CopyDiffers(Conflict):
    """A table of the target is not equal to the source's."""

    text = (
        "table {table} is not equal on both sides ({source} rows and {target}): the target was"
        " changed. Drop the target database, create it again, and copy from the start"
    )


class RowNotStorable(Conflict):
    """The target does not accept a value of the source."""

    text = "the target does not accept a row of table {table}: {reason}"
