"""The issuers file: which CI identity providers there are, and which are accepted."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from service.settings import InvalidSetting

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One CI identity provider and how its tokens are read."""

    url: str
    provider: Literal["github", "gitlab", "circleci"]
    accepted: bool
    algorithms: Annotated[tuple[Algorithm, ...], msgspec.Meta(min_length=1)]
    requires_repository_id: bool
    repository_id_claim: str
    event_name_claim: str | None = None
    run_id_claim: str | None = None
    owner_claim: str | None = None
    jwks_uri: str | None = None


Issuers = Mapping[str, Issuer]
"""Issuer URL to issuer; accepted ones only."""


def load_issuers(path: Path) -> Issuers:
    """The accepted issuers of the file at `path`. Raises InvalidSetting."""
    try:
        tables = tomllib.loads(path.read_text())
        issuers = msgspec.convert(tables, dict[str, Issuer])
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise InvalidSetting(f"COUNTERSIGN_ISSUERS_FILE {path}: {error}") from error
    return {issuer.url: issuer for issuer in issuers.values() if issuer.accepted}
