"""The documented texts of refusals, as patterns."""

import re

from service.core.errors import CREATE_REFUSALS, DuplicateMember, Invalid, NotANumber


def documented(refusal: type[Invalid]) -> re.Pattern[str]:
    """What an answer of `refusal` says: its text, with anything in its places."""
    return re.compile(re.sub(r"\\\{\w+\\\}", ".*", re.escape(refusal.text)), re.DOTALL)


DOCUMENTED_400 = tuple(
    documented(refusal) for refusal in (*CREATE_REFUSALS, DuplicateMember, NotANumber)
)
"""Every text a create may answer a 400 with."""
