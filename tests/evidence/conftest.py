"""The fixtures of tests with other verifiers."""

from tests.evidence.verifiers import other_verifiers

__all__ = ["other_verifiers"]
