"""The package manager that sends a request, by its `User-Agent` header."""

import re
from typing import Final

from analytics.model.rows import CLIENT_MAX

# A product as RFC 9110 (10.1.5) defines it: a name, and a version behind a slash.
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PRODUCT: Final = re.compile(rf"({_WORD}(?:/{_WORD})?)(?:[ \t(]|$)", re.ASCII)


def client_of(user_agent: str | None) -> str | None:
    """The first product that the header names, such as `pip/26.3` or `npm/11.19.1`.

    None if it begins with anything else, or if that is longer than a row keeps: a client could
    send any text, and a part of it would name another client.
    """
    product = _PRODUCT.match(user_agent or "")
    if product is None or len(product[1]) > CLIENT_MAX:
        return None
    return product[1]
