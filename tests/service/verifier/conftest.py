"""What tests of the verifier share."""

from tests.issuers.fixtures import issuer_process

__all__ = ["issuer_process"]
