"""The errors of copying a database to another one."""

from typing import Final

from service.core.errors import Conflict, Invalid

NOT_FROM_SQLITE: Final = Invalid.of(
    "--from must name a SQLite database: sqlite:///PATH (an absolute path has four slashes)"
)
NOT_TO_POSTGRESQL: Final = Invalid.of(
    "--to, or COUNTERSIGN_DATABASE_URL, must name an empty PostgreSQL database:"
    " postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE"
)
NO_SOURCE: Final = Conflict.of("no database in {value}")
SOURCE_IN_USE: Final = Conflict.of("{value} is in use: stop the service first")
TARGET_NOT_EMPTY: Final = Conflict.of(
    "the target holds tables already, such as {value}: name an empty database"
)
OTHER_VERSION_BEGAN: Final = Conflict.of(
    "the copy was begun by another version of Countersign: drop the target database, create it"
    " again, and copy from the start"
)
SOURCE_CHANGED: Final = Conflict.of(
    "the first {rows} rows of table {table} are not those that an earlier run has copied: the"
    " source was used after it, or the target was changed. Drop the target database, create it"
    " again, and copy from the start"
)
COPY_DIFFERS: Final = Conflict.of(
    "table {table} is not equal on both sides ({source} rows and {target}): the target was"
    " changed. Drop the target database, create it again, and copy from the start"
)
ROW_NOT_STORABLE: Final = Conflict.of("the target does not accept a row of table {table}: {reason}")
