"""The ecosystems that the service supports, as a type shared with audit rows."""

from analytics.model.rows import Ecosystem

__all__ = ["Ecosystem"]
