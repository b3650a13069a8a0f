"""What a person cannot see must not be part of what they trust."""

import json
import unicodedata

import pytest

from tests.conftest import World, binding_body, bindings_path, refused

SUB_TEXT = "sub_pattern must be 1..1024 chars with no whitespace / control characters"
EVENT_TEXT = "every event_names entry must be a non-whitespace 1..64-char string"

HIDDEN = {
    "space": " ",
    "tab": "\t",
    "line feed": "\n",
    "carriage return": "\r",
    "vertical tab": "\v",
    "form feed": "\f",
    "nul": "\x00",
    "unit separator": "\x1f",
    "delete": "\x7f",
    "next line": "\x85",
    "C1 control": "\x9b",
    "no-break space": "\u00a0",
    "soft hyphen": "\u00ad",
    "arabic letter mark": "\u061c",
    "mongolian vowel separator": "\u180e",
    "en quad": "\u2000",
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "left-to-right mark": "\u200e",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "right-to-left override": "\u202e",
    "word joiner": "\u2060",
    "isolate": "\u2066",
    "ideographic space": "\u3000",
    "byte order mark": "\ufeff",
    "tag letter": "\U000e0061",
    "lone high surrogate": "\ud800",
    "lone low surrogate": "\udfff",
}


def spellings(hidden: str) -> list[str]:
    """A hidden character before, within and after what can be seen, and alone."""
    return [f"{hidden}push", f"pu{hidden}sh", f"push{hidden}", hidden]


async def create_raw(world: World, **changes: object):
    """POST a valid body with `changes`, everything but ASCII as JSON escapes; the response."""
    return await world.client.post(
        bindings_path(),
        headers={**world.admin, "content-type": "application/json"},
        data=json.dumps(binding_body(**changes)).encode("ascii"),
    )


class TestHiddenCharacters:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize("name", HIDDEN)
    async def test_none_is_part_of_a_sub_pattern(self, shared_world: World, name: str):
        """It would look like the identity that was meant, and be another one."""
        for spelling in spellings(HIDDEN[name]):
            answer = await create_raw(shared_world, sub_pattern=spelling)
            assert await refused(answer) == (400, SUB_TEXT), spelling.encode("unicode_escape")

    @pytest.mark.parametrize("name", HIDDEN)
    async def test_none_is_part_of_an_event_name(self, shared_world: World, name: str):
        """One bad entry refuses the whole request."""
        for spelling in spellings(HIDDEN[name]):
            answer = await create_raw(shared_world, event_names=["release", spelling])
            assert await refused(answer) == (400, EVENT_TEXT), spelling.encode("unicode_escape")

    @pytest.mark.slow
    async def test_no_character_of_a_refused_category_gets_through(self, shared_world: World):
        """The list above has examples; this is all of them but for the surrogates between."""
        hidden = [
            character
            for character in map(chr, range(0x110000))
            if character.isspace()
            or unicodedata.category(character) in {"Cc", "Cf", "Zs", "Zl", "Zp"}
        ]
        accepted = [
            character.encode("unicode_escape")
            for character in hidden
            if (await create_raw(shared_world, sub_pattern=f"a{character}b")).status_code != 400
        ]

        assert len(hidden) > 200
        assert accepted == []


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
async def test_what_is_stored_is_what_was_sent(world: World, form):
    """No normalisation: the issuer's `sub` is compared code point by code point."""
    sub = unicodedata.normalize(form, "repo:acme/\ufb01le-é-Å")
    event = unicodedata.normalize(form, "déploy")

    assert (await create_raw(world, sub_pattern=sub, event_names=[event])).status_code == 201

    (binding,) = await world.bindings()
    assert (binding["subPattern"], binding["eventNames"]) == (sub, [event])


async def test_two_normal_forms_of_one_text_are_two_slots(world: World):
    """They are different claims, however alike they look."""
    composed, decomposed = "repo:acme/\u00e9", "repo:acme/e\u0301"

    assert (await create_raw(world, sub_pattern=composed)).status_code == 201
    assert (await create_raw(world, sub_pattern=decomposed)).status_code == 201


@pytest.mark.parametrize("sub", ["repo:acme/*", "repo:%", "repo:_", "^repo:.*$", "{value}", "🦊"])
async def test_a_sub_pattern_has_no_wildcards(world: World, sub: str):
    assert (await create_raw(world, sub_pattern=sub)).status_code == 201
    assert (await create_raw(world, sub_pattern="repo:acme/x")).status_code == 201

    assert {binding["subPattern"] for binding in await world.bindings()} == {sub, "repo:acme/x"}
