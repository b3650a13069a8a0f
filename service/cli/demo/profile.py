"""The schema of `data/demo.toml`, which describes the demo organisation."""

import tomllib
from datetime import time
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from service.access.roles import Capability, Role
from service.core.settings import REPOSITORY, IdentityProviderName

DEMO_FILE: Final = REPOSITORY / "data" / "demo.toml"

HourWeights = Annotated[tuple[int, ...], msgspec.Meta(min_length=24, max_length=24)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
EcosystemName = Literal["npm", "pypi"]


class ProfileTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the file: a misspelt key is an error."""


class Moment(ProfileTable, frozen=True, kw_only=True):
    """A time of day (UTC) on the history's n-th working day, counted from 0."""

    workday: Annotated[int, msgspec.Meta(ge=0, le=61)]
    time: time


class ChangeEntry(Moment, frozen=True, kw_only=True):
    """When something was done, and by which member (or "admin-token")."""

    by: str


class Revocation(ChangeEntry, frozen=True, kw_only=True):
    """The end of a binding."""

    reason: str | None = None


class ProfileMember(ProfileTable, frozen=True, kw_only=True):
    """A member; without `joins`, from the first day."""

    email: str
    role: Role
    identity_provider: IdentityProviderName
    has_passkey: bool = False
    joins: Moment | None = None
    leaves: Moment | None = None


class KeyEntry(ProfileTable, frozen=True, kw_only=True):
    """An API key; without `issued`, from the first day."""

    project: str | None = None
    issued: Moment | None = None


class TokenEntry(ProfileTable, frozen=True, kw_only=True):
    """The identity of a CI job. `subject` is the `sub` claim without `repo:<repository>:`."""

    repository: str
    subject: str
    events: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]

    @property
    def sub(self) -> str:
        """The whole `sub` claim."""
        return whole_sub(self.repository, self.subject)


class JobEntry(ProfileTable, frozen=True, kw_only=True):
    """A job that installs packages repeatedly, a random part of its lockfile each time."""

    key: str
    ecosystem: EcosystemName
    runs_per_day: float
    installs: int
    lockfile: int | None = None
    network: Literal["ci", "office", "home"] = "ci"
    nightly: tuple[time, ...] = ()
    token: TokenEntry | None = None

    @property
    def lockfile_size(self) -> int:
        """How many packages its lockfile has: more than any run of it installs."""
        return self.lockfile or self.installs * 2


class BindingEntry(ProfileTable, frozen=True, kw_only=True):
    """A binding from its creation to its end, if it has one."""

    repository: str
    subject: str
    event_names: tuple[str, ...] = ()
    project: str | None = None
    team: str | None = None
    added: ChangeEntry
    revoked: Revocation | None = None

    @property
    def sub(self) -> str:
        """The whole `sub` claim."""
        return whole_sub(self.repository, self.subject)


class Rule(ProfileTable, frozen=True, kw_only=True):
    """A package version on the blocklist. `reason` is for those whose install it blocks."""

    rule_id: str
    source: Literal["osv", "operator"]
    ecosystem: EcosystemName
    package: str
    version: str
    reason: str


class PolicyEntry(ProfileTable, frozen=True, kw_only=True):
    """The install policy's cooldown, and the member who writes the policy."""

    by: str
    min_age_days: int


class Incident(Moment, frozen=True, kw_only=True):
    """A few hours in which every job of an ecosystem asked for the same bad package.

    From `unnoticed_hours` before on, some runs installed it: no rule named it yet.
    """

    hours: float
    unnoticed_hours: float
    unnoticed_share: Share
    retries: int
    rule: Rule


class EcosystemEntry(ProfileTable, frozen=True, kw_only=True):
    """Packages by popularity, the most popular first; each with versions, the newest first."""

    registry: str
    first_party: dict[str, tuple[str, ...]]
    packages: dict[str, tuple[str, ...]]


class WorkHours(ProfileTable, frozen=True, kw_only=True):
    """How work is distributed over the day, and the share of it at weekends."""

    weekday: HourWeights
    weekend: HourWeights
    weekend_share: Share


class Habits(ProfileTable, frozen=True, kw_only=True):
    """How often a run is blocked, and who exports."""

    blocked_share: Share
    too_young_share: Share
    exporters: tuple[str, ...]


class Networks(ProfileTable, frozen=True, kw_only=True):
    """The first three numbers of the addresses that requests come from."""

    ci: str
    office: str
    home: str


class Profile(ProfileTable, frozen=True, kw_only=True):
    """The whole file."""

    seed: int
    issuer: str
    networks: Networks
    hours: WorkHours
    role_overrides: dict[Role, tuple[Capability, ...]]
    members: dict[str, ProfileMember]
    teams: dict[str, tuple[str, ...]]
    projects: tuple[str, ...]
    keys: dict[str, KeyEntry]
    repositories: dict[str, str]
    jobs: dict[str, JobEntry]
    bindings: tuple[BindingEntry, ...]
    incident: Incident
    habits: Habits
    policy: PolicyEntry
    blocklist: tuple[Rule, ...]
    ecosystems: dict[EcosystemName, EcosystemEntry]


def load_profile(path: Path = DEMO_FILE) -> Profile:
    """The profile at `path`. Raises msgspec.ValidationError, whose text names the place."""
    return msgspec.convert(tomllib.loads(path.read_text()), Profile)


def whole_sub(repository: str, subject: str) -> str:
    """The `sub` claim of a GitHub Actions token."""
    return f"repo:{repository}:{subject}"
