"""Replaces what differs from run to run by names that count up in each text."""

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

_ID: Final = re.compile(
    r"(?<![a-z])([a-z]{2,12})_"
    r"(?:[0-9a-hjkmnp-tv-z]{16}|[0-9a-f]{24}|[0-9a-hjkmnp-tv-z]{8,15}(?=…|\\+u2026))(?![0-9a-z])"
)
"""Of `service.core.ids`, and request ids. Ids of audit rows count up, and stay.

In an address the hexadecimal digits of an encoded character may stand before one. A long text is
cut in the middle of one.
"""
_SAMPLE: Final = re.compile(r"^(\w+(?:\{.*\})?) [-+.\de]+$", re.MULTILINE)
"""A line of Prometheus' text format."""
_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_SECRET: Final = re.compile(r"(?<![\w-])[\w-]{32,}")
_DURATION: Final = re.compile(r"\b\d[\d,]*(?:\.\d+)? (ms|µs)(?!\w)|(?<=after )\d+\.\d+ (s)\b")
_DURATION_MEMBER: Final = re.compile(r'("\w*(?:seconds|_ms|_s)": )\d+\.\d+')
_USER_CODE: Final = re.compile(r"\b[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}\b")
_EXPIRES: Final = re.compile(r"\bExpires=[^;]+GMT")
_KINDS: Final = 3
_AUDIT_ID: Final = "aud"


class Normaliser:
    """Normalises texts; equal values have equal names within one of them.

    `constants` are texts to replace by a name wherever they are, such as a folder or a port.
    """

    def __init__(self, constants: Mapping[str, str]) -> None:
        # The longest first: one may be part of another one.
        self._constants = sorted(constants.items(), key=lambda pair: -len(pair[0]))

    def __call__(self, text: str) -> str:
        """`text` with ids, secrets and durations replaced, in order of their appearance."""
        for value, name in self._constants:
            text = text.replace(value, f"{{{name}}}")
        names = _Names()
        text = _UUID.sub(lambda found: names.of("uuid", found[0]), text)
        text = _ID.sub(lambda found: names.of_id(found[1], found[0]), text)
        text = _SECRET.sub(lambda found: names.of_secret(found[0]), text)
        text = _USER_CODE.sub(lambda found: names.of("code", found[0]), text)
        text = _EXPIRES.sub("Expires=T", text)
        text = _SAMPLE.sub(r"\1 N", text)
        text = _DURATION.sub(lambda found: f"N {found[1] or found[2]}", text)
        return _DURATION_MEMBER.sub(r"\1N", text)


class _Names:
    """The names that the values of one text have been given."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def of(self, kind: str, value: str) -> str:
        if value not in self._known:
            self._counts[kind] += 1
            self._known[value] = f"{kind}_{self._counts[kind]}"
        return self._known[value]

    def of_id(self, kind: str, value: str) -> str:
        return value if kind == _AUDIT_ID else self.of(kind, value)

    def of_secret(self, value: str) -> str:
        """A hexadecimal digest, or random base64url; other long words are text."""
        if re.fullmatch(r"[0-9a-f]{32,}(-identity)?", value):
            return self.of("hex", value)
        if is_random(value):
            return self.of("secret", value)
        return value


def is_random(word: str) -> bool:
    """True if `word` changes between digits, small and capital letters as random text does."""
    kinds = [(each.isdigit(), each.islower(), each.isupper()) for each in word]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return len(set(kinds)) >= _KINDS and changes > len(word) / 3
