"""Where a row lives: tenant, UTC day and segment id to a path. No other module makes such paths."""

import functools
import re
from datetime import date
from pathlib import Path
from typing import Final

_TENANT: Final = re.compile(r"org_[a-z0-9]{1,40}", re.ASCII)
_SEGMENT: Final = re.compile(r"seg_[a-z0-9]{1,40}", re.ASCII)


OWN_FOLDER: Final = ".cache"
"""Beside the folders of tenants, where segments are copies: locks, and unfinished files."""


CHECKPOINTS: Final = "checkpoints"
"""The folder of checkpoints in a bucket, beside those of tenants."""


class UnsafePath(ValueError):
    """An id that must not become part of a path."""


@functools.lru_cache(maxsize=8_192)  # a query over months names the same files each time
def segment_path(root: Path, tenant_id: str, day: date, segment_id: str) -> Path:
    """`<root>/tenant=<tenant id>/day=<YYYY-MM-DD>/<segment id>.parquet`.

    Both ids are matched whole against the form this service gives them, so that no separator,
    dot or NUL ever reaches the file system. Raises UnsafePath.
    """
    if not _TENANT.fullmatch(tenant_id) or not _SEGMENT.fullmatch(segment_id):
        raise UnsafePath("tenant and segment ids are made by this service")
    return root / f"tenant={tenant_id}" / f"day={day.isoformat()}" / f"{segment_id}.parquet"


@functools.lru_cache(maxsize=8_192)
def index_path(root: Path, tenant_id: str, day: date, segment_id: str) -> Path:
    """The index file beside a segment: `<segment id>.index`. Raises UnsafePath."""
    return segment_path(root, tenant_id, day, segment_id).with_suffix(".index")


def checkpoint_key(tenant_id: str, generation: int, size: int) -> str:
    """`checkpoints/tenant=<tenant id>/<generation>-<size>.txt`: keys of a tenant sort by both.

    Raises UnsafePath.
    """
    if not _TENANT.fullmatch(tenant_id):
        raise UnsafePath("tenant ids are made by this service")
    return f"{CHECKPOINTS}/tenant={tenant_id}/{generation:04}-{size:020}.txt"
