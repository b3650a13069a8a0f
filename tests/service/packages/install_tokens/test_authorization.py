"""Requests to install: who they come from, asked again each time."""

from datetime import timedelta

import pytest

from analytics.model.instants import format_ms
from analytics.model.rows import VerdictSource
from service.access.refusals import KEY_OF_ANOTHER_ORG, LACKS_CAPABILITY
from service.core.errors import OrgNotFound
from service.orgs.api_keys import revoke_api_key
from service.packages.refusals import (
    INSTALL_TOKEN_ENDED,
    INSTALL_TOKEN_EXPIRED,
    INSTALL_TOKEN_OF_ANOTHER_ORG,
    InstallUnauthenticated,
)
from service.store.store import Store
from service.store.tables import ApiKey
from tests.conftest import BY_OPERATOR, START, World
from tests.service.audit.conftest import start_worker
from tests.service.gates import Gate
from tests.service.packages.install_tokens.jobs import (
    INSTALL,
    Key,
    basic,
    bearer,
    exchanged,
    headers_of,
    install,
    new_key,
    revoke_key,
)

MINUTES_59 = {"minutes": 59, "seconds": 59}


async def token_of(gate: Gate, key: Key | None = None) -> str:
    return (await exchanged(gate, key or await new_key(gate.world, INSTALL)))["token"]


async def test_an_install_token_installs_in_the_name_of_its_job(gate: Gate):
    key = await new_key(gate.world, INSTALL)
    answer = await exchanged(gate, key)
    gate.world.clock.advance(**MINUTES_59)
    installed = await install(gate.world, bearer(answer["token"]))

    context = installed.principal.audit_context
    assert (context.actor, context.actor_source) == (key.id, "oidc_github")
    assert context.oidc_binding_id == answer["binding"]
    assert context.verdict_source is VerdictSource.PROXY
    assert context.ci is not None
    assert (context.ci.run_id, context.ci.jti) == (answer["runId"], answer["tokenId"])
    assert context.ci.sub == answer["subject"]
    assert installed.principal.install_token_id == answer["id"]
    assert (installed.principal.key_id, installed.rejections) == (key.id, [])


async def test_an_expired_token_is_refused_with_the_remedy(gate: Gate):
    token = await token_of(gate)
    await install(gate.world, bearer(token))
    gate.world.clock.advance(hours=1)

    with pytest.raises(INSTALL_TOKEN_EXPIRED) as refused:
        await install(gate.world, bearer(token))
    assert refused.value.status == 401
    assert format_ms(START + timedelta(hours=1)) in refused.value.text
    assert "countersign ci exec" in refused.value.text


async def test_a_revoked_binding_leaves_the_next_install_unattributed(gate: Gate):
    """The build goes on; nothing is rejected, because nothing was sent that could be."""
    token = await token_of(gate)
    attributed = await install(gate.world, bearer(token))
    (binding,) = await gate.world.bindings()
    assert attributed.binding_id == binding["id"]
    await gate.world.revoke(binding["id"])

    after = await install(gate.world, bearer(token))
    assert after.binding_id is None
    assert after.principal.audit_context.actor_source == "api_key"
    assert after.principal.credential != attributed.principal.credential


async def test_a_binding_that_takes_the_place_of_another_trusts_the_job(gate: Gate):
    token = await token_of(gate)
    (old,) = await gate.world.bindings()
    await gate.world.revoke(old["id"])
    new = await gate.world.bind()

    assert (await install(gate.world, bearer(token))).binding_id == new


async def test_a_narrower_binding_does_not_trust_the_job_any_more(gate: Gate):
    """Each of the rules is asked again, not the id alone."""
    token = await token_of(gate)
    (old,) = await gate.world.bindings()
    await gate.world.revoke(old["id"])
    await gate.world.bind(event_names=["schedule"])

    assert (await install(gate.world, bearer(token))).binding_id is None


