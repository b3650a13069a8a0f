"""The envelopes of changes to what may be installed: policies and the operator's blocklist."""

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
