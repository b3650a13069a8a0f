"""A CI job exchanges its token for an install token, once both it and the API key are proved."""

from datetime import timedelta
from typing import Any

import pytest
from quart import g, request
from sqlalchemy import func, select

from analytics.model.instants import format_ms
from service.access.refusals import KEY_OF_ANOTHER_ORG, LACKS_CAPABILITY, ApiKeyExpired
from service.ci.verifier.codes import Detail, FailureCode
from service.core.errors import OrgNotFound
from service.core.secrets import token_hash
from service.packages.install_tokens import tokens
from service.packages.install_tokens.exchange import REMEDIES, REMEDIES_OF_DETAILS
from service.packages.install_tokens.tokens import KEPT, LIVE_OF_CI_TOKEN_MAX, delete_expired_tokens
from service.store.tables import InstallToken
from tests.budgets import sample
from tests.conftest import START, refused
from tests.other_programs import stored_bytes
from tests.service.gates import Gate
from tests.service.packages.install_tokens.jobs import (
    INSTALL,
    exchange,
    exchanged,
    new_key,
    revoke_key,
)

HOUR = timedelta(hours=1)


async def stored_tokens(gate: Gate) -> int:
    async with gate.world.services.store.read() as session:
        return await session.scalar(select(func.count()).select_from(InstallToken)) or 0


@pytest.mark.parametrize("scopes", [(), (INSTALL,), ("audit:r", INSTALL)], ids=str)
async def test_a_trusted_job_gets_a_token_for_an_hour(gate: Gate, scopes: tuple[str, ...]):
    key = await new_key(gate.world, *scopes)
    answer = await exchanged(gate, key)
    (binding,) = await gate.world.bindings()

    secret, token_id = answer.pop("token"), answer.pop("id")
    assert secret.startswith("csi_")
    assert token_id.startswith("itok_")
    assert answer == {
        "org": "acme",
        "expiresAt": format_ms(START + HOUR),
        "binding": binding["id"],
        "issuer": gate.issuer.url,
        "subject": "repo:acme/payments:ref:refs/heads/main",
        "repositoryId": "123456789",
        "eventName": "push",
        "runId": "9876543210",
        "tokenId": "6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11",
    }
    assert binding["useCount"] == 0 or binding["lastUsedAt"]


async def test_the_issue_is_an_audit_row_that_names_the_job(gate: Gate):
    key = await new_key(gate.world, INSTALL)
    answer = await exchanged(gate, key)

    (row,) = await gate.world.audit(event="install_token_issued")
    assert row["subject"] == answer["id"]
    assert (row["actor"], row["actor_source"]) == (key.id, "oidc_github")
    assert row["oidc_binding_id"] == answer["binding"]
    assert (row["run_id"], row["token_id"]) == (answer["runId"], answer["tokenId"])
    payload = {name: value for name, value in row["payload"].items() if name != "ci"}
    assert payload == {
        "install_token_id": answer["id"],
        "key_id": key.id,
        "binding_id": answer["binding"],
        "expires_at": answer["expiresAt"],
    }
    assert answer["token"] not in str(row)


async def test_neither_database_nor_logs_hold_the_token(
    gate: Gate, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    """Only its hash is stored."""
    key = await new_key(gate.world)
    ci_token = gate.issuer.sign()
    answer = await exchange(gate.world, key, ci_token)
    secret = (await answer.get_json())["token"]

    stored = stored_bytes(gate.world.services.settings.data_dir)
    assert token_hash(secret).encode() in stored
    logged = str(gate.logs) + "".join(capfd.readouterr()) + caplog.text
    assert "install-tokens" in logged
    for hidden in (secret, ci_token, key.secret):
        assert hidden.encode() not in stored
        assert hidden not in logged


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "issuer": ({"iss": "https://other.example"}, "unbound_issuer: "),
    "audience": ({"aud": "npm"}, "bad_audience: "),
    "expired": ({"exp": int(START.timestamp())}, "expired_or_not_yet_valid: "),
    "no repository": ({"repository_id": ...}, "missing_repository_id: "),
    "other job": ({"sub": "repo:acme/other:ref:refs/heads/main"}, "unbound_oidc_subject: "),
    "no subject": ({"sub": ...}, "unbound_oidc_subject (missing_sub): "),
    "event": ({"event_name": "fork"}, "unbound_oidc_subject (event_name_not_allowed): "),
}


@sample(6)
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_rejected_ci_token_is_refused_with_its_code_and_recorded(gate: Gate, wrong: str):
    claims, beginning = WRONG[wrong]
    key = await new_key(gate.world, INSTALL)
    before = len(await gate.world.audit())
    status, text = await refused(await exchange(gate.world, key, gate.issuer.sign(**claims)))

    assert status == 403
    assert text.startswith(beginning)
    assert len(text) > len(beginning) + 20, "it says what to do"
    assert await stored_tokens(gate) == 0
    assert len(await gate.world.audit()) == before
    await gate.world.services.rejected.flush()
    listed = await gate.world.client.get(
        "/api/v1/admin/orgs/acme/oidc-bindings/rejected", headers=gate.world.admin
    )
    codes = [one["code"] for one in (await listed.get_json())["rejected"]]
    assert codes == [beginning.partition(":")[0].partition(" ")[0]]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ((), FailureCode.MISSING_TOKEN),
        (("",), FailureCode.MISSING_TOKEN),
        (("a.b",), FailureCode.MALFORMED_JWT),
        (("x" * 20_000,), FailureCode.MALFORMED_JWT),
        (("{good}", "{good}"), FailureCode.MALFORMED_JWT),
        (("{good}x",), FailureCode.SIGNATURE_INVALID),
    ],
    ids=str,
)
async def test_what_is_no_good_token_is_refused_with_its_code(
    gate: Gate, values: tuple[str, ...], code: str
):
    key = await new_key(gate.world, INSTALL)
    good = gate.issuer.sign()
    sent = [value.replace("{good}", good) for value in values]
    if code == FailureCode.SIGNATURE_INVALID:
        head, _, _ = good.rpartition(".")
        sent = [f"{head}.{gate.issuer.sign(jti='other').rpartition('.')[2]}"]
    status, text = await refused(await exchange(gate.world, key, *sent))

    assert (status, text.partition(":")[0]) == (403, code)
    assert await stored_tokens(gate) == 0


