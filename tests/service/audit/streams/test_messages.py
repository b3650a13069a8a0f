"""What people are sent: sentences about alerts, in a chat, to PagerDuty and by mail."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from functools import partial

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope

from service.access.roles import Role
from service.audit.streams.sending import Delivered, Outgoing, Refused, Sender
from service.core.threads import in_thread
from service.orgs.members import add_member, remove_member
from service.store.tables import Member
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR
from tests.nginx import make_certificates
from tests.service.audit.streams.receivers import deliver_until, receiving

HOSTILE = "<!here> @channel <https://evil.example|rule> [a](https://evil.example) `b` & more"
SECRET = "/services/T0/B0/secret"
RULES = "/api/v1/admin/orgs/acme/alerts/rules"


async def fire(streams, name: str = "Blocked", rows: int = 3) -> None:
    """A rule of this name fires."""
    body = {"name": name, "query": "decision=BLOCKED", "at_least": rows}
    made = await streams.world.client.post(RULES, headers=streams.world.admin, json=body)
    assert made.status_code == 201
    await streams.accept([sample_row(streams.clock()) for _ in range(rows)])
    await streams.services.alerts.watch_due()


async def test_a_chat_is_told_of_alerts_and_of_nothing_else(streams):
    async with receiving() as receiver:
        url = f"http://127.0.0.1:{receiver.port}"
        created = await streams.call("POST", name="chat", kind="chat", url=url, secret=SECRET)
        await fire(streams, HOSTILE)
        await deliver_until(streams.services, lambda: receiver.kept)
        streams.clock.advance(hours=3)
        for _ in range(5):
            await streams.services.deliveries.deliver_due()

    (request,) = receiver.kept
    assert request.path == SECRET
    text = json.loads(request.body)["text"]
    shown = "`‹!here› ＠channel ‹https://evil.example|rule› [a](https://evil.example) 'b' & more: "
    assert text.startswith(f"{shown}3 rows")
    assert text.endswith(")`")
    assert text.count("`") == 2
    assert SECRET not in json.dumps(created)


async def test_an_alert_is_one_incident_of_pagerduty_however_often_it_is_sent(streams):
    async with receiving() as receiver:
        url = f"http://127.0.0.1:{receiver.port}/v2/enqueue"
        created = await streams.call(
            "POST", name="pager", kind="pagerduty", url=url, secret="routing-key"
        )
        await fire(streams, "One")
        await fire(streams, "Two")
        await deliver_until(streams.services, lambda: len(receiver.kept) == 2)
        await streams.call("PUT", f"/{created['id']}", after="start")
        await deliver_until(streams.services, lambda: len(receiver.kept) == 4)

    events = [json.loads(request.body) for request in receiver.kept]
    assert {event["routing_key"] for event in events} == {"routing-key"}
    assert len({event["dedup_key"] for event in events}) == 2
    first = events[0]["payload"]
    assert first["summary"].startswith("One: 3 rows since ")
    assert first["custom_details"]["event"] == "alert_fired"


class Mailbox:
    """A mail server that asks for a password over TLS, and keeps what it is handed."""

    def __init__(self) -> None:
        self.mails: list[Envelope] = []

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 - aiosmtpd's name
        self.mails.append(envelope)
        return "250 OK"

    def authenticate(self, server, session, envelope, mechanism, data) -> AuthResult:
        is_right = (data.login, data.password) == (b"user", b"p@ss")
        return AuthResult(success=is_right, handled=False)


@asynccontextmanager
async def mail_server(tmp_path) -> AsyncIterator[tuple[Mailbox, int, ssl.SSLContext]]:
    certificates = make_certificates(tmp_path, "localhost")
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificates.certificate, certificates.key)
    box = Mailbox()
    protocol = partial(
        SMTP,
        box,
        tls_context=own,
        require_starttls=True,
        authenticator=box.authenticate,
        auth_required=True,
    )
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield box, port, ssl.create_default_context(cafile=str(certificates.authority))
    finally:
        server.close()


def sender(clock, port: int, trusted: ssl.SSLContext, password: str = "p%40ss") -> Sender:  # noqa: S107 - of the server above
    url = f"smtp://user:{password}@localhost:{port}?from=countersign@acme.example"
    return Sender((), lambda: trusted, clock, smtp_url=url)


MESSAGE = Outgoing("mailto:soc@acme.example", b"Subject: Blocked\r\n\r\nBlocked: 3 rows\r\n")


async def test_mail_is_handed_to_the_operators_server_over_tls(tmp_path, clock):
    async with mail_server(tmp_path) as (box, port, trusted):
        outcome = await sender(clock, port, trusted).send(MESSAGE)
    assert isinstance(outcome, Delivered)
    (envelope,) = box.mails
    assert (envelope.mail_from, envelope.rcpt_tos) == (
        "countersign@acme.example",
        ["soc@acme.example"],
    )
    mail = message_from_bytes(envelope.content, policy=policy.default)
    assert mail["Subject"] == "Blocked"


async def test_a_wrong_password_is_denied_and_not_shown(tmp_path, clock):
    async with mail_server(tmp_path) as (box, port, trusted):
        outcome = await sender(clock, port, trusted, "wrong-password").send(MESSAGE)
    assert isinstance(outcome, Refused)
    assert (outcome.kind, box.mails) == ("denied", [])
    assert "wrong-password" not in outcome.text


async def test_a_certificate_of_another_authority_gets_no_mail(tmp_path, clock):
    async with mail_server(tmp_path) as (box, port, _):
        outcome = await sender(clock, port, ssl.create_default_context()).send(MESSAGE)
    assert isinstance(outcome, Refused)
    assert (outcome.kind, box.mails) == ("later", [])


async def test_without_a_mail_server_the_reason_is_said(streams):
    url = "mailto:soc@acme.example"
    created = await streams.call("POST", name="mail", kind="mail", url=url)
    tested = await streams.call("POST", f"/{created['id']}/test")
    assert tested == {
        "accepted": False,
        "answer": "this server sends no mail: see COUNTERSIGN_SMTP_URL",
    }


async def create_mail(streams, address: str) -> tuple[int, str]:
    answer = await streams.send("POST", name="mail", kind="mail", url=f"mailto:{address}")
    return answer.status_code, str((await answer.get_json()).get("error"))


async def test_mail_goes_to_members_and_allowed_domains_alone(streams):
    """Others could be mailed in the operator's name."""
    world = streams.world
    async with world.services.store.write() as work:
        await add_member(
            work, world.acme, "Ada@elsewhere.example", Role.AUDITOR, "github", BY_OPERATOR
        )
    expected = "mail goes to members, and to the domains of COUNTERSIGN_MAIL_DOMAINS"
    for address in ("eve@evil.example", "soc@acme.example@evil.example", "x@sub.acme.example"):
        status, error = await create_mail(streams, address)
        assert (status, expected in error or "mailto:ADDRESS" in error) == (400, True), address
    assert (await create_mail(streams, "ada@ELSEWHERE.example"))[0] == 201


