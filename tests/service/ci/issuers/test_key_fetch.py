"""What of an issuer's answers is believed, and where its server cannot send us."""

from typing import Any

import httpx2
import pytest

from service.ci.verifier.parsing import parse_token
from service.ci.verifier.signatures import SignatureFault, check_signature
from tests.conftest import ISSUER
from tests.issuers.issuer import ec_key, public_jwk, rsa_key
from tests.service.ci.issuers.sources import (
    DISCOVERY_URL,
    DOWN,
    GITHUB,
    KEYS_URL,
    configuration,
    document,
)


def keys(*jwks: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json={"keys": list(jwks)})


def redirect(to: str) -> httpx2.Response:
    return httpx2.Response(302, headers={"location": to})


HTTPS = "must be https (http only on this machine)"
LONG = b" " * (100 * 1024)


@pytest.mark.parametrize(
    ("url", "response", "fault"),
    [
        (DISCOVERY_URL, DOWN, "/.well-known/openid-configuration answered 503"),
        (DISCOVERY_URL, httpx2.Response(204), "/.well-known/openid-configuration answered 204"),
        (
            DISCOVERY_URL,
            httpx2.Response(200, content=b"<>"),
            "the configuration is not strict JSON",
        ),
        (DISCOVERY_URL, httpx2.Response(200, content=b"[]"), "the configuration is not a JSON obj"),
        (DISCOVERY_URL, configuration(issuer=ISSUER + "/"), "the configuration is that of 'https:"),
        (DISCOVERY_URL, configuration(issuer=None), "the configuration is that of None"),
        (DISCOVERY_URL, configuration(jwks_uri=None), "the configuration has no jwks_uri"),
        (DISCOVERY_URL, configuration(jwks_uri="http://a.example/"), "the jwks_uri 'http://a.exam"),
        (DISCOVERY_URL, configuration(jwks_uri="file:///etc/passwd"), "the jwks_uri 'file:///etc"),
        (KEYS_URL, DOWN, "/.well-known/jwks answered 503"),
        (KEYS_URL, httpx2.Response(200, content=b"<html>"), "the key set is not strict JSON"),
        (KEYS_URL, keys(), "no usable key published"),
        (KEYS_URL, keys(public_jwk(ec_key("first"))), "no usable key published; key 'first' may"),
        (KEYS_URL, keys(public_jwk(rsa_key("first"), use="enc")), "no usable key published; key"),
        (KEYS_URL, keys(public_jwk(rsa_key("first"), e="AQ")), "no usable key published; key"),
        (KEYS_URL, keys(*[public_jwk(rsa_key("first"))] * 2), "no usable key published; key"),
        (KEYS_URL, httpx2.Response(200, content=b'{"keys": []}' + LONG), "/.well-known/jwks is"),
        (
            KEYS_URL,
            httpx2.Response(200, headers={"content-encoding": "br"}, stream=httpx2.ByteStream(b"")),
            "/.well-known/jwks answered in the coding 'br'",
        ),
    ],
)
async def test_an_answer_that_gives_no_keys_is_a_failure(warm, url, response, fault):
    warm.network.wrong = document(url, response)
    warm.clock.advance(minutes=10)

    found = await warm.source.keys_for(GITHUB, "first")

    assert found.fault is not None
    assert found.fault.startswith(fault)
    assert list(found.by_kid) == ["first"]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:9000"])
async def test_an_issuer_elsewhere_cannot_have_keys_fetched_from_this_machine(desk, host):
    """Services on loopback trust every process that can reach it."""
    uri = f"http://{host}/latest/meta-data"
    desk.network.wrong = document(DISCOVERY_URL, configuration(jwks_uri=uri))

    assert await desk.fault() == f"the jwks_uri '{uri}' {HTTPS}"
    assert desk.issuer.requests == [DISCOVERY_URL]


@pytest.mark.parametrize(
    "to",
    [
        "https://elsewhere.example/.well-known/jwks",
        "http://token.actions.githubusercontent.com/.well-known/jwks",
        "https://token.actions.githubusercontent.com:8443/.well-known/jwks",
        "https://ada@token.actions.githubusercontent.com/moved",
        "//127.0.0.1/.well-known/jwks",
        "http://169.254.169.254/latest",
    ],
)
async def test_a_redirect_to_another_place_is_not_followed(desk, to):
    """Another scheme, host or port is another party, which has signed nothing."""
    desk.network.wrong = document(KEYS_URL, redirect(to))

    fault = await desk.fault()
    assert fault is not None
    assert fault.startswith("redirected from token.actions.githubusercontent.com to another place")
    assert desk.issuer.requests == [DISCOVERY_URL, KEYS_URL]


async def test_redirects_at_the_same_place_are_followed_three_times(desk):
    moves = 3

    def answer(request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.startswith("/.well-known/jwks"):
            return desk.issuer.answer(request)
        moved = int(request.url.params.get("moved", 0))
        if moved < moves:
            return redirect(f"/.well-known/jwks?moved={moved + 1}")
        return keys(public_jwk(desk.issuer.key))

    desk.network.wrong = answer
    assert await desk.kids() == ["first"]

    moves = 4
    desk.clock.advance(minutes=10)
    assert await desk.fault() == "redirected more than 3 times"


async def test_a_failure_of_the_network_is_a_fault_like_any_other(desk):
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no route to host", request=request)

    desk.network.wrong = answer

    assert await desk.fault() == "ConnectError: no route to host"


async def test_an_unforeseen_failure_is_a_fault_too(desk):
    """A token never turns a request into an error."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        raise RuntimeError("unforeseen")

    desk.network.wrong = answer

    assert await desk.fault() == "RuntimeError('unforeseen')"


async def test_one_key_of_an_unknown_kind_does_not_spoil_the_others(desk):
    """Issuers may publish keys of new kinds before this version knows them."""
    desk.issuer.jwks["keys"].insert(0, {"kty": "QUANTUM", "kid": "tomorrow"})
    found = await desk.source.keys_for(GITHUB, "first")

    assert check_signature(parse_token(desk.issuer.sign()), GITHUB.algorithms, found)
    token = parse_token(desk.issuer.sign(header={"kid": "tomorrow"}))
    with pytest.raises(SignatureFault, match="kty 'QUANTUM' is not for RS256"):
        check_signature(token, GITHUB.algorithms, found)
