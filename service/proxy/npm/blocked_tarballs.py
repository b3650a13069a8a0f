"""The addresses of blocked tarballs: they say why, for clients that print an address alone."""

import re
from typing import Final

from service.proxy.blocked import words_of

_BLOCKED: Final = re.compile(r"blocked/[A-Za-z0-9][A-Za-z0-9._-]*/(?=[^/]+\Z)")


def blocked_folder(reason: str) -> str:
    """What stands before the name of a tarball that is blocked for `reason`: `blocked/too-new/`."""
    words = words_of(reason).lstrip("._-")
    return f"blocked/{words or 'policy'}/"


def without_folder(file: str) -> str:
    """`file` as if it were not blocked: what is said there decides nothing."""
    return _BLOCKED.sub("", file, count=1) if file.startswith("blocked/") else file
