"""Form tokens: proof that a form came from a page this session was shown."""

import hashlib
import hmac

from service.secrets import derive_key


def csrf_token(secret_key: str, session_id: str) -> str:
    """The token every form of this session carries."""
    key = derive_key(secret_key, "form token")
    return hmac.new(key, session_id.encode(), hashlib.sha256).hexdigest()
