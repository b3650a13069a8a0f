"""The documented texts of refusals, as patterns."""

import re

from service.core.errors import Invalid
from service.trust.refusals import CREATE_REFUSALS
from service.web.refusals import DUPLICATE_MEMBER, NOT_A_NUMBER


def documented(refusal: type[Invalid]) -> re.Pattern[str]:
    """What an answer of `refusal` says: its text, with anything in its places."""
    return re.compile(re.sub(r"\\\{\w+\\\}", ".*", re.escape(refusal.text)), re.DOTALL)


DOCUMENTED_400 = tuple(
    documented(refusal) for refusal in (*CREATE_REFUSALS, DUPLICATE_MEMBER, NOT_A_NUMBER)
)
"""Every text a create may answer a 400 with."""
