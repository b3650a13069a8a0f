"""What package managers send, and what is read of it: one credential, or a clear refusal."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import Headers

from service.packages.install_tokens.authorization import InstallCredentials
from service.packages.proxy.credentials import (
    AUTHORIZATION_CHARS_MAX,
    SECRET_CHARS_MAX,
    read_credentials,
)
from service.packages.refusals import CREDENTIALS_DIFFER, InstallUnauthenticated
from tests.conftest import World

KEY, OTHER_KEY = "cs_" + "k" * 43, "cs_" + "o" * 43
TOKEN, OTHER_TOKEN = "csi_" + "t" * 43, "csi_" + "o" * 43
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2lzc3VlciJ9.c2lnbmF0dXJl"

Header = tuple[str, str]


def read(*headers: Header) -> InstallCredentials:
    return read_credentials(Headers(list(headers)))


def key_header(value: str = KEY) -> Header:
    return "x-service-api-key", value


def ci_header(value: str = JWT) -> Header:
    return "x-service-ci-oidc", value


def basic(user: str | bytes, password: str | bytes = "") -> Header:
    """User and password as they are sent, whatever bytes they have."""
    parts = [one.encode() if isinstance(one, str) else one for one in (user, password)]
    return "authorization", f"Basic {base64.b64encode(b':'.join(parts)).decode()}"


def bearer(secret: str, scheme: str = "Bearer") -> Header:
    return "authorization", f"{scheme} {secret}"


CARRIERS: dict[str, tuple[list[Header], InstallCredentials]] = {
    "key in the header": ([key_header()], InstallCredentials(KEY)),
    "key and CI token in headers": ([key_header(), ci_header()], InstallCredentials(KEY, (JWT,))),
    "key as user, CI token as password": ([basic(KEY, JWT)], InstallCredentials(KEY, (JWT,))),
    "key as user": ([basic(KEY)], InstallCredentials(KEY)),
    "key as password": ([basic("ci", KEY)], InstallCredentials(KEY)),
    "key as both": ([basic(KEY, KEY)], InstallCredentials(KEY)),
    "key as password, CI token beside": (
        [basic("", KEY), ci_header()],
        InstallCredentials(KEY, (JWT,)),
    ),
    "token as password": ([basic("countersign", TOKEN)], InstallCredentials(TOKEN)),
    "token as password of no user": ([basic("", TOKEN)], InstallCredentials(TOKEN)),
    "token as user": ([basic(TOKEN)], InstallCredentials(TOKEN)),
    "token as user, x as password": ([basic(TOKEN, "x-oauth-basic")], InstallCredentials(TOKEN)),
    "token as password of a key": ([basic(KEY, TOKEN)], InstallCredentials(TOKEN)),
    "token as a bearer": ([bearer(TOKEN)], InstallCredentials(TOKEN)),
    "key as a bearer": ([bearer(KEY)], InstallCredentials(KEY)),
    "key as a bearer, CI token beside": (
        [bearer(KEY), ci_header()],
        InstallCredentials(KEY, (JWT,)),
    ),
    "schemes in any case": ([bearer(TOKEN, "bEARER")], InstallCredentials(TOKEN)),
    "the same key twice": ([key_header(), basic("x", KEY)], InstallCredentials(KEY)),
    "the same CI token twice": (
        [key_header(), basic(KEY, JWT), ci_header()],
        InstallCredentials(KEY, (JWT,)),
    ),
    "key in the header, Basic with its CI token": (
        [key_header(), basic(KEY, JWT)],
        InstallCredentials(KEY, (JWT,)),
    ),
    "two CI tokens are left to the verifier": (
        [key_header(), ci_header("a"), ci_header("b")],
        InstallCredentials(KEY, ("a", "b")),
    ),
    "a scheme of another's": (
        [key_header(), ("authorization", "Negotiate x")],
        InstallCredentials(KEY),
    ),
    "bytes that are no text": (
        [basic(KEY, b"\xff\x00\xfe")],
        InstallCredentials(KEY, ("\xff\x00\xfe",)),
    ),
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_each_carrier_is_read(carrier: str) -> None:
    headers, expected = CARRIERS[carrier]

    assert read(*headers) == expected


DIFFERENT: dict[str, list[Header]] = {
    "two keys": [key_header(), basic("x", OTHER_KEY)],
    "two keys in headers": [key_header(), key_header(OTHER_KEY)],
    "key and token": [key_header(), bearer(TOKEN)],
    "key as user, another as password": [basic(KEY, OTHER_KEY)],
    "token as user, another as password": [basic(TOKEN, OTHER_TOKEN)],
    "token as user, key as password": [basic(TOKEN, KEY)],
    "two Authorization headers": [bearer(TOKEN), basic("x", OTHER_TOKEN)],
    "two CI tokens": [basic(KEY, JWT), ci_header("other")],
}


@pytest.mark.parametrize("headers", DIFFERENT)
def test_credentials_that_differ_are_refused(headers: str) -> None:
    """400, and it says what differs; none of them is chosen."""
    with pytest.raises(CREDENTIALS_DIFFER) as refused:
        read(*DIFFERENT[headers])

    assert refused.value.status == 400
    assert refused.value.text.endswith("that differ: send one of them")
    assert not any(secret in refused.value.text for secret in (KEY, OTHER_KEY, TOKEN, JWT))


NONE: dict[str, list[Header]] = {
    "nothing": [],
    "a CI token alone": [ci_header()],
    "an empty key": [key_header("")],
    "an install token as a key": [key_header(TOKEN)],
    "no scheme": [("authorization", TOKEN)],
    "another scheme": [("authorization", "Negotiate abc")],
    "an empty bearer": [("authorization", "Bearer ")],
    "a session": [bearer("csess_abc")],
    "a CI token as a bearer": [bearer(JWT)],
    "a CI token as password": [basic("x", JWT)],
    "neither is ours": [basic("ada", "secret")],
    "not base64": [("authorization", "Basic %%%%")],
    "half of base64": [("authorization", "Basic Y")],
    "no colon and not ours": [("authorization", "Basic YWRh")],
    "case of the prefix": [bearer(TOKEN.upper())],
    "too long a key": [key_header("cs_" + "k" * SECRET_CHARS_MAX)],
    "too long a token": [bearer("csi_" + "t" * SECRET_CHARS_MAX)],
    "too long a header": [("authorization", "Basic " + "A" * AUTHORIZATION_CHARS_MAX)],
    "not text": [basic(b"\xff\xfe", b"\x00")],
}


@pytest.mark.parametrize("headers", NONE)
def test_what_is_no_credential_is_a_401(headers: str) -> None:
    with pytest.raises(InstallUnauthenticated) as refused:
        read(*NONE[headers])

    assert (refused.value.status, refused.value.challenge) == (401, 'Basic realm="countersign"')


@given(
    user=st.binary(max_size=40) | st.sampled_from([KEY.encode(), TOKEN.encode()]),
    password=st.binary(max_size=40) | st.sampled_from([KEY.encode(), TOKEN.encode()]),
    api_key=st.none() | st.text(max_size=20) | st.just(KEY),
)
def test_any_bytes_are_a_credential_or_a_refusal(
    user: bytes, password: bytes, api_key: str | None
) -> None:
    headers = [basic(user, password)]
    if api_key is not None and api_key.isprintable():
        headers.append(key_header(api_key))
    try:
        credentials = read(*headers)
    except (InstallUnauthenticated, CREDENTIALS_DIFFER):
        return
    assert credentials.secret.startswith(("cs_", "csi_"))
    assert len(credentials.secret) <= SECRET_CHARS_MAX


def test_no_representation_shows_a_secret() -> None:
    """Logs print objects."""
    assert KEY not in repr(read(basic(KEY, JWT)))
    assert JWT not in repr(read(basic(KEY, JWT)))


async def test_the_answer_asks_for_basic_authentication(world: World) -> None:
    """Package managers send a password only when they are asked for one."""
    async with world.app.test_request_context("/proxy/acme/npm/left-pad"):
        answer = await world.app.handle_user_exception(InstallUnauthenticated())

    assert (answer.status_code, answer.headers["www-authenticate"]) == (
        401,
        'Basic realm="countersign"',
    )