def test_every_code_has_a_remedy():
    """A new code or detail of the verifier needs one, too."""
    assert set(REMEDIES) == set(FailureCode)
    assert set(REMEDIES_OF_DETAILS) == set(Detail)


async def test_keys_that_may_not_install_get_none(gate: Gate):
    world, good = gate.world, gate.issuer.sign()
    reading, ended = await new_key(world, "audit:r"), await new_key(world)
    foreign, short = await new_key(world, slug="other"), await new_key(world)
    await revoke_key(world, ended)
    expiring = await new_key(world, expires_at=START + HOUR)

    assert await refused(await exchange(world, reading, good)) == (
        403,
        LACKS_CAPABILITY(value=INSTALL).text,
    )
    assert (await refused(await exchange(world, ended, good)))[0] == 401
    assert await refused(await exchange(world, foreign, good)) == (403, KEY_OF_ANOTHER_ORG.text)
    assert await refused(await exchange(world, short, good, slug="unknown")) == (
        404,
        OrgNotFound.text,
    )
    world.clock.advance(hours=1)
    text = ApiKeyExpired(value=format_ms(START + HOUR)).text
    assert await refused(await exchange(world, expiring, good)) == (401, text)
    path = "/api/v1/orgs/acme/install-tokens"
    assert (await world.client.post(path, headers=world.admin)).status_code == 401
    assert await stored_tokens(gate) == 0


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"query_string": {"ttl": "9"}}, 400),
        ({"json": {"ttl": 9}}, 400),
        ({"data": b"\0" * 2_000}, 413),
        ({"json": {}}, 201),
    ],
    ids=str,
)
async def test_what_is_not_understood_is_refused(gate: Gate, more: dict[str, Any], status: int):
    key = await new_key(gate.world)
    answer = await exchange(gate.world, key, gate.issuer.sign(), **more)

    assert answer.status_code == status
    assert await stored_tokens(gate) == (status == 201)


async def test_a_token_ends_with_its_key(gate: Gate):
    """`expiresAt` is not later than the key's."""
    key = await new_key(gate.world, expires_at=START + timedelta(minutes=5))

    assert (await exchanged(gate, key))["expiresAt"] == format_ms(START + timedelta(minutes=5))


async def test_one_ci_token_gets_a_limited_number(gate: Gate):
    """Someone who has seen a job's token and key cannot get tokens without end."""
    key, ci_token = await new_key(gate.world), gate.issuer.sign()
    for _ in range(LIVE_OF_CI_TOKEN_MAX):
        assert (await exchange(gate.world, key, ci_token)).status_code == 201

    status, text = await refused(last := await exchange(gate.world, key, ci_token))
    assert (status, last.headers["retry-after"]) == (429, "60")
    assert "of this CI token" in text
    assert (await exchange(gate.world, key, gate.issuer.sign(jti="another"))).status_code == 201


async def test_one_key_has_a_limited_number_of_live_ones(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tokens, "LIVE_OF_KEY_MAX", 2)
    key, other = await new_key(gate.world), await new_key(gate.world)
    for number in range(2):
        await exchanged(gate, key, jti=str(number))

    status, text = await refused(await exchange(gate.world, key, gate.issuer.sign(jti="third")))
    assert (status, "of this API key" in text) == (429, True)
    await exchanged(gate, other)
    gate.world.clock.advance(hours=1)
    gate.issuer.now = gate.world.clock.now
    await exchanged(gate, key, jti="later")


async def test_a_key_revoked_or_a_binding_revoked_meanwhile_gets_none(gate: Gate):
    """Both are read again in the transaction that stores the token."""
    world, key = gate.world, await new_key(gate.world)
    exchange_ = world.services.token_issuer
    path = "/api/v1/orgs/acme/install-tokens"
    for change in ("key", "binding"):
        sent = [("x-service-api-key", key.secret), ("x-service-ci-oidc", gate.issuer.sign())]
        async with world.app.test_request_context(path, method="POST", headers=sent):
            g.request_id = "req_test"
            principal, org = await exchange_.authorize(request, "acme")
        if change == "key":
            await revoke_key(world, key)
        else:
            (binding,) = await world.bindings()
            await gate.world.revoke(binding["id"])
        with pytest.raises(Exception, match=r"credentials|unbound_oidc_subject: "):
            await exchange_.issue(principal, org)
        key = await new_key(world)
    assert await stored_tokens(gate) == 0


async def test_expired_tokens_are_deleted_a_day_later(gate: Gate):
    """Until then a job is told that its token has expired."""
    await exchanged(gate, await new_key(gate.world))
    services = gate.world.services
    gate.world.clock.advance(hours=1, seconds=KEPT.total_seconds() - 1)
    await delete_expired_tokens(services.store)
    assert await stored_tokens(gate) == 1

    gate.world.clock.advance(seconds=1)
    await delete_expired_tokens(services.store)
    assert await stored_tokens(gate) == 0
