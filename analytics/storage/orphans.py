"""Files the catalog does not name: what a crash between writing and committing leaves behind."""

import contextlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from analytics.storage.segment_metadata import Segment


def segment_files(root: Path) -> list[Path]:
    """Every segment file below `root`, unfinished ones included."""
    return [path for path in root.glob("tenant=*/day=*/*") if path.is_file()]


def remove_orphans(files: Iterable[Path], known: Collection[str], before_s: float) -> int:
    """Unlink those of `files` that `known` (segment ids) does not name; how many there were.

    Only files last written before `before_s` (seconds since 1970): another process's file may be
    renamed and not yet committed. `files` must have been listed before `known` was read, or a
    segment committed in between would look like an orphan.
    """
    removed = 0
    for path in files:
        if path.stem in known:
            continue
        with contextlib.suppress(FileNotFoundError):  # renamed or removed since it was listed
            if path.stat().st_mtime < before_s:
                path.unlink()
                removed += 1
    return removed


def renew_segments(root: Path, segments: Iterable[Segment], written_s: float) -> None:
    """Make the files of `segments` as young as if last written at `written_s`.

    Raises FileNotFoundError if one is gone; but for an index, which is rebuilt where it is missing.
    """
    for segment in segments:
        os.utime(segment.path(root), (written_s, written_s))
        with contextlib.suppress(FileNotFoundError):
            os.utime(segment.index_path(root), (written_s, written_s))
