"""One release of a package, as policy sees it."""

from dataclasses import dataclass
from datetime import datetime

from service.packages.ecosystems import Ecosystem


@dataclass(frozen=True, slots=True)
class Release:
    """One file, or a whole version, of a package.

    `name` is canonical, `version` as the registry spells it. `published_at` is None if the registry
    does not say. `digests` are `sha256:<hex>`, `sha512:<hex>` or `sha1:<hex>`, in lower case.
    """

    ecosystem: Ecosystem
    name: str
    version: str
    published_at: datetime | None = None
    digests: frozenset[str] = frozenset()