async def test_the_token_of_a_revoked_key_stops_at_once(gate: Gate):
    """Revoking the key is how a leaked token is ended."""
    key = await new_key(gate.world, INSTALL)
    token = await token_of(gate, key)
    await install(gate.world, bearer(token))
    await revoke_key(gate.world, key)

    for carrier in (bearer(token), basic("x", token)):
        with pytest.raises(INSTALL_TOKEN_ENDED):
            await install(gate.world, carrier)
    with pytest.raises(InstallUnauthenticated):
        await install(gate.world, *headers_of(key))


async def test_an_expired_key_stops_itself_and_its_tokens(gate: Gate):
    """By the clock alone: nothing is committed."""
    key = await new_key(gate.world, expires_at=START + timedelta(minutes=9))
    token = await token_of(gate, key)
    for _ in range(2):
        await install(gate.world, *headers_of(key))
        await install(gate.world, bearer(token))
    gate.world.clock.advance(minutes=9)

    with pytest.raises(InstallUnauthenticated, match="API key expired on"):
        await install(gate.world, *headers_of(key))
    with pytest.raises(INSTALL_TOKEN_EXPIRED):
        await install(gate.world, bearer(token))


async def test_another_organisation_is_refused(gate: Gate):
    key = await new_key(gate.world, INSTALL)
    token = await token_of(gate, key)

    with pytest.raises(KEY_OF_ANOTHER_ORG):
        await install(gate.world, *headers_of(key), slug="other")
    with pytest.raises(INSTALL_TOKEN_OF_ANOTHER_ORG):
        await install(gate.world, bearer(token), slug="other")
    with pytest.raises(OrgNotFound):
        await install(gate.world, bearer(token), slug="unknown")
    with pytest.raises(InstallUnauthenticated):
        await install(gate.world, slug="unknown")


@pytest.mark.parametrize("scopes", [("audit:r",), ("audit:r", "audit:export", "oidc:r")], ids=str)
async def test_a_key_that_reads_does_not_install(world: World, scopes: tuple[str, ...]):
    key = await new_key(world, *scopes)
    with pytest.raises(LACKS_CAPABILITY, match=INSTALL):
        await install(world, *headers_of(key))

    await install(world, *headers_of(await new_key(world, *scopes, INSTALL)))


@pytest.mark.parametrize(
    "secret", ["csi_nothing", "cs_nothing", "csess_nothing", "{cookie}", "{admin}"]
)
async def test_a_wrong_credential_is_none(world: World, secret: str):
    secret = secret.format(cookie=world.cookies["owner"], admin="test-admin-token")
    for carrier in (
        bearer(secret),
        basic("u", secret),
        basic(secret, ""),
        ("x-service-api-key", secret),
    ):
        with pytest.raises(InstallUnauthenticated) as refused:
            await install(world, carrier)
        assert refused.value.challenge == 'Basic realm="countersign"'


async def test_a_bad_ci_token_beside_a_good_key_installs_unattributed(gate: Gate):
    """With the rejection recorded; SPEC.md's proxy requests are never refused for it."""
    key = await new_key(gate.world, INSTALL)
    good, late = gate.issuer.sign(), gate.issuer.sign(exp=int(START.timestamp()))

    for bad, code in [
        (late, "expired_or_not_yet_valid"),
        ("not a token", "malformed_jwt"),
        ("\u00e9\0\u00ff", "malformed_jwt"),
    ]:
        installed = await install(gate.world, basic(key.secret, bad))
        assert (installed.binding_id, installed.rejections) == (None, [code])
    for carrier in ([basic(key.secret, good)], headers_of(key, good)):
        installed = await install(gate.world, *carrier)
        assert (installed.binding_id is None, installed.rejections) == (False, [])


async def test_a_ci_token_beside_an_install_token_decides(gate: Gate):
    token = await token_of(gate)
    other = gate.issuer.sign(jti="second")
    installed = await install(gate.world, bearer(token), ("x-service-ci-oidc", other))
    context = installed.principal.audit_context
    assert context.ci is not None
    assert context.ci.jti == "second"

    installed = await install(gate.world, bearer(token), ("x-service-ci-oidc", "bad"))
    assert (installed.binding_id, installed.rejections) == (None, ["malformed_jwt"])


