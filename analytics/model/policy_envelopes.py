"""The envelopes of changes to what may be installed: policies and the operator's blocklist."""

from typing import Literal

from analytics.model.events import Count, Envelope, Event


class PolicyChanged(Envelope, frozen=True, kw_only=True):
    """An organisation's install policy changed.

    `before` and `after` hold what differs, by part of the policy: the entries removed and added, as
    people read them. `omitted` entries did not fit; the digests are of the whole documents.
    """

    event = Event.POLICY_CHANGED
    revision: Count
    before: dict[str, list[str]]
    after: dict[str, list[str]]
    omitted: Count
    sha256_before: str | None
    sha256_after: str


class PolicyExceptionRequested(Envelope, frozen=True, kw_only=True):
    """A member asked for a release to be let through before its cooldown ends."""

    event = Event.POLICY_EXCEPTION_REQUESTED
    exception_id: str
    ecosystem: str
    package: str
    version: str
    reason: str


class PolicyExceptionDecided(Envelope, frozen=True, kw_only=True):
    """Such a request was allowed or declined."""

    event = Event.POLICY_EXCEPTION_DECIDED
    exception_id: str
    state: Literal["allowed", "declined"]
    ecosystem: str
    package: str
    version: str
    reason: str | None


class BlocklistImported(Envelope, frozen=True, kw_only=True):
    """The operator replaced the blocklist, which holds for every organisation."""

    event = Event.BLOCKLIST_IMPORTED
    generation: Count
    source: str
    ids: list[str]
    advisories: Count
    advisories_before: Count
    withdrawn: Count
    unreadable: Count
    sha256: str
