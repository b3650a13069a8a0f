"""An organisation that asks a registry too much is refused, and no other is."""

import pytest

from service.packages.proxy.admission import BURST_S, Holder, RequestRates
from service.packages.refusals import TOO_MANY_REGISTRY_REQUESTS, RegistryLimited
from tests.service.packages.proxy.documents import SettableTimer

PER_S = 2.0
BURST = int(PER_S * BURST_S)
A, B = Holder("a", "pypi"), Holder("b", "pypi")


@pytest.fixture
def timer() -> SettableTimer:
    return SettableTimer()


@pytest.fixture
def refused() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def rates(timer: SettableTimer, refused: list[tuple[str, str]]) -> RequestRates:
    return RequestRates(PER_S, timer=timer, refused=lambda *what: refused.append(what))


def send(rates: RequestRates, holder: Holder, requests: int) -> None:
    for _ in range(requests):
        rates.charge(holder)


def test_a_burst_is_allowed_and_no_more(rates: RequestRates, refused: list[tuple[str, str]]):
    send(rates, A, BURST)
    with pytest.raises(TOO_MANY_REGISTRY_REQUESTS):
        rates.charge(A)

    assert refused == [("a", "requests_to_registry")]


def test_the_rate_is_allowed_without_end(rates: RequestRates, timer: SettableTimer):
    send(rates, A, BURST)
    for _ in range(1000):
        timer.now += 1 / PER_S
        rates.charge(A)
        with pytest.raises(TOO_MANY_REGISTRY_REQUESTS):
            rates.charge(A)


def test_what_is_not_used_is_not_saved_up_beyond_the_burst(
    rates: RequestRates, timer: SettableTimer
):
    rates.charge(A)
    timer.now += 1e6
    send(rates, A, BURST)
    with pytest.raises(TOO_MANY_REGISTRY_REQUESTS):
        rates.charge(A)


def test_each_organisation_and_each_registry_has_its_own(
    rates: RequestRates, refused: list[tuple[str, str]]
):
    send(rates, A, BURST)
    send(rates, B, BURST)
    send(rates, Holder("a", "npm"), BURST)

    assert refused == []


class TestPauses:
    def test_the_organisation_that_asked_most_is_paused(
        self, rates: RequestRates, refused: list[tuple[str, str]]
    ):
        send(rates, A, 3)
        send(rates, B, 2)
        send(rates, Holder("c", "npm"), 9)
        rates.pause_heaviest("pypi", 7)
        with pytest.raises(RegistryLimited) as paused:
            rates.charge(A)
        send(rates, B, 1)
        send(rates, Holder("c", "npm"), 1)

        assert paused.value.retry_after_s == 7
        assert refused == [("a", "paused")]

    def test_it_ends(self, rates: RequestRates, timer: SettableTimer):
        rates.charge(A)
        rates.pause_heaviest("pypi", 7)
        timer.now += 6.5
        with pytest.raises(RegistryLimited) as paused:
            rates.charge(A)
        timer.now += 0.5
        rates.charge(A)

        assert paused.value.retry_after_s == 1

    def test_further_refusals_pause_no_other(
        self, rates: RequestRates, refused: list[tuple[str, str]]
    ):
        """Refusals may answer requests that were already in flight."""
        send(rates, A, 30)
        send(rates, B, 2)
        for _ in range(20):
            rates.pause_heaviest("pypi", 7)
        rates.charge(B)
        with pytest.raises(RegistryLimited):
            rates.charge(A)

        assert refused == [("a", "paused")]

    def test_what_was_asked_long_ago_does_not_count(
        self, rates: RequestRates, timer: SettableTimer
    ):
        send(rates, A, BURST)
        timer.now += BURST_S - 1
        send(rates, B, 10)
        rates.pause_heaviest("pypi", 7)
        rates.charge(A)
        with pytest.raises(RegistryLimited):
            rates.charge(B)

    def test_without_requests_none_is_paused(
        self, rates: RequestRates, refused: list[tuple[str, str]]
    ):
        rates.pause_heaviest("pypi", 7)
        rates.charge(A)

        assert refused == []
