"""Which address an audit row names: never one that the client chose."""

import msgspec
import pytest

from service.core.settings import Settings
from tests.conftest import World, binding_body, bindings_path

PEER = "203.0.113.9"
PROXY = "10.1.2.3"


async def recorded_ip(world: World, peer: str | None, *forwarded: str, **headers: str):
    """The source_ip of a create that `peer` sent with these X-Forwarded-For lines."""
    answer = await world.client.post(
        bindings_path(),
        json=binding_body(),
        headers=[
            *world.admin.items(),
            *headers.items(),
            *(("x-forwarded-for", line) for line in forwarded),
        ],
        scope_base={"client": (peer, 40_000)} if peer else {},
    )
    assert answer.status_code == 201
    return (await world.audit(event="oidc_binding_created"))[0]["source_ip"]


@pytest.mark.parametrize("peer", [PEER, "2001:db8::9", "127.0.0.1"])
async def test_the_peer_is_the_source(world: World, peer: str):
    assert await recorded_ip(world, peer) == peer


@pytest.mark.parametrize("forwarded", ["198.51.100.1", "127.0.0.1", f"198.51.100.1, {PROXY}"])
async def test_without_trusted_proxies_a_forwarded_address_is_ignored(world: World, forwarded: str):
    """Any client can send the header."""
    assert await recorded_ip(world, PEER, forwarded) == PEER


async def test_a_peer_without_an_address_has_none(world: World):
    """A Unix socket's peer: null rather than a made-up address."""
    assert await recorded_ip(world, None) is None


async def test_no_other_header_names_the_source(world: World):
    spoofed = dict.fromkeys(
        ("x-real-ip", "forwarded", "remote-addr", "client-ip", "true-client-ip"), "198.51.100.1"
    )

    assert await recorded_ip(world, PEER, **spoofed) == PEER


class TestBehindProxies:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return msgspec.structs.replace(settings, trusted_proxies=("10.0.0.0/8", "2001:db8:1::1"))

    @pytest.mark.parametrize(
        ("peer", "forwarded", "expected"),
        [
            (PROXY, [], PROXY),
            (PROXY, [""], PROXY),
            (PROXY, [PEER], PEER),
            ("2001:db8:1::1", [PEER], PEER),
            (PROXY, ["2001:db8::9"], "2001:db8::9"),
            (PROXY, [f"198.51.100.1, {PEER}"], PEER),
            (PROXY, [f"198.51.100.1,{PEER} , 10.9.9.9"], PEER),
            (PROXY, ["198.51.100.1", PEER], PEER),
            (PROXY, ["198.51.100.1", f"{PEER}, 10.9.9.9"], PEER),
            (PROXY, ["10.9.9.9, 10.8.8.8"], "10.9.9.9"),
            (PROXY, ["unknown"], None),
            (PROXY, [f"{PEER}, unknown"], None),
            (PEER, ["198.51.100.1"], PEER),
            ("2001:db8:1::2", ["198.51.100.1"], "2001:db8:1::2"),
        ],
    )
    async def test_the_first_address_that_is_no_trusted_proxy_is_the_source(
        self, world: World, peer: str, forwarded: list[str], expected: str | None
    ):
        """Read from the right: what stands left of it, the client may have written itself.

        A header that comes in several lines is one list (RFC 9110, 5.3).
        """
        assert await recorded_ip(world, peer, *forwarded) == expected
