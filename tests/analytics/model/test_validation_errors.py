"""Errors of shape name the field and the rule, in the API's words."""

from typing import Annotated

import msgspec
import pytest

from analytics.model.validation_errors import describe


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(ge=1, le=9)]


class Item(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=3)]
    version: str | None = None
    tags: Annotated[list[str], msgspec.Meta(max_length=2)] = []
    inner: Inner | None = None
    is_set: bool = False


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("{}", "name is required"),
        ('{"name": "a", "more": 1}', "unknown field: more"),
        ('{"name": 1}', "name must be a string, not an integer"),
        ('{"name": ""}', "name must have at least 1 characters"),
        ('{"name": "long"}', "name must have at most 3 characters"),
        ('{"name": "a", "version": 1}', "version must be a string or null, not an integer"),
        ('{"name": "a", "tags": ["a", 1]}', "tags[1] must be a string, not an integer"),
        ('{"name": "a", "tags": ["a", "b", "c"]}', "tags must have at most 2 items"),
        ('{"name": "a", "is_set": "yes"}', "is_set must be true or false, not a string"),
        ('{"name": "a", "inner": {}}', "inner.count is required"),
        ('{"name": "a", "inner": {"count": 0}}', "inner.count must be at least 1"),
        ('{"name": "a", "inner": {"count": 10}}', "inner.count must be at most 9"),
        ('{"name": "a", "inner": {"count": 1, "x": 2}}', "unknown field: inner.x"),
        ("[]", "item must be a JSON object, not an array"),
    ],
)
def test_a_fault_names_its_field_and_the_rule(raw: str, text: str) -> None:
    """The library's own texts speak of Python's types and of `$`."""
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(raw, type=Item)

    assert describe(raised.value) == text


def test_a_member_s_fault_has_the_path_from_the_item() -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode('{"count": "1"}', type=Inner)

    assert describe(raised.value, "envelope") == "envelope.count must be an integer, not a string"
    assert describe(msgspec.ValidationError("Some other rule"), "envelope") == (
        "envelope: Some other rule"
    )