async def test_a_member_who_is_removed_gets_no_more_mail(streams):
    world = streams.world
    async with world.services.store.write() as work:
        member = await add_member(
            work, world.acme, "ada@elsewhere.example", Role.AUDITOR, "github", BY_OPERATOR
        )
    url = "mailto:ada@elsewhere.example"
    created = await streams.call("POST", name="mail", kind="mail", url=url)
    async with world.services.store.write() as work:
        present = await work.session.get_one(Member, member.id)
        await remove_member(work, world.acme, present, BY_OPERATOR)
    tested = await streams.call("POST", f"/{created['id']}/test")
    assert tested["answer"].startswith("mail goes to members")


@pytest.mark.parametrize(
    "url",
    [
        "mailto:",
        "mailto:soc",
        "mailto:a@b c",
        "https://acme.example",
        "mailto:root,x@acme.example",  # to root, of the operator's mail server
        "mailto:<root>x@acme.example",
        "mailto:ada%elsewhere.example@acme.example",
    ],
)
async def test_an_address_that_is_none_is_refused(streams, url):
    body = {"name": "mail", "kind": "mail", "url": url}
    answer = await streams.world.client.post(
        "/api/v1/admin/orgs/acme/streams", headers=streams.world.admin, json=body
    )
    assert answer.status_code == 400
    assert "of mail mailto:ADDRESS" in (await answer.get_json())["error"]


async def test_a_mail_server_that_hangs_takes_no_thread_of_others(clock):
    """What else runs in threads, as decisions about installs, does not wait for mails."""
    hanging: list[asyncio.StreamWriter] = []
    is_asked = asyncio.Event()

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hanging.append(writer)
        is_asked.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    made = sender(clock, server.sockets[0].getsockname()[1], ssl.create_default_context())
    mails = [asyncio.create_task(made.send(MESSAGE)) for _ in range(40)]
    try:
        await is_asked.wait()
        assert await asyncio.wait_for(in_thread(int), 10) == 0
    finally:
        await made.close()
        server.close()
        for mail in mails:
            mail.cancel()
        await asyncio.gather(*mails, return_exceptions=True)
        for writer in hanging:
            writer.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"handle_RCPT": "550 no such mailbox"}, "denied"),
        ({"handle_RCPT": "451 try again later"}, "later"),
        ({"handle_MAIL": "550 not from you"}, "denied"),
        ({"handle_DATA": "554 looks like spam"}, "rows"),
        ({"handle_DATA": "452 no room"}, "later"),
    ],
)
async def test_a_permanent_refusal_of_a_mail_server_is_no_reason_to_try_again(
    tmp_path, clock, monkeypatch, answer, kind
):
    ((name, text),) = answer.items()

    async def handle(*_: object) -> str:
        return text

    monkeypatch.setattr(Mailbox, name, handle, raising=False)
    async with mail_server(tmp_path) as (_, port, trusted):
        outcome = await sender(clock, port, trusted).send(MESSAGE)

    assert isinstance(outcome, Refused)
    assert outcome.kind == kind
