"""The versions of the simple repository API (PEP 629) that we read and serve."""

import re
from typing import Final

from service.packages.proxy.documents import DocumentInvalid

MINOR_MAX: Final = 4
"""The newest minor version whose additions are passed on: 1.4 has project status (PEP 792)."""

_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


def parse_minor(version: str) -> int:
    """The minor number of a version such as `1.1`. Raises DocumentInvalid unless it is 1.x."""
    match = _VERSION.fullmatch(version)
    if match is None or int(match[1]) != 1:
        raise DocumentInvalid("page is not of version 1 of the repository API")
    return int(match[2])
