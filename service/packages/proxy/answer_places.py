"""Bounds the answers to package managers that a process has under way, by organisation and key.

A client may read its answer slowly, or not at all, and holds a connection, memory and an open file
meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from service.core.errors import TooManyAnswers


class AnswerPlaces:
    """The answers under way. Lives in one event loop."""

    def __init__(
        self,
        per_org: int,
        per_key: int,
        *,
        observe: Callable[[str, int], None] = lambda _org, _under_way: None,
        refused: Callable[[str, str], None] = lambda _org, _reason: None,
    ) -> None:
        """`observe` gets an organisation and its answers under way, whenever that changes.

        `refused` gets the organisation of an answer that is refused, and why. Both for metrics.
        """
        self._per_org = per_org
        self._per_key = per_key
        self._observe = observe
        self._refused = refused
        self._by_org = Counter[str]()
        self._by_key = Counter[str]()

    @property
    def under_way(self) -> int:
        """How many answers are under way."""
        return self._by_org.total()

    def hold(self, org: str, key: str) -> None:
        """Count an answer, until the current task ends: Quart sends the last byte in it.

        Raises TooManyAnswers.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an answer is made in a task")
        if self._by_key[key] >= self._per_key:
            self._refused(org, "answers_of_key")
            raise TooManyAnswers(whose="key", setting="COUNTERSIGN_PROXY_ANSWERS_PER_KEY_MAX")
        if self._by_org[org] >= self._per_org:
            self._refused(org, "answers_of_org")
            raise TooManyAnswers(
                whose="organisation", setting="COUNTERSIGN_PROXY_ANSWERS_PER_ORG_MAX"
            )
        self._count(org, key, 1)
        task.add_done_callback(lambda _: self._count(org, key, -1))

    def _count(self, org: str, key: str, change: int) -> None:
        self._by_org[org] += change
        self._by_key[key] += change
        self._observe(org, self._by_org[org])
        for counts, name in ((self._by_org, org), (self._by_key, key)):
            if not counts[name]:
                del counts[name]
