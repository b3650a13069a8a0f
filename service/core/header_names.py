"""The headers, and the cookie, that carry credentials."""

from typing import Final

API_KEY_HEADER: Final = "x-service-api-key"
ADMIN_TOKEN_HEADER: Final = "x-service-admin-token"  # noqa: S105 - a header's name
CI_TOKEN_HEADER: Final = "x-service-ci-oidc"  # noqa: S105 - a header's name
SESSION_COOKIE: Final = "admin_session"
