"""What tests of install tokens share: keys, exchanges, and requests to install."""

import base64
from dataclasses import dataclass
from typing import Any

from quart import Request, g, request
from structlog.testing import capture_logs

from service.ci.verifier.codes import LOG_EVENT_PREFIX
from service.core.header_names import API_KEY_HEADER, CI_TOKEN_HEADER
from service.orgs.api_keys import issue_api_key, revoke_api_key
from service.packages.install_tokens.authorization import InstallPrincipal
from service.packages.proxy.credentials import read_credentials
from service.store.tables import ApiKey, Organisation
from tests.conftest import BY_OPERATOR, World, unscoped_key
from tests.service.gates import Gate

INSTALL = "packages:install"


@dataclass(frozen=True)
class Key:
    id: str
    secret: str


async def new_key(
    world: World, *scopes: str, slug: str = "acme", of_project: bool = False, **more: Any
) -> Key:
    """A new API key, by default of the whole of acme and without scopes, as older keys are."""
    async with world.services.store.write() as work:
        org = await work.session.merge(world.acme if slug == "acme" else world.other)
        project = await work.session.merge(world.project) if of_project else None
        if not scopes:
            key, secret = unscoped_key(org.id, project_id=project.id if project else None, **more)
            work.session.add(key)
        else:
            key, secret = await issue_api_key(
                work, org, "ci", project, BY_OPERATOR, scopes=scopes, **more
            )
    return Key(key.id, secret)


async def revoke_key(world: World, key: Key) -> None:
    async with world.services.store.write() as work:
        org = await work.session.get_one(Organisation, world.acme.id)
        await revoke_api_key(work, org, await work.session.get_one(ApiKey, key.id), BY_OPERATOR)


def headers_of(key: Key, *ci_tokens: str) -> list[tuple[str, str]]:
    """The contract's headers."""
    return [(API_KEY_HEADER, key.secret), *((CI_TOKEN_HEADER, token) for token in ci_tokens)]


async def exchange(world: World, key: Key, *ci_tokens: str, slug: str = "acme", **more: Any) -> Any:
    """The response to an exchange of these CI tokens."""
    path = f"/api/v1/orgs/{slug}/install-tokens"
    return await world.client.post(path, headers=headers_of(key, *ci_tokens), **more)


async def exchanged(gate: Gate, key: Key, **claims: Any) -> dict[str, Any]:
    """What the exchange of a good token of the gate's job answers."""
    answer = await exchange(gate.world, key, gate.issuer.sign(**claims))
    assert answer.status_code == 201, await answer.get_data(as_text=True)
    return await answer.get_json()


@dataclass
class Installed:
    """Who a request to install came from, and the rejections that it caused."""

    principal: InstallPrincipal
    rejections: list[str]

    @property
    def binding_id(self) -> str | None:
        """The binding of the CI job, or None if the install is not attributed to one."""
        return self.principal.audit_context.oidc_binding_id


async def install(world: World, *headers: tuple[str, str], slug: str = "acme") -> Installed:
    """Authorise a request with these headers as the proxy does. Raises Refusal."""
    path = f"/proxy/{slug}/pypi/simple/left-pad/"
    async with world.app.test_request_context(path, headers=list(headers)):
        g.request_id = "req_test"
        sent: Request = request._get_current_object()  # type: ignore[attr-defined]
        with capture_logs() as logs:
            principal, org = await world.services.installers.authorize(
                sent, slug, read_credentials(sent.headers)
            )
        assert org.id == principal.tenant_id
    rejections = [
        line["event"].removeprefix(LOG_EVENT_PREFIX)
        for line in logs
        if line["event"].startswith(LOG_EVENT_PREFIX)
    ]
    return Installed(principal, rejections)


def basic(user: str, password: str) -> tuple[str, str]:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return "authorization", f"Basic {encoded}"


def bearer(secret: str) -> tuple[str, str]:
    """A bearer token, as npm sends `_authToken`."""
    return "authorization", f"Bearer {secret}"
