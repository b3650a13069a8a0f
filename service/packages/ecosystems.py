"""The ecosystems whose packages the service knows; the same type that audit rows name."""

from analytics.model.rows import Ecosystem

__all__ = ["Ecosystem"]
