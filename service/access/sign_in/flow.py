"""A sign-in in progress: the request to the provider, and what its answer must match."""

import base64
import hashlib
import hmac
import re
import secrets
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlencode

from service.access.sign_in.providers import Provider
from service.access.sign_in.signed_cookie import SignedValue, expiry

NEXT_CHARS_MAX: Final = 1000
_RANDOM_BYTES: Final = 32
# A path of our own pages without empty or dotted segments, escapes or backslashes: all parsers take
# it for this path on this host, so it cannot redirect to another one.
_OWN_PAGE: Final = re.compile(
    r"(/device|/admin/ui/(profile(/sign-in-again)?|orgs/(?P<slug>[A-Za-z0-9-]{1,64})(/[A-Za-z0-9_-]+)*))"
    r"(\?[!-\[\]-~]*)?",
    re.ASCII,
)


class Flow(SignedValue, frozen=True, kw_only=True):
    """A sign-in in progress: `id` is its state; `verifier` is PKCE's (RFC 7636, 4.1)."""

    provider: str
    nonce: str
    verifier: str
    next: str | None

    def has_state(self, given: str | None) -> bool:
        """True if `given` is this sign-in's state."""
        return given is not None and hmac.compare_digest(
            self.id.encode(), given.encode(errors="replace")
        )


def begin(provider: Provider, next_page: str | None, now: datetime) -> Flow:
    """A new sign-in with `provider`. Its three secrets are independent."""
    return Flow(
        id=secrets.token_urlsafe(_RANDOM_BYTES),
        expires_at=expiry(now),
        provider=provider.name,
        nonce=secrets.token_urlsafe(_RANDOM_BYTES),
        verifier=secrets.token_urlsafe(_RANDOM_BYTES),
        next=next_page,
    )


def authorization_url(endpoint: str, provider: Provider, flow: Flow, redirect_uri: str) -> str:
    """The provider's URL for authenticating the user (RFC 6749, 4.1.1; RFC 7636, 4.3)."""
    parameters = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": redirect_uri,
        "scope": provider.scope,
        "state": flow.id,
        "code_challenge": code_challenge(flow.verifier),
        "code_challenge_method": "S256",
        "prompt": "select_account",
    }
    if provider.id_tokens is not None:
        parameters["nonce"] = flow.nonce
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"


def code_challenge(verifier: str) -> str:
    """The S256 challenge of `verifier` (RFC 7636, 4.2)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def own_page(text: str | None) -> str | None:
    """`text` if it is the address of one of our pages that need a session, else None."""
    if text is None or len(text) > NEXT_CHARS_MAX or not _OWN_PAGE.fullmatch(text):
        return None
    return text


def page_after(next_page: str | None, slug: str) -> str:
    """The page to show after a sign-in to the organisation `slug`."""
    page = _OWN_PAGE.fullmatch(next_page or "")
    if page is not None and page["slug"] in {None, slug}:
        return page[0]
    return overview_path(slug)


def overview_path(slug: str) -> str:
    """Path of an organisation's first page, which each of its members may read."""
    return f"/admin/ui/orgs/{quote(slug)}"
