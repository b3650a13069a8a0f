"""The stored seqs of groups get a checksum: a damaged bit of them may change nothing else."""

import struct
import zlib

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_NAMES = ("tenant_id", "level", "number")
_TILES = sa.table(
    "evidence_tiles", *map(sa.column, _NAMES), sa.column("first_seqs", sa.LargeBinary())
)


def upgrade() -> None:
    connection = op.get_bind()
    key = [_TILES.c[name] for name in _NAMES]
    query = sa.select(*key, _TILES.c.first_seqs).where(_TILES.c.first_seqs.is_not(None))
    for *place, content in connection.execute(query).all():
        where = (column == value for column, value in zip(key, place, strict=True))
        checked = struct.pack("<I", zlib.crc32(content)) + content
        connection.execute(sa.update(_TILES).where(*where).values(first_seqs=checked))
