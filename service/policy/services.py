"""Dependencies of the endpoints for policies."""

from dataclasses import dataclass

from service.access.authorization import Authorizer
from service.clock import Clock
from service.lake import Lake
from service.policy.book import PolicyBook
from service.policy.preview import ReleaseDates
from service.store.store import Store
from service.worker_process import WorkerProcess


@dataclass(frozen=True, slots=True)
class PolicyServices:
    """Dependencies for reading, changing and trying policies."""

    clock: Clock
    access: Authorizer
    store: Store
    lake: Lake
    book: PolicyBook
    dates: ReleaseDates
    worker: WorkerProcess
