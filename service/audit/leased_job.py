"""Jobs that change segments, which they do under the lease."""

from service.audit.lake import Lake
from service.core.clock import Clock
from service.core.settings import Settings
from service.store.lease import LeaseKeeper
from service.store.store import Store


class LeasedJob:
    """The dependencies of such a job."""

    def __init__(
        self, settings: Settings, store: Store, lake: Lake, lease: LeaseKeeper, clock: Clock
    ) -> None:
        self._settings = settings
        self._store = store
        self._lake = lake
        self._lease = lease
        self._clock = clock
