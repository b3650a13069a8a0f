"""Detects requests that another site made a member's browser send, and forms of another session."""

import hashlib
import hmac
from typing import Final

from quart import Request

from service.access.refusals import CROSS_SITE, FOREIGN_FORM
from service.core.secrets import derive_key

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# `none` is the user's own doing, such as a bookmark. Not `same-site`: other hosts of the domain may
# belong to others.
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def is_cross_site(
    method: str, origin: str | None, fetch_site: str | None, own_origin: str, *, is_form: bool
) -> bool:
    """True if a state-changing request with a cookie must be refused.

    Browsers send the requesting site in `Origin` (`null` if hidden) and `Sec-Fetch-Site`; both must
    match ours. A client that sends neither is not a current browser: allowed on the API, where
    scripts send cookies, refused for forms (`is_form`).
    """
    if method in SAFE_METHODS:
        return False
    if origin is None and fetch_site is None:
        return is_form
    return (origin is not None and origin != own_origin) or (
        fetch_site is not None and fetch_site not in _OWN_SITES
    )


def refuse_cross_site_form(request: Request, own_origin: str) -> None:
    """Raise CROSS_SITE unless the form was submitted from one of our own pages."""
    if is_cross_site(
        request.method,
        request.headers.get("origin"),
        request.headers.get("sec-fetch-site"),
        own_origin,
        is_form=True,
    ):
        raise CROSS_SITE


FORM_TOKEN_FIELD = "csrf"  # noqa: S105 - a field's name


def csrf_token(secret_key: str, session_id: str) -> str:
    """The token in every form of this session."""
    key = derive_key(secret_key, "form token")
    return hmac.new(key, session_id.encode(), hashlib.sha256).hexdigest()


def check_form_token(given: str | None, secret_key: str, session_id: str) -> None:
    """Raise FOREIGN_FORM unless `given` is this session's form token."""
    expected = csrf_token(secret_key, session_id)
    # In constant time: otherwise the duration would tell how much of a guess is right.
    if not hmac.compare_digest((given or "").encode(errors="replace"), expected.encode()):
        raise FOREIGN_FORM
