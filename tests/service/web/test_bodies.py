"""How a JSON body is read: strictly, and of bounded size."""

import gzip
import json

import pytest

from tests.conftest import World, binding_body, bindings_path, refused

VALID = json.dumps(binding_body()).encode()
NOT_JSON = (415, "content-type must be application/json")
NOT_AN_OBJECT = (400, "request body must be a JSON object")
TOO_LARGE = (413, "request body is too large")
BODY_MAX = 64 * 1024


async def post(world: World, raw: bytes, content_type: str | None = "application/json"):
    """POST `raw` to the create endpoint; the response."""
    headers = world.admin if content_type is None else {**world.admin, "content-type": content_type}
    return await world.client.post(bindings_path(), headers=headers, data=raw)


def padded(size: int) -> bytes:
    """A valid body of exactly `size` bytes: JSON allows spaces."""
    return VALID + b" " * (size - len(VALID))


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "APPLICATION/JSON",
        "Application/Json",
    ],
)
async def test_a_json_body_is_accepted_under_every_spelling_of_its_type(
    world: World, content_type: str
):
    """Media types are case-insensitive and may carry parameters (RFC 9110, 8.3.1)."""
    assert (await post(world, VALID, content_type)).status_code == 201


class TestRefusedBodies:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize(
        "content_type",
        [
            None,
            "",
            "text/plain",
            "text/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/json-patch+json",
            "application/vnd.api+json",
            "application/octet-stream",
        ],
    )
    async def test_a_body_of_another_type_is_415(
        self, shared_world: World, content_type: str | None
    ):
        """Forms of other sites can send these types and no other, without a preflight."""
        assert await refused(await post(shared_world, VALID, content_type)) == NOT_JSON

    @pytest.mark.parametrize("content_type", [None, "application/json", "text/plain"])
    async def test_an_empty_body_is_no_object(self, shared_world: World, content_type: str | None):
        assert await refused(await post(shared_world, b"", content_type)) == NOT_AN_OBJECT

    @pytest.mark.parametrize(
        "raw",
        [
            b"null",
            b"true",
            b"7",
            b'"text"',
            b"[]",
            b"[" + VALID + b"]",
            b"{",
            b"{}{}",
            VALID + b",",
            VALID + b"\x00",
            b"\xa0" + VALID,
            b"{'issuer': 'x'}",
            b'{"issuer": "x",}',
            b'// comment\n{"issuer": "x"}',
            b'{"issuer": undefined}',
            b'{"issuer": 01}',
            b'{"issuer": "line\nbreak"}',
        ],
        ids=repr,
    )
    async def test_what_is_not_one_json_object_is_refused(self, shared_world: World, raw: bytes):
        """RFC 8259 and nothing beside it."""
        assert await refused(await post(shared_world, raw)) == NOT_AN_OBJECT

    @pytest.mark.parametrize(
        "raw",
        [
            pytest.param(VALID.decode().encode("utf-16"), id="utf-16 with mark"),
            pytest.param(VALID.decode().encode("utf-16-le"), id="utf-16-le"),
            pytest.param(VALID.decode().encode("utf-32"), id="utf-32"),
            pytest.param(b"\xef\xbb\xbf" + VALID, id="utf-8 with mark"),
            pytest.param(VALID.replace(b"acme", b"acm\xe9"), id="latin-1"),
            pytest.param(VALID.replace(b"acme", b"\xed\xa0\x80"), id="surrogate as utf-8"),
            pytest.param(VALID.replace(b"acme", b"\xc0\xaf"), id="overlong utf-8"),
        ],
    )
    async def test_what_is_not_utf_8_is_refused(self, shared_world: World, raw: bytes):
        """One encoding: two readers must not see two bodies in the same bytes."""
        assert await refused(await post(shared_world, raw)) == NOT_AN_OBJECT

    @pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
    async def test_constants_that_are_not_json_are_refused(
        self, shared_world: World, constant: str
    ):
        """Python would read them; other readers of JSON do not."""
        raw = VALID.replace(b'"123456789"', constant.encode())

        assert await refused(await post(shared_world, raw)) == (
            400,
            f"request body has {constant}, which is not a JSON number",
        )

    @pytest.mark.parametrize(
        ("raw", "member"),
        [
            (VALID.replace(b"{", b'{"origin": "platform_admin", ', 1), "origin"),
            (VALID.replace(b"{", b'{"origin": "org_admin", ', 1), "origin"),
            (VALID.replace(b"{", b'{"\\u006frigin": "org_admin", ', 1), "origin"),
            (VALID.replace(b'["push"]', b'[{"a": 1, "a": 2}]'), "a"),
            (b'{"' + b"x" * 9_000 + b'": 1, "' + b"x" * 9_000 + b'": 2}', "x" * 64),
        ],
        ids=["different", "same", "escaped", "nested", "long"],
    )
    async def test_a_member_named_twice_is_refused(
        self, shared_world: World, raw: bytes, member: str
    ):
        """A proxy that checks the first and a service that uses the last would disagree."""
        assert await refused(await post(shared_world, raw)) == (
            400,
            f"request body has a member twice: {member}",
        )

    @pytest.mark.parametrize(
        "raw",
        [
            pytest.param(b"[" * 60_000, id="open arrays"),
            pytest.param(b"[" * 30_000 + b"]" * 30_000, id="arrays"),
            pytest.param(b'{"a":' * 10_000, id="open objects"),
            pytest.param(b'{"issuer":' + b"[" * 20_000 + b"]" * 20_000 + b"}", id="in a field"),
        ],
    )
    async def test_deep_nesting_is_refused(self, shared_world: World, raw: bytes):
        """However deep: the parser's stack is not the client's to spend."""
        assert await refused(await post(shared_world, raw)) == NOT_AN_OBJECT

    @pytest.mark.parametrize(
        "raw",
        [
            pytest.param(padded(BODY_MAX + 1), id="one byte more"),
            pytest.param(b"[" * 100_000, id="nesting"),
            pytest.param(b"x" * 10_000_000, id="ten megabytes"),
        ],
    )
    async def test_a_body_over_64_kib_is_413(self, shared_world: World, raw: bytes):
        """Whatever it holds: it is not parsed."""
        assert await refused(await post(shared_world, raw)) == TOO_LARGE

    async def test_a_body_is_measured_as_it_arrives_when_no_length_is_given(
        self, shared_world: World
    ):
        """Chunked transfers announce no length; the limit holds all the same."""
        async with shared_world.client.request(
            bindings_path(),
            method="POST",
            headers={**shared_world.admin, "content-type": "application/json"},
        ) as connection:
            for _ in range(5):
                await connection.send(b" " * 16 * 1024)
            await connection.send_complete()
        answer = await connection.as_response()

        assert await refused(answer) == TOO_LARGE

    async def test_who_may_not_ask_is_told_so_whatever_they_send(self, shared_world: World):
        """A stranger's body is not read: 401 comes before 413, 415 and 400."""
        for raw in (padded(BODY_MAX + 1), b"[", b""):
            answer = await shared_world.client.post(bindings_path(), data=raw)
            assert await refused(answer) == (401, "missing or invalid credentials")

    async def test_no_refused_body_left_a_binding(self, shared_world: World):
        """Most of the bodies above hold a valid one somewhere."""
        assert await shared_world.bindings() == []


async def test_a_gzip_body_is_read(world: World):
    headers = {**world.admin, "content-type": "application/json", "content-encoding": "gzip"}

    answer = await world.client.post(bindings_path(), headers=headers, data=gzip.compress(VALID))

    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("coding", "raw", "expected"),
    [
        ("br", VALID, (415, "content-encoding must be gzip or identity")),
        ("gzip", VALID, (400, "request body is not valid gzip")),
        ("gzip", gzip.compress(padded(BODY_MAX + 1)), TOO_LARGE),
    ],
)
async def test_what_cannot_be_unpacked_is_refused_with_the_reason(
    world: World, coding: str, raw: bytes, expected: tuple[int, str]
):
    headers = {**world.admin, "content-type": "application/json", "content-encoding": coding}

    answer = await world.client.post(bindings_path(), headers=headers, data=raw)

    assert await refused(answer) == expected


async def test_a_body_of_exactly_64_kib_is_read(world: World):
    """The limit is the last size that is good."""
    assert (await post(world, padded(BODY_MAX))).status_code == 201
