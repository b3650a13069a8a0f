"""Form tokens prove that a form comes from a page that was served to the same session."""

import hashlib
import hmac

from service.access.refusals import FOREIGN_FORM
from service.core.secrets import derive_key

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
