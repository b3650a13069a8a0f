"""Lists a page at a time: with `limit` and `cursor`, and `next_cursor` in the answer."""

from dataclasses import dataclass
from typing import Self

import msgspec

from analytics.model.cursors import InvalidCursor, seal, unseal
from service.core.secrets import derive_key
from service.core.settings import Settings
from service.web.refusals import INVALID_CURSOR


@dataclass(frozen=True, slots=True)
class ListCursors:
    """The cursors of one list, `scope`: opaque, signed, and good for no other list."""

    key: bytes
    scope: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings, *scope: str) -> Self:
        """The cursors of the list that `scope` names: what is listed, of whom, which part."""
        return cls(derive_key(settings.secret_key, "list cursor"), scope)

    def encode(self, *place: str) -> str:
        """A cursor behind `place`: what the list is sorted by, of the last row shown."""
        return seal(msgspec.msgpack.encode(place), self.key, msgspec.json.encode(self.scope))

    def decode(self, text: str) -> list[str]:
        """The place that the cursor `text` was made for. Raises INVALID_CURSOR."""
        try:
            body = unseal(text, self.key, msgspec.json.encode(self.scope))
        except InvalidCursor as error:
            raise INVALID_CURSOR from error
        return msgspec.msgpack.decode(body, type=list[str])
