"""What commands say that lose the lease to change segments."""

import contextlib
from collections.abc import Iterator

from service.audit.lease import LeaseLost, LeaseTaken


@contextlib.contextmanager
def lost_lease_as_taken() -> Iterator[None]:
    """Raise LeaseTaken if the lease is lost midway: nothing is changed from then on either."""
    try:
        yield
    except LeaseLost as error:
        raise LeaseTaken from error
