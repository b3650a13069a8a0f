"""The addresses of blocked tarballs: they say why, for clients that print only an address."""

import re
from typing import Final

from service.packages.proxy.blocked import words_of

_BLOCKED: Final = re.compile(r"blocked/[A-Za-z0-9][A-Za-z0-9._-]*/(?=[^/]+\Z)")


def blocked_folder(reason: str) -> str:
    """The folder in the address of a tarball that is blocked for `reason`: `blocked/too-new/`."""
    words = words_of(reason).lstrip("._-")
    return f"blocked/{words or 'policy'}/"


def without_folder(file: str) -> str:
    """`file` without the folder for blocked tarballs, which has no effect on the decision."""
    return _BLOCKED.sub("", file, count=1) if file.startswith("blocked/") else file
