"""Dependencies of the endpoints for policies."""

from dataclasses import dataclass

from service.access.authorization import Authorizer
from service.audit.lake import Lake
from service.audit.worker_process import WorkerProcess
from service.core.clock import Clock
from service.packages.policy.policy_cache import PolicyCache
from service.packages.policy.preview import ReleaseDates
from service.store.store import Store


@dataclass(frozen=True, slots=True)
class PolicyServices:
    """Dependencies for reading, changing and trying policies."""

    clock: Clock
    access: Authorizer
    store: Store
    lake: Lake
    policies: PolicyCache
    dates: ReleaseDates
    worker: WorkerProcess
