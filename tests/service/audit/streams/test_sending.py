"""Which addresses are sent to, and what becomes of what goes wrong."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from datetime import timedelta
from email.utils import format_datetime

import pytest

from service.audit.streams.sending import Delivered, Outgoing, Refused, Sender
from tests.conftest import SettableClock
from tests.issuers.issuer import START
from tests.nginx import make_certificates
from tests.service.audit.streams.conftest import LOCAL
from tests.service.audit.streams.receivers import Reply, receiving, refused

SECRET = "a-token-that-must-not-be-shown"


def sender(
    *found: Sequence[str],
    networks: Sequence[str] = (),
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
) -> Sender:
    """One whose look-ups of any host find these addresses, one after the other."""
    answers = iter(found)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return next(answers)

    made = Sender(networks, tls, SettableClock())
    if found:
        made = Sender(networks, tls, SettableClock(), resolve)
    return made


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "255.255.255.255", "192.0.2.1", "::", "::1", "fe80::1"),  # noqa: S104
        *("fe80::1%lo", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1"),
        *("2002:7f00:1::", "2001:0:7f00:1::", "ff02::1", "fec0::1", "64:ff9b:1::a00:1"),
        *("::10.0.0.1", "::ffff:0:10.0.0.1"),
    ],
)
async def test_addresses_that_are_not_of_the_internet_are_refused(address):
    outcome = await sender([address]).send(Outgoing("https://siem.example/rows", b""))
    assert isinstance(outcome, Refused)
    assert (outcome.kind, "address" in outcome.text) == ("denied", True)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://2130706433/",
        ),
        *(
            "https://0x7f000001/",
            "https://127.1/",
            "https://localhost/",
            "syslog+tls://127.0.0.1:6514",
        ),
    ],
)
async def test_no_spelling_of_this_machine_is_a_way_to_it(url):
    outcome = await sender().send(Outgoing(url, b""))
    assert isinstance(outcome, Refused)
    assert outcome.kind == "denied"


async def test_one_private_address_among_others_is_enough():
    outcome = await sender(["203.0.114.7", "10.0.0.1"]).send(Outgoing("https://x.example/", b""))
    assert isinstance(outcome, Refused)
    assert outcome.kind == "denied"


async def test_a_name_that_leads_elsewhere_the_next_time_is_looked_up_once_for_a_connection():
    """The address that was checked is the one that is connected to: no second look-up is made."""
    async with receiving() as receiver:
        url = f"http://siem.example:{receiver.port}/rows"
        made = sender(["127.0.0.1"], ["10.0.0.1"], networks=LOCAL)
        assert isinstance(await made.send(Outgoing(url, b"{}")), Delivered)
        assert receiver.requests[0].headers["host"] == f"siem.example:{receiver.port}"
        await made.close()
        outcome = await made.send(Outgoing(url, b"{}"))
    assert isinstance(outcome, Refused)
    assert outcome.kind == "denied"


async def test_without_tls_only_allowed_networks_are_sent_to():
    outcome = await sender(["198.41.0.4"]).send(Outgoing("http://siem.example/", b""))
    assert isinstance(outcome, Refused)
    assert "without TLS" in outcome.text


@pytest.mark.parametrize("scheme", ["https", "syslog+tls"])
@pytest.mark.parametrize(("host", "is_right"), [("siem.example", True), ("other.example", False)])
async def test_the_certificate_must_be_that_of_the_host(tmp_path, scheme, host, is_right):
    certificates = make_certificates(tmp_path, "siem.example")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.certificate, certificates.key)

    def trusted() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certificates.authority))

    async with receiving(tls=server) as receiver:
        made = sender(["127.0.0.1"], networks=LOCAL, tls=trusted)
        outcome = await made.send(Outgoing(f"{scheme}://{host}:{receiver.port}/rows", b""))
        await made.close()
    assert isinstance(outcome, Delivered) is is_right
    assert is_right or "CERTIFICATE_VERIFY_FAILED" in outcome.text


async def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path):
    certificates = make_certificates(tmp_path, "siem.example")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.certificate, certificates.key)
    async with receiving(tls=server) as receiver:
        made = sender(["127.0.0.1"], networks=LOCAL)
        outcome = await made.send(Outgoing(f"https://siem.example:{receiver.port}/", b""))
    assert isinstance(outcome, Refused)
    assert receiver.requests == []


@pytest.mark.parametrize(
    "reply",
    [
        refused(403, f"bad token {SECRET}".encode()),
        refused(500, b"x" * 190 + SECRET.encode()),
        Reply(200, f"thanks, {SECRET}".encode()),
        refused(400, f"{SECRET}{SECRET}".encode()),
    ],
)
async def test_what_a_receiver_repeats_of_a_secret_is_not_shown(reply):
    """Nor a part of it, where the text is cut."""
    async with receiving(lambda _: reply) as receiver:
        made = sender(networks=LOCAL)
        outcome = await made.send(Outgoing(receiver.url, b"", hidden=[SECRET]))
        await made.close()
    assert SECRET[:7] not in outcome.text
    assert len(outcome.text) <= 200


async def test_an_answer_without_end_is_not_read_to_its_end():
    async with receiving(lambda _: Reply(200, b"x" * 10_000_000)) as receiver:
        made = sender(networks=LOCAL)
        outcome = await made.send(Outgoing(receiver.url, b""))
        await made.close()
    assert isinstance(outcome, Delivered)
    assert outcome.text == ("200 " + "x" * 196)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ("7", 7.0),
        (format_datetime(START + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(START - timedelta(days=9), usegmt=True), 0.0),
        ("soon", None),
        ("", None),
    ],
)
async def test_retry_after_is_a_length_or_a_date(answer, seconds):
    async with receiving(lambda _: refused(503, retry_after=answer)) as receiver:
        made = sender(networks=LOCAL)
        outcome = await made.send(Outgoing(receiver.url, b""))
        await made.close()
    assert isinstance(outcome, Refused)
    assert outcome.retry_after_s == (None if seconds is None else pytest.approx(seconds, abs=1))


async def test_what_is_no_answer_is_tried_again():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outcome = await sender(networks=LOCAL).send(Outgoing(f"http://127.0.0.1:{port}/", b""))
    server.close()
    assert isinstance(outcome, Refused)
    assert outcome.kind == "later"
