"""The picture of the rooms in docs/architecture.md."""

import pytest

from service.core.settings import REPOSITORY
from tests.docs.rooms_picture import PICTURE, arrows, draw, floors, room_imports
from tests.test_imports import ROOMS


def test_the_picture_shows_the_imports_as_they_are() -> None:
    """To draw it again: python -m tests.docs.rooms_picture."""
    assert PICTURE.read_text() == draw(REPOSITORY / "service")
    assert "rooms.svg" in (REPOSITORY / "docs" / "architecture.md").read_text()


def test_every_room_is_on_one_floor_above_what_it_imports() -> None:
    imports = room_imports(REPOSITORY / "service")
    height = {room: level for level, names in enumerate(floors(imports)) for room in names}

    assert set(height) == set(ROOMS)
    assert all(height[room] > height[target] for room in imports for target in imports[room])


def test_an_import_that_follows_from_others_has_no_arrow() -> None:
    imports = {"top": {"middle", "bottom"}, "middle": {"bottom"}, "bottom": set()}

    assert arrows(imports) == [("middle", "bottom"), ("top", "middle")]


def test_a_circle_is_no_house() -> None:
    with pytest.raises(ValueError, match="import each other"):
        floors({"a": {"b"}, "b": {"a"}, "c": set()})
