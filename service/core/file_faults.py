"""What failures of the file system are to a caller: refusals that say what to do."""

import errno
from typing import Final

from service.core.errors import STORAGE_READ_ONLY, StorageFull, StoreUnavailable

_FAULTS: Final[dict[int, type[StoreUnavailable]]] = {
    errno.ENOSPC: StorageFull,
    errno.EDQUOT: StorageFull,
    errno.EROFS: STORAGE_READ_ONLY,
    errno.EACCES: STORAGE_READ_ONLY,
    errno.EPERM: STORAGE_READ_ONLY,
}


def file_fault(error: OSError) -> type[StoreUnavailable]:
    """The refusal for a failure of the file system."""
    return _FAULTS.get(error.errno or 0, StoreUnavailable)
