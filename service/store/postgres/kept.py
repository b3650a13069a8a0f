"""Values that a process's write transactions hand on while no other transaction commits."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

KEPT_MAX: Final = 10_000
"""How many values transactions may keep for later ones."""


@dataclass(frozen=True, slots=True)
class Position:
    """The snapshot that a transaction sees, as text, and its own transaction id."""

    visible: str
    own: int

    @property
    def is_next(self) -> bool:
        """True if every transaction with a smaller id has ended, and none with a larger one."""
        return self.visible == _all_before(self.own)

    @property
    def after_commit(self) -> str:
        """What is visible after this transaction's commit, if `is_next` and no other commits."""
        return _all_before(self.own + 1)


def _all_before(transaction_id: int) -> str:
    return f"{transaction_id}:{transaction_id}:"


@dataclass(slots=True)
class KeptValues:
    """The values that the last write transaction left, and what must be visible to use them."""

    visible: str | None = None
    values: dict[Hashable, Any] = field(default_factory=dict)

    def take(self, position: Position) -> dict[Hashable, Any]:
        """The values, or none if another transaction may have committed since.

        They are removed from here: if the transaction fails, they are not true.
        """
        values, is_current = self.values, self.visible == position.visible
        self.visible, self.values = None, {}
        return values if is_current and len(values) <= KEPT_MAX else {}

    def leave(self, position: Position, values: dict[Hashable, Any]) -> None:
        """Keep `values`, which are true as of the transaction's commit, for the next one."""
        # Another transaction that is in flight could commit after this one, unseen by `visible`.
        if position.is_next:
            self.visible, self.values = position.after_commit, values
