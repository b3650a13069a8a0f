"""Keys over real HTTP, from an issuer that rotates, breaks down and comes back."""

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from service.ci.issuers.issuers import Issuer, load_issuers
from service.ci.issuers.jwks import SigningKeys
from service.ci.issuers.key_source import KeySource
from service.ci.verifier.parsing import parse_token
from service.ci.verifier.signatures import SignatureFault, check_signature, unverified_kid
from service.core.metrics import Metrics
from tests.conftest import SettableClock
from tests.issuers.fixtures import IssuerProcess
from tests.issuers.server import DISCOVERY, DRIP_EVERY_S, KEYS, MOVED, Outage
from tests.talking import PLAIN

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def process() -> Iterator[IssuerProcess]:
    """One process for all tests here: each takes its counts from where they stand."""
    started = IssuerProcess()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def issuer(process: IssuerProcess, tmp_path) -> Iterator[Issuer]:
    """The running issuer, accepted by an issuers file, with nothing wrong at either end."""
    (accepted,) = load_issuers(process.file(tmp_path)).values()
    yield accepted
    process.break_down(Outage.NONE)


@pytest.fixture
async def source(issuer: Issuer, clock: SettableClock) -> AsyncIterator[KeySource]:
    """A source without keys, over the network as it is."""
    async with httpx2.AsyncClient(trust_env=False, verify=PLAIN) as http:
        source = KeySource({issuer.url: issuer}, http, clock, Metrics())
        yield source
        await source.close()


async def keys_for(source: KeySource, issuer: Issuer, token: str) -> SigningKeys:
    """What `token` is checked with."""
    return await source.keys_for(issuer, unverified_kid(parse_token(token), issuer.algorithms))


async def is_signed(source: KeySource, issuer: Issuer, token: str) -> bool:
    """True if `token` holds under the keys that `source` has for it."""
    try:
        found = await keys_for(source, issuer, token)
        check_signature(parse_token(token), issuer.algorithms, found)
    except SignatureFault:
        return False
    return True


def asked(process: IssuerProcess, before: dict[str, int]) -> dict[str, int]:
    """How often each path was asked for since `before`."""
    return {
        path: times
        for path, count in process.requests().items()
        if (times := count - before.get(path, 0))
    }


async def test_a_signed_token_holds_and_under_anothers_signature_it_does_not(
    process, issuer, source
):
    before = process.requests()
    token = process.sign()
    other = process.sign(sub="repo:acme/other:ref:refs/heads/main")
    swapped = ".".join([*token.split(".")[:2], other.split(".")[2]])

    assert await is_signed(source, issuer, token)
    assert not await is_signed(source, issuer, swapped)
    assert asked(process, before) == {DISCOVERY: 1, KEYS: 1}


@pytest.mark.parametrize(
    ("outage", "fault"),
    [
        (Outage.DOWN, f"{DISCOVERY} answered 503"),
        (Outage.OVERSIZED, f"{KEYS} is over 102400 bytes"),
        (Outage.MOVED_AWAY, "redirected from 127.0.0.1 to another place: localhost"),
        (Outage.EMPTY, "no usable key published"),
        (Outage.NOT_JSON, "the key set is not strict JSON in UTF-8"),
        (Outage.PACKED, f"{KEYS} answered in the coding 'gzip'"),
    ],
)
async def test_an_outage_is_named_and_cached_keys_outlive_it(
    process, issuer, source, clock, outage, fault
):
    token = process.sign()
    process.break_down(outage)
    found = await keys_for(source, issuer, token)
    assert (found.by_kid, found.fault) == ({}, fault)

    process.break_down(Outage.NONE)
    clock.advance(seconds=30)
    assert await is_signed(source, issuer, token)

    process.break_down(outage)
    clock.advance(minutes=10)
    assert await is_signed(source, issuer, token)
    assert source.cached(issuer).fault == fault


async def test_a_server_that_drips_is_given_up(process, issuer, source, monkeypatch):
    """It sends a byte before each single wait is over, and would never be done."""
    monkeypatch.setattr("service.ci.issuers.key_source.FETCH_S", 3 * DRIP_EVERY_S)
    process.break_down(Outage.SLOW)
    before = process.requests()

    found = await keys_for(source, issuer, process.sign())

    assert found.fault == f"not all there within {3 * DRIP_EVERY_S:g} s"
    assert asked(process, before) == {DISCOVERY: 1}


async def test_keys_that_moved_within_their_host_are_found(process, issuer, source):
    process.break_down(Outage.MOVED_HERE)
    before = process.requests()

    assert await is_signed(source, issuer, process.sign())
    assert asked(process, before) == {DISCOVERY: 1, KEYS: 1, MOVED: 1}


async def test_a_process_that_is_gone_is_an_outage_like_any_other(issuer_process, clock, tmp_path):
    (accepted,) = load_issuers(issuer_process.file(tmp_path)).values()
    token = issuer_process.sign()
    async with httpx2.AsyncClient(trust_env=False, verify=PLAIN) as http:
        source = KeySource({accepted.url: accepted}, http, clock, Metrics())
        assert await is_signed(source, accepted, token)
        issuer_process.stop()
        clock.advance(minutes=10)

        assert await is_signed(source, accepted, token)
        assert source.cached(accepted).fault == "ConnectError: All connection attempts failed"