async def test_an_attribution_is_asked_again_before_a_row_is_stored(gate: Gate):
    """A binding may be revoked while an upstream is slow."""
    installers = gate.world.services.installers
    key = await new_key(gate.world, INSTALL)
    carriers = [bearer(await token_of(gate, key))], headers_of(key, gate.issuer.sign())
    principals = [(await install(gate.world, *carrier)).principal for carrier in carriers]
    for principal in principals:
        assert await installers.revalidate(principal, "acme") == principal
    (binding,) = await gate.world.bindings()
    await gate.world.revoke(binding["id"])

    for principal in principals:
        after = await installers.revalidate(principal, "acme")
        assert (principal.ci is None, after.ci) == (False, None)
        assert after.credential != principal.credential


async def test_the_same_credential_is_told_from_every_other(gate: Gate):
    """Rows are counted by it."""
    key = await new_key(gate.world)
    first, second = gate.issuer.sign(), gate.issuer.sign(jti="second")
    token = await token_of(gate, key)

    async def credential(*headers: tuple[str, str]) -> str:
        return (await install(gate.world, *headers)).principal.credential

    same = {
        await credential(basic(key.secret, first)),
        await credential(*headers_of(key, first)),
        await credential(basic("x", key.secret), ("x-service-ci-oidc", first)),
    }
    others = [
        await credential(*headers_of(key, second)),
        await credential(*headers_of(key)),
        await credential(bearer(token)),
        await credential(bearer(await token_of(gate, key))),
        await credential(*headers_of(await new_key(gate.world), first)),
    ]
    assert len(same) == 1
    assert len(same | set(others)) == 6
    assert await credential(bearer(token)) == await credential(basic("u", token))
    assert await credential(*headers_of(key)) == await credential(*headers_of(key, "bad"))


async def test_a_token_is_not_taken_for_one_that_came_before(gate: Gate):
    key = await new_key(gate.world, INSTALL)
    first, second = await exchanged(gate, key), await exchanged(gate, key, jti="second")

    for _ in range(2):
        for answer in (first, second):
            installed = await install(gate.world, bearer(answer["token"]))
            assert installed.principal.install_token_id == answer["id"]
    with pytest.raises(InstallUnauthenticated):
        await install(gate.world, bearer("csi_of_no_one"))


async def test_the_token_of_a_project_s_key_meets_the_project_s_bindings(gate: Gate):
    """A binding of a project attributes its keys alone."""
    (old,) = await gate.world.bindings()
    await gate.world.revoke(old["id"])
    of_project = await gate.world.bind(project_id=gate.world.project.id)
    key = await new_key(gate.world, INSTALL, of_project=True)
    token = await token_of(gate, key)

    assert (await install(gate.world, bearer(token))).binding_id == of_project


async def test_what_another_worker_changes_the_next_request_meets(gate: Gate):
    key = await new_key(gate.world, INSTALL)
    token = await token_of(gate, key)
    for _ in range(2):
        assert (await install(gate.world, bearer(token))).binding_id is not None
    worker = start_worker(gate.world.services.settings, gate.world.clock)
    try:
        async with worker.store.write() as work:
            stored = await work.session.get_one(ApiKey, key.id)
            await revoke_api_key(work, gate.world.acme, stored, BY_OPERATOR)
    finally:
        await worker.close()

    with pytest.raises(INSTALL_TOKEN_ENDED):
        await install(gate.world, bearer(token))


async def test_a_known_credential_costs_no_statement(gate: Gate, monkeypatch: pytest.MonkeyPatch):
    """While nothing is committed, everything comes from memory."""
    key = await new_key(gate.world, INSTALL)
    token, ci_token = await token_of(gate, key), gate.issuer.sign()
    carriers = ([bearer(token)], [basic(key.secret, ci_token)], headers_of(key))
    before = [await install(gate.world, *carrier) for carrier in carriers]

    def refuse(*_: object) -> None:
        raise AssertionError("a statement for a known credential")

    monkeypatch.setattr(Store, "read_at_once", refuse)
    monkeypatch.setattr(Store, "read", refuse)
    monkeypatch.setattr(Store, "write", refuse)
    again = [await install(gate.world, *carrier) for carrier in carriers]
    assert [one.principal.credential for one in again] == [
        one.principal.credential for one in before
    ]
