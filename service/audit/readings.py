"""What a text in a search may mean. Rooms above contribute readings of the words that they know."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from service.access.callers import Caller, is_allowed
from service.access.roles import Capability
from service.store.store import Store
from service.store.tables import Organisation

FilterValues = tuple[str, ...]

VERSION: Final = "version"
"""The filter that a reading's package does not depend on."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows that meet all `filters`: parameters and values, in the syntax of `parse_query`.

    With `includes`, the one value of the filter `version` is a range: rows of the versions that
    it includes, of a value of the filter `package`, are meant. `all_versions` are the filters
    without the range, once `filters` have the versions of it that rows have.
    """

    filters: Mapping[str, FilterValues]
    includes: Callable[[str, str], bool] | None = None
    all_versions: Mapping[str, FilterValues] | None = None

    @property
    def identity(self) -> dict[str, FilterValues]:
        """The filters without that of the version."""
        return {name: values for name, values in self.filters.items() if name != VERSION}


@dataclass(frozen=True, slots=True)
class Searcher:
    """Who searches the log of an organisation, and what is asked about its words."""

    store: Store
    org: Organisation
    caller: Caller

    def may(self, capability: Capability) -> bool:
        """Whether the caller has the capability: to read the log alone gives no other."""
        return is_allowed(self.caller.require, capability, self.org)


WordReader = Callable[[Searcher, str], Awaitable[Sequence[Reading]]]
"""Reads texts of one kind for a searcher: one word of a search, or several as typed.

Returns what the text may mean, the likeliest first: nothing if it is none of this kind. Raises
InvalidQuery for what can have no rows.
"""


def distinct(readings: Sequence[Reading]) -> list[Reading]:
    """`readings` without those that have the same filters as an earlier one."""
    result: list[Reading] = []
    for reading in readings:
        if all(_key(reading) != _key(other) for other in result):
            result.append(reading)
    return result


def _key(reading: Reading) -> tuple[Mapping[str, FilterValues], bool]:
    return reading.filters, reading.includes is None
