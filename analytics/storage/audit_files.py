"""The files in the audit folder: what each of them is, and which of them a sweep removes."""

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Final

from analytics.storage.layout import OWN_FOLDER, index_path, segment_path
from analytics.storage.segment_metadata import Segment

TABLE_LOG: Final = "_delta_log"
"""The folder of a Delta table's log, which lies beside the segments."""


class FileRole(StrEnum):
    """What a file is by its place and name, and by what the catalog says."""

    SEGMENT = "segment"
    MISPLACED = "misplaced"
    ORPHAN = "orphan"
    UNFINISHED = "unfinished"
    FOREIGN = "foreign"


SWEPT: Final = frozenset({FileRole.ORPHAN, FileRole.UNFINISHED})
"""What a crash leaves behind: a sweep removes it once it is past the grace."""


_PATHS: Final = {".parquet": segment_path, ".index": index_path}
"""Where a segment and its index belong, by the suffix of the file."""


def list_files(root: Path, tenant_id: str | None = None) -> list[Path]:
    """Every file below `root` (or in the tenant's folder of it) but for logs of Delta tables."""
    top = root / f"tenant={tenant_id}" if tenant_id else root
    found: list[Path] = []
    for folder, names, files in os.walk(top):
        if Path(folder) == root and OWN_FOLDER in names:
            names.remove(OWN_FOLDER)
        if TABLE_LOG in names:
            names.remove(TABLE_LOG)
        found += (Path(folder, name) for name in files)
    return found


def role_of(root: Path, path: Path, places: Mapping[str, tuple[str, date]]) -> FileRole:
    """What the file at `path` is. `places` has tenant and day of every segment in the catalog."""
    if is_swept(root, path, places):
        # A segment that is being written is in no catalog, so its pending file is unknown.
        return FileRole.UNFINISHED if path.suffix == ".pending" else FileRole.ORPHAN
    path_of = _PATHS.get(path.suffix)
    if path_of is None or path.stem not in places:
        return FileRole.FOREIGN
    is_in_place = path == path_of(root, *places[path.stem], path.stem)
    return FileRole.SEGMENT if is_in_place else FileRole.MISPLACED


def is_swept(root: Path, path: Path, known: Collection[str]) -> bool:
    """Whether the file lies where segments do and belongs to none of `known` (segment ids)."""
    place = path.relative_to(root)
    is_among_segments = len(place.parts) == 3 and place.match("tenant=*/day=*/*")
    return is_among_segments and path.stem not in known


def remove_orphans(
    root: Path, files: Iterable[Path], known: Collection[str], before_s: float
) -> int:
    """Unlink those of `files` that belong to none of `known` (segment ids); return how many.

    Only files last written before `before_s` (seconds since 1970): another process's file may be
    renamed and not yet committed. `files` must have been listed before `known` was read, or a
    segment committed in between would look like an orphan.
    """
    removed = 0
    for path in files:
        if not is_swept(root, path, known):
            continue
        with contextlib.suppress(FileNotFoundError):  # renamed or removed since it was listed
            if path.stat().st_mtime < before_s:
                path.unlink()
                removed += 1
    return removed


def list_missing(root: Path, segments: Iterable[Segment]) -> list[Segment]:
    """Those of `segments` whose files are not there, or have another size."""
    return [segment for segment in segments if _size_of(segment.path(root)) != segment.size]


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def renew_segments(root: Path, segments: Iterable[Segment], written_s: float) -> None:
    """Make the files of `segments` as young as if last written at `written_s`.

    Raises FileNotFoundError if a segment is gone. A missing index is no error: it is rebuilt.
    """
    for segment in segments:
        os.utime(segment.path(root), (written_s, written_s))
        with contextlib.suppress(FileNotFoundError):
            os.utime(segment.index_path(root), (written_s, written_s))
