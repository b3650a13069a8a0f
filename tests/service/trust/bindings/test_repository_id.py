"""Every kind of JSON value as `repository_id`."""

import json

import pytest

from tests.conftest import ISSUER, World, binding_body, bindings_path, refused

NOT_DIGITS = "repository_id must be a positive integer string"
NOT_INTEGER = "repository_id must be a positive integer or its string form"
MISSING = f"repository_id is required for issuer {ISSUER}"
ARABIC_SEVEN = "\u0667"
FULLWIDTH_SEVEN = "\uff17"
SUPERSCRIPT_SEVEN = "\u2077"


async def create_with(world: World, literal: str):
    """POST a valid body in which `repository_id` is this JSON text; the response."""
    body = json.dumps(binding_body(repository_id="PLACE")).replace('"PLACE"', literal)
    return await world.client.post(
        bindings_path(),
        headers={**world.admin, "content-type": "application/json"},
        data=body.encode(),
    )


@pytest.mark.parametrize(
    ("literal", "stored"),
    [
        ('"7"', "7"),
        ("7", "7"),
        ('"007"', "7"),
        ('"070"', "70"),
        ('"' + "0" * 31 + '7"', "7"),
        ("9007199254740993", "9007199254740993"),
        ('"18446744073709551617"', "18446744073709551617"),
        ("9" * 32, "9" * 32),
    ],
)
async def test_a_positive_integer_is_stored_in_one_spelling(
    world: World, literal: str, stored: str
):
    """Digits without leading zeros, exact at any size: a claim is compared with this text."""
    response = await create_with(world, literal)

    assert response.status_code == 201
    assert (await response.get_json())["repositoryId"] == stored
    assert [binding["repositoryId"] for binding in await world.bindings()] == [stored]


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("true", NOT_INTEGER),
        ("false", NOT_INTEGER),
        ("1.0", NOT_INTEGER),
        ("1e3", NOT_INTEGER),
        ("1E400", NOT_INTEGER),
        ("0.5", NOT_INTEGER),
        ("-1", NOT_INTEGER),
        ("-1.5", NOT_INTEGER),
        ("0", NOT_INTEGER),
        ("-0", NOT_INTEGER),
        ("1" + "0" * 32, NOT_INTEGER),
        ("9" * 64, NOT_INTEGER),
        ("9" * 65, NOT_INTEGER),
        ("9" * 5000, NOT_INTEGER),
        ("-" + "9" * 5000, NOT_INTEGER),
        ("[]", NOT_INTEGER),
        ("[7]", NOT_INTEGER),
        ("{}", NOT_INTEGER),
        ('""', NOT_DIGITS),
        ('"0"', NOT_DIGITS),
        ('"000"', NOT_DIGITS),
        ('" 1"', NOT_DIGITS),
        ('"1 "', NOT_DIGITS),
        ('"1\\n"', NOT_DIGITS),
        ('"+1"', NOT_DIGITS),
        ('"-1"', NOT_DIGITS),
        ('"1.0"', NOT_DIGITS),
        ('"1e3"', NOT_DIGITS),
        ('"1_000"', NOT_DIGITS),
        ('"0x7"', NOT_DIGITS),
        (f'"{ARABIC_SEVEN}"', NOT_DIGITS),
        (f'"{FULLWIDTH_SEVEN}"', NOT_DIGITS),
        (f'"{SUPERSCRIPT_SEVEN}"', NOT_DIGITS),
        ('"7\\u200b"', NOT_DIGITS),
        ('"\\ud800"', NOT_DIGITS),
        ('"' + "9" * 33 + '"', NOT_DIGITS),
        ('"' + "9" * 5000 + '"', NOT_DIGITS),
        ("null", MISSING),
    ],
    ids=lambda text: text[:12].encode("unicode_escape").decode(),
)
@pytest.mark.asyncio(loop_scope="module")
async def test_everything_else_is_refused(shared_world: World, literal: str, text: str):
    """Two spellings of one id would be two slots; a float may not be the number that was meant."""
    assert await refused(await create_with(shared_world, literal)) == (400, text)
    assert await shared_world.bindings() == []


async def test_spellings_of_one_id_share_a_slot(world: World):
    """The slot is made of the stored spelling."""
    assert (await create_with(world, '"007"')).status_code == 201

    for literal in ("7", '"7"', '"07"'):
        assert (await create_with(world, literal)).status_code == 409
