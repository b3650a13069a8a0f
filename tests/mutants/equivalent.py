"""Mutants that change nothing that could be noticed, by their names, each with the reason."""

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {}
