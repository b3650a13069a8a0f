"""What failures of the file system are to a caller: refusals that say what to do."""

import errno
from typing import Final

from service.core.errors import StorageFull, StorageReadOnly, StoreUnavailable

_FAULTS: Final[dict[int, type[StoreUnavailable]]] = {
    errno.ENOSPC: StorageFull,
    errno.EDQUOT: StorageFull,
    errno.EROFS: StorageReadOnly,
    errno.EACCES: StorageReadOnly,
    errno.EPERM: StorageReadOnly,
}


def file_fault(error: OSError) -> type[StoreUnavailable]:
    """The refusal for a failure of the file system."""
    return _FAULTS.get(error.errno or 0, StoreUnavailable)
