"""Fill a data dir with generated rows, by the code of the checkout in which this runs.

`Checkout.serving` passes this text to the Python of each checkout, in its folder. It therefore
imports only what earlier versions have as well.
"""

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import write_segment
from benchmarks.lake import all_segments, tenant_id
from benchmarks.served import found


def in_pieces(folder: Path, rows: int, pieces: int) -> list[Segment]:
    """The largest tenant's days, each in `pieces` files below `folder/pieces/audit`."""
    catalog, root = folder / "pieces" / "catalog.json", folder / "pieces" / "audit"
    if not catalog.exists():
        shutil.rmtree(root, ignore_errors=True)  # what broke off
        root.mkdir(parents=True)
        whole = [each for each in all_segments(folder, rows) if each.tenant_id == tenant_id(0)]
        cut = [part for each in whole for part in _pieces(folder, root, each, pieces)]
        catalog.write_bytes(msgspec.json.encode(cut))
    return msgspec.json.decode(catalog.read_bytes(), type=list[Segment])


def _pieces(folder: Path, root: Path, segment: Segment, pieces: int) -> Iterator[Segment]:
    rows = pq.read_table(segment.path(folder / "audit"), partitioning=None)
    length = max(1, -(-rows.num_rows // pieces))
    for number, start in enumerate(range(0, rows.num_rows, length)):
        name, part = f"{segment.segment_id}p{number}", rows.slice(start, length)
        yield write_segment(root, segment.tenant_id, segment.day, name, part)


def main(folder: Path, rows: int, pieces: int, data_dir: Path) -> None:
    """Set up the largest tenant's rows in `data_dir`; its days are whole if `pieces` is 0."""
    if pieces:
        asyncio.run(found(in_pieces(folder, rows, pieces), folder / "pieces" / "audit", data_dir))
    else:
        own = [each for each in all_segments(folder, rows) if each.tenant_id == tenant_id(0)]
        asyncio.run(found(own, folder / "audit", data_dir))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
