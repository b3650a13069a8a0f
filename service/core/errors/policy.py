"""Refusals of requests about the policy and its exceptions."""

from typing import Final

from service.core.errors.base import Conflict, Invalid, NotFound, Refusal


class RevisionMissing(Invalid):
    """A policy would be replaced without saying which one."""

    field = "if-match"
    text = "If-Match is required: the ETag of the policy that this one replaces, or * for any"


class RevisionNotFound(NotFound):
    """The organisation's policy never had this revision, or it is no longer kept."""

    text = "No such revision of the policy of this org"


class PolicyMoved(Refusal):
    """The policy changed after the caller read it."""

    status = 412
    text = "the policy is at revision {value} by now: read it again, and apply your change to that"


BLOCKLIST_EMPTY: Final = Conflict.of(
    "the blocklist is empty: import an archive of OSV records first"
)
EXCEPTION_NOT_FOUND: Final = NotFound.of("Exception not found for this org")
EXCEPTION_EXISTS: Final = Conflict.of(
    "an exception for this release was requested already, and waits for a decision"
)
EXCEPTION_DECIDED: Final = Conflict.of("this request is {state} already: request a new one")
TOO_MANY_EXCEPTIONS: Final = Conflict.of(
    "limit of {limit} open requests reached: decide some first"
)
TOO_MANY_OWN_EXCEPTIONS: Final = Conflict.of(
    "limit of {limit} open requests of one member reached: wait for a decision on yours"
)
