"""Refusals of requests about the policy and its exceptions."""

from service.core.errors.base import Conflict, Invalid, NotFound, Refusal


class RevisionMissing(Invalid):
    """A policy would be replaced without saying which one."""

    field = "if-match"
    text = "If-Match is required: the ETag of the policy that this one replaces, or * for any"


class ExceptionNotFound(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Exception not found for this org"


class RevisionNotFound(NotFound):
    """The organisation's policy never had this revision, or it is no longer kept."""

    text = "No such revision of the policy of this org"


class ExceptionExists(Conflict):
    """The same release waits for a decision already."""

    text = "an exception for this release was requested already, and waits for a decision"


class ExceptionDecided(Conflict):
    """The request was decided before."""

    text = "this request is {value} already: request a new one"


class TooManyExceptions(Conflict):
    """The organisation has as many open requests as it may."""

    text = "limit of {limit} open requests reached: decide some first"


class TooManyOwnExceptions(Conflict):
    """The member has as many open requests as one member may."""

    text = "limit of {limit} open requests of one member reached: wait for a decision on yours"


class PolicyMoved(Refusal):
    """The policy changed after the caller read it."""

    status = 412
    text = "the policy is at revision {value} by now: read it again, and apply your change to that"
