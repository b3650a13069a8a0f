"""GitHub's issuer as it is shipped."""

from service.ci.issuers.issuers import load_issuers
from service.core.settings import Settings
from tests.conftest import ISSUER

GITHUB = load_issuers(Settings().issuers_file)[ISSUER]
