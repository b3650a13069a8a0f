"""The rules of a policy that name releases, merged for one package."""

import hashlib
from collections.abc import Sequence

from service.packages.ecosystem import ComparableVersion
from service.packages.intervals import IntervalIndex
from service.packages.policy.model import ReleaseRule
from service.packages.versions import sort_key


class Rules:
    """Rules on one package, of which the first that includes a version decides.

    `fingerprint` changes whenever one of them does.
    """

    def __init__(self, rules: Sequence[ReleaseRule]) -> None:
        self._rules = rules
        self._index = IntervalIndex([list(rule.intervals()) for rule in rules])
        contents = [(rule.rule_id, rule.texts, rule.reason, rule.withdrawn) for rule in rules]
        self.fingerprint = hashlib.sha256(repr(contents).encode()).hexdigest()

    def __bool__(self) -> bool:
        """True if there is any."""
        return bool(self._rules)

    def __len__(self) -> int:
        """How many rules there are."""
        return len(self._rules)

    @property
    def cuts(self) -> int:
        """How many bounds of ranges were merged."""
        return len(self._index)

    @property
    def ranges(self) -> int:
        """How many ranges the rules have."""
        return sum(len(rule.texts) for rule in self._rules)

    def first(self, version: ComparableVersion) -> ReleaseRule | None:
        """The first rule that includes `version`, found by one binary search."""
        number = self._index.first(sort_key(version))
        return None if number is None else self._rules[number]

    def first_or_any(self, version: ComparableVersion | None) -> ReleaseRule | None:
        """As `first`; the very first one for a version that cannot be read (None).

        It cannot be shown to lie outside any range.
        """
        if version is None:
            return self._rules[0] if self._rules else None
        return self.first(version)

    def first_proven(self, version: ComparableVersion | None) -> ReleaseRule | None:
        """As `first`; for a version that cannot be read the first rule for all versions.

        It cannot be shown to lie inside a range.
        """
        if version is None:
            return next((rule for rule in self._rules if not rule.texts), None)
        return self.first(version)
